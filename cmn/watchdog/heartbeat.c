#include "watchdog/heartbeat.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/launcher.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/nics.h"
#include "mpi/call.h"

/* Milliseconds: until a connection must be there; until a peer must have shown the token; between
 * attempts to connect; until a node whose connection has ended counts as gone (mpiexec, or its next
 * leader, may come first); what a change of leaders may take; until people are told that a node
 * cannot be heard. */
enum {
    CONNECT_MS = 3000,
    AUTHENTICATE_MS = 5000,
    PAUSE_MS = 1000,
    GONE_MS = 2500,
    CHANGE_MS = 750,
    DEAF_MS = 20000
};

enum { UNAUTHENTICATED_MAX = 16, ADDRESSES = 8, SEND_BUFFER = 1 << 18 };

/* Where rank 0's watchdog can be reached, and what peers must know. */
struct place {
    int n;
    struct sockaddr_storage address[ADDRESSES];
    unsigned char token[CMN_TOKEN];
};

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
    int rank_0, size, node, nodes;
    struct place place;
    int listener[ADDRESSES];
    struct cmn_connection *connection; /* of rank 0; elsewhere there is one */
    int connections;
    struct peer *peer; /* of each node; elsewhere than on rank 0 the first one alone is heard */
    struct rank *rank;
    int next;   /* address to connect to */
    long pause; /* until then */
    int diagnosed;
};

/* ---- where rank 0's watchdog listens ---- */

static socklen_t bytes_of(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* Open MPI's lists decide; without them the loopback counts on its turn alone. */
static int may_be_used(const struct cmn_nic *nic, int loopback)
{
    const char *include = cmn_launcher_networks();
    const char *exclude = cmn_launcher_networks_excluded();

    if (include && include[0]) {
        return cmn_nic_in_list(nic, include);
    }
    return cmn_nic_is_loopback(nic) == loopback && !(exclude && cmn_nic_in_list(nic, exclude));
}

static int listen_on(struct sockaddr_storage *address)
{
    socklen_t bytes = sizeof *address;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (bind(fd, (struct sockaddr *)address, bytes_of(address)) || listen(fd, 64) ||
                    getsockname(fd, (struct sockaddr *)address, &bytes))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Listens on a free port of each of this host's addresses that MPI may use for TCP. */
static void listen_everywhere(struct place *place, int listener[ADDRESSES])
{
    struct cmn_nic nic[4 * CMN_NICS];
    int n = cmn_nics(AF_UNSPEC, nic, 4 * CMN_NICS);

    for (int loopback = 0; loopback < 2 && place->n == 0; loopback++) {
        for (int i = 0; i < n && place->n < ADDRESSES; i++) {
            if (may_be_used(&nic[i], loopback)) {
                place->address[place->n] = nic[i].address;
                listener[place->n] = listen_on(&place->address[place->n]);
                place->n += listener[place->n] >= 0;
            }
        }
    }
    if (getrandom(place->token, sizeof place->token, 0) != sizeof place->token) {
        place->n = 0; /* nobody connects */
    }
}

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
    h->size = t->size;
    h->node = t->inter_rank;
    h->nodes = t->inter_size;
    h->peer = cmn_calloc((size_t)h->nodes, sizeof *h->peer);
    h->connections = h->rank_0 ? h->nodes + UNAUTHENTICATED_MAX : 1;
    h->connection = cmn_calloc((size_t)h->connections, sizeof *h->connection);
    for (int i = 0; i < h->connections; i++) {
        h->connection[i].fd = -1;
    }
    if (h->rank_0) {
        listen_everywhere(&h->place, h->listener);
    }
    MPI_CALL(MPI_Bcast(&h->place, sizeof h->place, MPI_BYTE, 0, t->world));
    learn_ranks(h, t);
    return h;
}

/* ---- one connection ---- */

void cmn_connection_open(struct cmn_connection *c, int fd, int node)
{
    int yes = 1, bytes = SEND_BUFFER;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* A heartbeat goes with the status of each rank of a node that does not move: room for
     * hundreds. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    *c = (struct cmn_connection){.fd = fd, .node = node};
}

static void drop(struct cmn_heartbeat *h, struct cmn_connection *c)
{
    if (c->node >= 0 && h->peer[c->node].connection == c) {
        h->peer[c->node].connection = NULL;
    }
    if (c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
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

/* Sends what is left, then the message: heartbeats come again, so a message that finds no room is
 * left out. 0, or -1: the connection has ended, errno says why. */
static int send_message(struct cmn_connection *c, const struct cmn_message *m)
{
    for (int pending = c->left > 0;; pending = 0) {
        ssize_t sent;
        if (!pending) {
            memcpy(c->out, m, sizeof *m);
            c->left = sizeof *m;
        }
        sent = send(c->fd, c->out, c->left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            return -1;
        }
        if (sent < 0) {
            c->left = pending ? c->left : 0;
            return 0;
        }
        c->left -= (size_t)sent;
        memmove(c->out, c->out + sent, c->left);
        if (!pending || c->left) {
            return 0;
        }
    }
}

static void send_to_all(struct cmn_heartbeat *h, struct cmn_message *m)
{
    memcpy(m->token, h->place.token, sizeof m->token);
    m->node = (uint32_t)h->node;
    for (int i = 0; i < h->connections; i++) {
        struct cmn_connection *c = &h->connection[i];
        if (c->fd >= 0 && !c->connecting && c->node >= 0 && send_message(c, m)) {
            ended(h, c);
        }
    }
}

/* What is printed must not control a terminal. */
static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == 127) {
            *text = '?';
        }
    }
}

