#include "watchdog/heartbeat.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "mpi/call.h"

/* Milliseconds: until a connection must be there; until its peer must be authenticated, from its
 * begin on; between rounds of attempts to connect; until a node whose connection has ended counts
 * as gone (mpiexec, or its next leader, may come first); what a change of leaders may take; until
 * people are told that a node cannot be heard. */
enum {
    CONNECT_MS = 3000,
    AUTHENTICATE_MS = 4500,
    PAUSE_MS = 1000,
    GONE_MS = 2500,
    CHANGE_MS = 750,
    DEAF_MS = 20000
};

/* Unauthenticated peers at a time: from the job's hosts, that many and one for each of them; from
 * elsewhere. */
enum { UNAUTHENTICATED_MAX = 16, FOREIGN_MAX = 8 };

/* Another node. */
struct peer {
    struct cmn_connection *connection;
    int heard, bye, gone, told;
    long silent, gone_for;
};

struct rank {
    int node, pending;
    struct cmn_rank_status now, next; /* next: it counts from the node's next heartbeat on */
};

struct cmn_heartbeat {
    int rank_0;
    struct cmn_connection_job job;
    struct cmn_listener listener;
    struct cmn_connection *connection; /* of rank 0; elsewhere there is one */
    int connections;
    unsigned long arrivals; /* of peers, so far */
    struct peer *peer; /* of each node; elsewhere than on rank 0 the first one alone is heard */
    struct rank *rank;
    int next;   /* address to connect to: the one that was right, if any was */
    long pause; /* until then */
    int diagnosed;
};

/* ---- opening ---- */

static void learn_ranks(struct cmn_heartbeat *h, const struct cmn_topology *t)
{
    struct who {
        char host[sizeof t->host];
        int node;
    } mine = {.node = t->inter_rank}, *all = cmn_calloc((size_t)t->size, sizeof *all);

    memcpy(mine.host, t->host, sizeof mine.host);
    MPI_CALL(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, t->world));
    h->rank = cmn_calloc((size_t)t->size, sizeof *h->rank);
    for (int i = 0; i < t->size; i++) {
        struct cmn_rank_status *v = &h->rank[i].now;
        h->rank[i].node = all[i].node;
        *v = (struct cmn_rank_status){.rank = i, .layer = -1, .bucket = -1, .iteration = -1};
        memcpy(v->host, all[i].host, sizeof v->host);
    }
    free(all);
}

struct cmn_heartbeat *cmn_heartbeat_open(const struct cmn_topology *t)
{
    struct cmn_heartbeat *h;

    if (t->inter_size < 2) {
        return NULL;
    }
    h = cmn_calloc(1, sizeof *h);
    h->rank_0 = t->rank == 0;
    h->job.ranks = t->size;
    h->job.node = t->inter_rank;
    h->job.nodes = t->inter_size;
    h->peer = cmn_calloc((size_t)h->job.nodes, sizeof *h->peer);
    h->connections = h->rank_0 ? 2 * h->job.nodes + UNAUTHENTICATED_MAX + FOREIGN_MAX : 1;
    h->connection = cmn_calloc((size_t)h->connections, sizeof *h->connection);
    for (int i = 0; i < h->connections; i++) {
        h->connection[i].fd = -1;
    }
    cmn_listener_open(&h->listener, t);
    memcpy(h->job.key, h->listener.key, sizeof h->job.key);
    learn_ranks(h, t);
    return h;
}

/* ---- one connection ---- */

static void next_address(struct cmn_heartbeat *h)
{
    h->next = (h->next + 1) % h->listener.at.n;
    h->pause = h->next ? 0 : PAUSE_MS;
}

/* On a connector that has not authenticated rank 0 there, the next address is due. */
static void drop(struct cmn_heartbeat *h, struct cmn_connection *c)
{
    if (c->fd >= 0 && c->node < 0 && c->role == CMN_CONNECTOR) {
        next_address(h);
    }
    if (c->node >= 0 && h->peer[c->node].connection == c) {
        h->peer[c->node].connection = NULL;
    }
    cmn_connection_close(c);
}