/* Takes constant time over the token, so that the time does not tell how much of it is right. */
static int is_valid(struct cmn_message *m, const unsigned char *token, int nodes, int ranks)
{
    struct cmn_rank_status *v = &m->rank;
    unsigned char differs = 0;

    for (int i = 0; i < CMN_TOKEN; i++) {
        differs |= m->token[i] ^ token[i];
    }
    if (differs || m->kind < CMN_MESSAGE_BEAT || m->kind > CMN_MESSAGE_DIAGNOSED ||
        m->node >= (uint32_t)nodes || v->rank < 0 || v->rank >= ranks ||
        (unsigned)v->state >= CMN_RANK_STATES || v->stalled < 0 || v->silent < 0) {
        return 0;
    }
    make_printable(v->host, sizeof v->host);
    make_printable(v->phase, sizeof v->phase);
    make_printable(v->detail, sizeof v->detail);
    return 1;
}

int cmn_connection_next(struct cmn_connection *c, const unsigned char *token, int nodes, int ranks,
                        struct cmn_message *m)
{
    while (c->got < sizeof c->in) {
        ssize_t got = recv(c->fd, c->in + c->got, sizeof c->in - c->got, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return CMN_CONNECTION_ENDED;
        }
        c->got += (size_t)got;
    }
    c->got = 0;
    memcpy(m, c->in, sizeof *m);
    return is_valid(m, token, nodes, ranks) ? 1 : CMN_CONNECTION_BAD;
}

/* ---- what comes ---- */

static void take_status(struct cmn_heartbeat *h, const struct cmn_message *m)
{
    if (m->kind == CMN_MESSAGE_RANK && h->rank[m->rank.rank].node == (int)m->node) {
        h->rank[m->rank.rank].next = m->rank;
        h->rank[m->rank.rank].pending = 1;
    }
    for (int i = 0; i < h->size && m->kind == CMN_MESSAGE_BEAT; i++) {
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

    if ((int)m->node == h->node || (c->node >= 0 && c->node != (int)m->node)) {
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

    while ((is = cmn_connection_next(c, h->place.token, h->nodes, h->size, &m)) > 0) {
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

static void accept_all(struct cmn_heartbeat *h)
{
    for (int i = 0; i < h->place.n; i++) {
        int fd, free_one;
        while ((fd = accept4(h->listener[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
            for (free_one = 0; free_one < h->connections && h->connection[free_one].fd >= 0;) {
                free_one++;
            }
            if (free_one < h->connections) {
                cmn_connection_open(&h->connection[free_one], fd, -1);
            } else {
                close(fd);
            }
        }
    }
}

/* From a node's leader to rank 0, at its addresses in turn. */
static void connect_to_rank_0(struct cmn_heartbeat *h, long ms)
{
    const struct sockaddr_storage *to = &h->place.address[h->next];
    int fd;

    h->pause -= ms;
    if (h->place.n == 0 || h->pause > 0) {
        return;
    }
    h->next = (h->next + 1) % h->place.n;
    h->pause = h->next ? 0 : PAUSE_MS;
    fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    if (connect(fd, (const struct sockaddr *)to, bytes_of(to)) && errno != EINPROGRESS) {
        close(fd);
        return;
    }
    cmn_connection_open(h->connection, fd, 0);
    h->connection->connecting = 1;
}

/* Looks whether the connection is there now, `ms` after the last look. */
static void complete(struct cmn_heartbeat *h, struct cmn_connection *c, long ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    socklen_t bytes = sizeof(int);
    int error = 0;

    c->age += ms;
    if (poll(&p, 1, 0) > 0) {
        c->connecting = 0;
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) || error) {
            drop(h, c);
        }
    } else if (c->age > CONNECT_MS) {
        drop(h, c);
    }
}

static void warn_of_the_deaf(struct cmn_heartbeat *h, struct peer *p, int node, long ms)
{
    p->silent += ms; /* since the start */
    if (p->told || p->silent < DEAF_MS) {
        return;
    }
    p->told = 1;
    for (int i = 0; i < h->size; i++) {
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
    for (int i = 0; i < (h->rank_0 ? h->nodes : 1); i++) {
        struct peer *p = &h->peer[i];
        if (i != h->node && !p->heard && h->rank_0) {
            warn_of_the_deaf(h, p, i, ms);
        } else if (p->heard) {
            p->silent += ms;
            p->gone_for += p->gone ? ms : 0;
        }
    }
}

void cmn_heartbeat_look(struct cmn_heartbeat *h, long ms, int leads)
{
    if (h->rank_0) {
        accept_all(h);
    } else if (!leads || h->node == 0) {
        drop(h, h->connection);
        memset(h->peer, 0, sizeof *h->peer); /* it will hear rank 0, and has not yet */
        return;
    } else if (h->connection->fd < 0) {
        connect_to_rank_0(h, ms);
    }
    for (int i = 0; i < h->connections; i++) {
        struct cmn_connection *c = &h->connection[i];
        if (c->fd >= 0 && c->connecting) {
            complete(h, c, ms);
        }
        if (c->fd >= 0 && !c->connecting) {
            receive(h, c);
        }
        if (c->fd >= 0 && c->node < 0 && (c->age += ms) > AUTHENTICATE_MS) {
            drop(h, c);
        }
    }
    age(h, ms);
}

/* ---- what is sent ---- */

void cmn_heartbeat_beat(struct cmn_heartbeat *h, const struct cmn_rank_status *rank, int n)
{
    struct cmn_message m = {.kind = CMN_MESSAGE_RANK};

    for (int i = 0; i < n && !h->rank_0; i++) {
        m.rank = rank[i];
        send_to_all(h, &m);
    }
    cmn_heartbeat_tell(h, CMN_MESSAGE_BEAT);
}

void cmn_heartbeat_tell(struct cmn_heartbeat *h, enum cmn_message_kind kind)
{
    struct cmn_message m = {.kind = kind};

    send_to_all(h, &m);
}

/* ---- what is known ---- */

int cmn_heartbeat_met(const struct cmn_heartbeat *h)
{
    for (int i = 0; i < (h->rank_0 ? h->nodes : 1); i++) {
        if (i != h->node && !h->peer[i].heard) {
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

    return p->connection && !p->connection->connecting &&
           !getsockopt(p->connection->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) &&
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

    for (int i = 0; i < h->size; i++) {
        int node = h->rank[i].node;
        if (node != h->node) {
            seen[i] = h->rank[i].now;
            see(h->rank_0 || node == 0 ? &h->peer[node] : &nobody, &seen[i]);
        }
    }
}