/* The other side has ended it. A link that is cut is not the end of the processes behind it. */
static void ended(struct cmn_heartbeat *h, struct cmn_connection *c)
{
    struct peer *p = c->node >= 0 ? &h->peer[c->node] : NULL;
    int cut = errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH;

    if (p && p->connection == c && !cut && !p->gone) {
        p->gone = 1;
        p->gone_for = 0;
    }
    drop(h, c);
}

static void send_to_all(struct cmn_heartbeat *h, struct cmn_message *m)
{
    for (int i = 0; i < h->connections; i++) {
        struct cmn_connection *c = &h->connection[i];
        if (c->fd >= 0 && c->node >= 0 && cmn_connection_send(c, &h->job, m)) {
            ended(h, c);
        }
    }
}

/* ---- what comes ---- */

static void take_status(struct cmn_heartbeat *h, const struct cmn_message *m)
{
    if (m->kind == CMN_MESSAGE_RANK && h->rank[m->rank.rank].node == (int)m->node) {
        h->rank[m->rank.rank].next = m->rank;
        h->rank[m->rank.rank].pending = 1;
    }
    for (int i = 0; i < h->job.ranks && m->kind == CMN_MESSAGE_BEAT; i++) {
        struct rank *r = &h->rank[i];
        if (r->node == (int)m->node && r->pending) {
            memcpy(r->next.host, r->now.host, sizeof r->next.host);
            r->now = r->next;
            r->pending = 0;
        } else if (r->node == (int)m->node) {
            r->now.stalled = r->now.silent = r->now.waiting = 0;
            r->now.state = CMN_RANK_ALIVE;
        }
    }
}

/* Takes a message over. 0, or -1: no watchdog of this job sends it on this connection. */
static int take(struct cmn_heartbeat *h, struct cmn_connection *c, const struct cmn_message *m)
{
    struct peer *p = &h->peer[m->node];

    if ((int)m->node == h->job.node || (c->node >= 0 && c->node != (int)m->node)) {
        return -1;
    }
    c->node = (int)m->node;
    if (p->connection && p->connection != c) {
        drop(h, p->connection); /* the node has another leader now */
    }
    p->connection = c;
    p->heard = 1;
    p->gone = 0;
    p->silent = 0;
    p->bye |= m->kind == CMN_MESSAGE_BYE;
    h->diagnosed |= m->kind == CMN_MESSAGE_DIAGNOSED;
    if (h->rank_0) {
        take_status(h, m);
    }
    return 0;
}

static void receive(struct cmn_heartbeat *h, struct cmn_connection *c)
{
    struct cmn_message m;
    int is;

    while ((is = cmn_connection_next(c, &h->job, &m)) > 0) {
        if (take(h, c, &m)) {
            is = CMN_CONNECTION_BAD;
            break;
        }
    }
    if (is == CMN_CONNECTION_ENDED) {
        ended(h, c);
    } else if (is == CMN_CONNECTION_BAD) {
        drop(h, c);
    }
}

/* ---- connecting ---- */

/* Makes room among the unauthenticated peers of that kind: those that have not greeted go first,
 * then the oldest. */
static void evict(struct cmn_heartbeat *h, int foreign)
{
    struct cmn_connection *first = NULL;
    int n = 0;

    for (int i = 0; i < h->connections; i++) {
        struct cmn_connection *c = &h->connection[i];
        if (c->fd < 0 || c->node >= 0 || c->foreign != foreign) {
            continue;
        }
        n++;
        if (!first || c->received < first->received ||
            (c->received == first->received && c->arrival < first->arrival)) {
            first = c;
        }
    }
    if (n >= (foreign ? FOREIGN_MAX : UNAUTHENTICATED_MAX + h->job.nodes)) {
        drop(h, first);
    }
}

/* Hosts may have addresses that nobody here knows, such as behind a NAT: those peers are taken,
 * too, and cannot keep the places of the known hosts. */
static void take_peer(struct cmn_heartbeat *h, int fd, int foreign)
{
    evict(h, foreign);
    for (int i = 0; i < h->connections; i++) {
        struct cmn_connection *c = &h->connection[i];
        if (c->fd < 0) {
            if (!cmn_connection_open(c, fd, CMN_LISTENER)) {
                c->foreign = foreign;
                c->arrival = h->arrivals++;
                receive(h, c); /* its greeting may be there, and keeps it from being evicted */
            }
            return;
        }
    }
    close(fd);
}

static void accept_all(struct cmn_heartbeat *h)
{
    for (int i = 0; i < h->listener.at.n; i++) {
        for (int n = 0; n < CMN_BACKLOG; n++) {
            int foreign,
                fd = cmn_listener_accept(&h->listener, i, SOCK_CLOEXEC | SOCK_NONBLOCK, &foreign);
            if (fd >= 0) {
                take_peer(h, fd, foreign);
            } else if (errno != ECONNABORTED && errno != EINTR) {
                break;
            }
        }
    }
}

/* From a node's leader to rank 0, at its addresses in turn. */
static void connect_to_rank_0(struct cmn_heartbeat *h, long ms)
{
    const struct sockaddr_storage *to = &h->listener.at.address[h->next];
    int fd;

    h->pause -= ms;
    if (h->listener.at.n == 0 || h->pause > 0) {
        return;
    }
    fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        next_address(h);
        return;
    }
    if (connect(fd, (const struct sockaddr *)to, cmn_address_bytes(to)) && errno != EINPROGRESS) {
        close(fd);
        next_address(h);
        return;
    }
    if (!cmn_connection_open(h->connection, fd, CMN_CONNECTOR)) {
        h->connection->connecting = 1;
    }
}

/* Looks whether the connection is there now. */
static void complete(struct cmn_heartbeat *h, struct cmn_connection *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    socklen_t bytes = sizeof(int);
    int error = 0;

    if (poll(&p, 1, 0) > 0) {
        c->connecting = 0;
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) || error ||
            cmn_connection_greet(c, &h->job)) {
            drop(h, c);
        }
    }
}

static void warn_of_the_deaf(struct cmn_heartbeat *h, struct peer *p, int node, long ms)
{
    p->silent += ms; /* since the start */
    if (p->told || p->silent < DEAF_MS) {
        return;
    }
    p->told = 1;
    for (int i = 0; i < h->job.ranks; i++) {
        if (h->rank[i].node == node) {
            cmn_warn("the watchdog of %s does not connect over TCP (a firewall?): should that host "
                     "or its link fail, MPI alone may notice",
                     h->rank[i].now.host);
            return;
        }
    }
}

static void age(struct cmn_heartbeat *h, long ms)
{
    for (int i = 0; i < (h->rank_0 ? h->job.nodes : 1); i++) {
        struct peer *p = &h->peer[i];
        if (i != h->job.node && !p->heard && h->rank_0) {
            warn_of_the_deaf(h, p, i, ms);
        } else if (p->heard) {
            p->silent += ms;
            p->gone_for += p->gone ? ms : 0;
        }
    }
}

void cmn_heartbeat_look(struct cmn_heartbeat *h, long ms, int leads)
{
    if (!h->rank_0 && (!leads || h->job.node == 0)) {
        drop(h, h->connection);
        memset(h->peer, 0, sizeof *h->peer); /* it will hear rank 0, and has not yet */
        return;
    }
    if (!h->rank_0 && h->connection->fd < 0) {
        connect_to_rank_0(h, ms);
    }
    for (int i = 0; i < h->connections; i++) {
        struct cmn_connection *c = &h->connection[i];
        c->age += ms;
        if (c->fd >= 0 && c->connecting) {
            complete(h, c);
        }
        if (c->fd >= 0 && !c->connecting) {
            receive(h, c);
        }
        if (c->fd >= 0 && c->node < 0 && c->age > (c->connecting ? CONNECT_MS : AUTHENTICATE_MS)) {
            drop(h, c);
        }
    }
    /* After the others: one that is about to be authenticated is not evicted for a new one. */
    if (h->rank_0) {
        accept_all(h);
    }
    age(h, ms);
}

/* ---- what is sent ---- */

void cmn_heartbeat_beat(struct cmn_heartbeat *h, const struct cmn_rank_status *rank, int n)
{
    struct cmn_message m;

    memset(&m, 0, sizeof m);
    m.kind = CMN_MESSAGE_RANK;
    for (int i = 0; i < n && !h->rank_0; i++) {
        m.rank = rank[i];
        send_to_all(h, &m);
    }
    cmn_heartbeat_tell(h, CMN_MESSAGE_BEAT);
}

void cmn_heartbeat_tell(struct cmn_heartbeat *h, enum cmn_message_kind kind)
{
    struct cmn_message m;

    memset(&m, 0, sizeof m);
    m.kind = kind;
    send_to_all(h, &m);
}

/* ---- what is known ---- */

int cmn_heartbeat_connected(const struct cmn_heartbeat *h)
{
    for (int i = 0; i < (h->rank_0 ? h->job.nodes : 1); i++) {
        if (i != h->job.node && !h->peer[i].connection && !h->peer[i].bye) {
            return 0;
        }
    }
    return 1;
}

int cmn_heartbeat_diagnosed(const struct cmn_heartbeat *h)
{
    return h->diagnosed;
}

static int is_gone(const struct peer *p)
{
    return p->gone && p->gone_for >= GONE_MS;
}

int cmn_heartbeat_elsewhere(const struct cmn_heartbeat *h, long limit)
{
    const struct peer *p = &h->peer[0];

    return !h->rank_0 && p->heard && !p->bye && !is_gone(p) && p->silent - CHANGE_MS < limit;
}

/* Whether the host acknowledges what is sent to it: its kernel does, also when the processes are
 * stopped. */
static int answers(const struct peer *p)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;

    return p->connection && !getsockopt(p->connection->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) &&
           2 * (long)info.tcpi_last_ack_recv < p->silent;
}

static void see(const struct peer *p, struct cmn_rank_status *v)
{
    if (!p->heard) {
        v->state = CMN_RANK_UNKNOWN;
    } else if (p->bye) {
        v->ended = 1;
    } else if (is_gone(p)) {
        v->state = CMN_RANK_GONE;
        v->silent = LONG_MAX;
    } else if (p->silent >= 2 * CHANGE_MS) {
        v->silent = p->silent - CHANGE_MS;
        v->state = answers(p) ? CMN_RANK_UNHEARD : CMN_RANK_UNREACHABLE;
    }
}

void cmn_heartbeat_see(const struct cmn_heartbeat *h, struct cmn_rank_status *seen)
{
    static const struct peer nobody;

    for (int i = 0; i < h->job.ranks; i++) {
        int node = h->rank[i].node;
        if (node != h->job.node) {
            seen[i] = h->rank[i].now;
            see(h->rank_0 || node == 0 ? &h->peer[node] : &nobody, &seen[i]);
        }
    }
}

struct cmn_addresses *cmn_heartbeat_place(struct cmn_heartbeat *h)
{
    return &h->listener.at;
}

void cmn_heartbeat_close(struct cmn_heartbeat *h)
{
    for (int i = 0; i < h->connections; i++) {
        cmn_connection_close(&h->connection[i]);
    }
    cmn_listener_close(&h->listener);
    free(h->peer);
    free(h->rank);
    free(h->connection);
    free(h);
}
