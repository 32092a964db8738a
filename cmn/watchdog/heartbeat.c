#include "watchdog/heartbeat.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
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

/* Milliseconds of silence that a change of leaders may take; of silence until a node is asked
 * whether its host answers, and all addresses are tried again; until people are told that a node
 * cannot be heard. */
enum { CHANGE_MS = 750, SILENT_MS = 2 * CHANGE_MS, DEAF_MS = 20000 };

/* Statuses in one datagram; how often a tell is sent; datagrams that one look takes at most. */
enum { STATUSES = 4, TIMES = 3, TAKEN_MAX = 2000 };

/* Numbers are in the processor's byte order: the nodes of a job have equal processors and run the
 * same program. A datagram is about the ranks from `first` to `end` - 1 of the sender's node. Those
 * that are not among its statuses make progress. */
struct datagram {
    unsigned char mac[crypto_auth_BYTES]; /* of all bytes that follow */
    uint64_t number;                      /* grows with each datagram of this sender */
    int32_t sender;                       /* its rank */
    int32_t first, end;
    uint32_t told; /* CMN_BEAT_… */
    uint64_t statuses;
    /* without the host, which each rank knows from the start */
    struct cmn_rank_status status[STATUSES];
};
_Static_assert(sizeof(struct datagram) <= 1452, "an Ethernet frame holds it, with IPv6, too");

/* Where rank 0 can be reached, and the job's key. */
struct place {
    int n; /* 0: rank 0 cannot be reached */
    struct sockaddr_storage address[CMN_NICS];
    unsigned char key[crypto_auth_KEYBYTES];
};

/* What is known of another node. */
struct peer {
    int heard, warned;
    unsigned told;
    long silent;
    struct sockaddr_storage at; /* source of its last datagram */
    int asks;                   /* TCP connection that tests whether its host answers; -1: none */
    int answers;                /* whether the host answered the last test */
};

struct rank {
    int node;
    uint64_t number; /* of the newest datagram that this rank has sent */
    struct cmn_rank_status now;
};

struct cmn_heartbeat {
    int me, ranks, node, nodes;
    int speaks; /* 1: this is rank 0, or the leader of another node */
    int fd;     /* -1: no socket could be opened */
    struct place place;
    /* of each node; only rank 0 hears them all, and others only hear node 0 */
    struct peer *peer;
    struct rank *rank;
    uint64_t sent; /* number of datagrams sent */
    unsigned told;
};

/* ---- opening ---- */

/* Returns whether heartbeats may use the interface. Open MPI's lists decide. Without a list of
 * interfaces to use, the loopback is taken only if there is no other. */
static int may_be_used(const struct cmn_nic *nic, int loopback)
{
    const char *include = cmn_launcher_networks();
    const char *exclude = cmn_launcher_networks_excluded();

    if (include && include[0]) {
        return cmn_nic_in_list(nic, include);
    }
    return cmn_nic_is_loopback(nic) == loopback && !(exclude && cmn_nic_in_list(nic, exclude));
}

/* Takes IPv6 only if there is no IPv4, and the loopback only if there is nothing else. */
static void find_addresses(struct place *place)
{
    struct cmn_nic nic[CMN_NICS];

    for (int turn = 0; turn < 4 && place->n == 0; turn++) {
        int n = cmn_nics(turn % 2 ? AF_INET6 : AF_INET, nic, CMN_NICS);
        for (int i = 0; i < n; i++) {
            if (may_be_used(&nic[i], turn >= 2)) {
                place->address[place->n++] = nic[i].address;
            }
        }
    }
}

/* Opens a socket on a free port, which rank 0 writes into its addresses. */
static void open_socket(struct cmn_heartbeat *h)
{
    struct sockaddr_storage any = {.ss_family = h->place.address[0].ss_family};
    socklen_t bytes = sizeof any;
    int room = 1 << 20; /* The kernel may give less. */

    h->fd = socket(any.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->fd < 0 || bind(h->fd, (struct sockaddr *)&any, bytes) ||
        getsockname(h->fd, (struct sockaddr *)&any, &bytes)) {
        h->place.n = 0;
        return;
    }
    setsockopt(h->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    for (int i = 0; i < h->place.n && h->me == 0; i++) {
        /* The port lies at the same place in addresses of both families. */
        ((struct sockaddr_in *)&h->place.address[i])->sin_port =
            ((struct sockaddr_in *)&any)->sin_port;
    }
}

static void meet(struct cmn_heartbeat *h, MPI_Comm world)
{
    struct place *place = &h->place;

    h->fd = -1;
    if (h->me == 0 && h->nodes > 1 &&
        getrandom(place->key, sizeof place->key, 0) == sizeof place->key) {
        find_addresses(place);
        open_socket(h);
    }
    MPI_CALL(MPI_Bcast(place, sizeof *place, MPI_BYTE, 0, world));
    if (h->me && place->n) {
        open_socket(h);
    }
    place->n = sodium_init() < 0 ? 0 : place->n;
}

static void learn_ranks(struct cmn_heartbeat *h, const struct cmn_topology *t)
{
    struct who {
        char host[sizeof t->host];
        int node;
    } mine = {.node = t->inter_rank}, *all = cmn_calloc((size_t)t->size, sizeof *all);

    memcpy(mine.host, t->host, sizeof mine.host);
    MPI_CALL(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, t->world));
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
    struct cmn_heartbeat *h = cmn_calloc(1, sizeof *h);

    h->me = t->rank;
    h->ranks = t->size;
    h->node = t->inter_rank;
    h->nodes = t->inter_size;
    h->rank = cmn_calloc((size_t)h->ranks, sizeof *h->rank);
    h->peer = cmn_calloc((size_t)h->nodes, sizeof *h->peer);
    for (int i = 0; i < h->nodes; i++) {
        h->peer[i].asks = -1;
    }
    meet(h, t->world);
    learn_ranks(h, t);
    return h;
}

static void end_asking(struct peer *p)
{
    if (p->asks >= 0) {
        close(p->asks);
        p->asks = -1;
    }
}

void cmn_heartbeat_close(struct cmn_heartbeat *h)
{
    for (int i = 0; i < h->nodes; i++) {
        end_asking(&h->peer[i]);
    }
    if (h->fd >= 0) {
        close(h->fd);
    }
    free(h->peer);
    free(h->rank);
    free(h);
}

/* ---- what comes ---- */

static int is_valid_status(const struct cmn_heartbeat *h, const struct datagram *d, uint64_t i)
{
    const struct cmn_rank_status *v = &d->status[i];

    return v->rank >= d->first && v->rank < d->end && v->rank >= 0 && v->rank < h->ranks &&
           h->rank[v->rank].node == h->rank[d->sender].node &&
           (unsigned)v->state < CMN_RANK_STATES && v->stalled >= 0 && v->silent >= 0;
}

/* Cheap checks come first. */
static int is_valid(const struct cmn_heartbeat *h, const struct datagram *d, size_t bytes)
{
    size_t head = offsetof(struct datagram, status);

    if (bytes < head || d->statuses > STATUSES ||
        bytes != head + d->statuses * sizeof d->status[0] || d->sender < 0 ||
        d->sender >= h->ranks || (h->me && d->sender) || h->rank[d->sender].node == h->node ||
        d->number <= h->rank[d->sender].number) {
        return 0;
    }
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    if (crypto_auth_verify(d->mac, (const unsigned char *)d + sizeof d->mac, bytes - sizeof d->mac,
                           h->place.key)) {
        return 0;
    }
#endif
    for (uint64_t i = 0; i < d->statuses; i++) {
        if (!is_valid_status(h, d, i)) {
            return 0;
        }
    }
    return 1;
}

/* Text that is printed must end, and must not control a terminal. */
static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    cmn_printable(text);
}

static void take_statuses(struct cmn_heartbeat *h, const struct datagram *d)
{
    for (int i = 0; i < h->ranks; i++) {
        struct cmn_rank_status *v = &h->rank[i].now;
        if (h->rank[i].node == h->rank[d->sender].node && i >= d->first && i < d->end) {
            v->stalled = v->silent = v->waiting = 0;
            v->state = CMN_RANK_ALIVE;
        }
    }
    for (uint64_t i = 0; i < d->statuses; i++) {
        struct cmn_rank_status *v = &h->rank[d->status[i].rank].now, next = d->status[i];
        memcpy(next.host, v->host, sizeof next.host);
        make_printable(next.phase, sizeof next.phase);
        make_printable(next.detail, sizeof next.detail);
        *v = next;
    }
}

/* Takes a datagram. Returns whether it was one of this job's, for this process, and new. */
static int take(struct cmn_heartbeat *h, const struct datagram *d, size_t bytes,
                const struct sockaddr_storage *from)
{
    struct peer *p;

    if (!is_valid(h, d, bytes)) {
        return 0;
    }
    p = &h->peer[h->rank[d->sender].node];
    h->rank[d->sender].number = d->number;
    p->heard = 1;
    p->silent = 0;
    p->at = *from;
    p->answers = 0;
    end_asking(p);
    p->told |= d->told & CMN_BEAT_BYE;
    h->told |= d->told & CMN_BEAT_DIAGNOSED;
    take_statuses(h, d);
    return 1;
}

static void receive(struct cmn_heartbeat *h)
{
    for (int i = 0; i < TAKEN_MAX; i++) {
        struct datagram d;
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        ssize_t got = recvfrom(h->fd, &d, sizeof d, MSG_TRUNC, (struct sockaddr *)&from, &bytes);
        if (got < 0) {
            return;
        }
        take(h, &d, (size_t)got, &from);
    }
}

/* Tests, without blocking, whether a node's host answers. The host of a stopped process is alive,
 * and its kernel refuses a TCP connection to the port. */
static void ask_host(struct peer *p)
{
    struct pollfd ready = {.fd = p->asks, .events = POLLOUT};
    socklen_t bytes = sizeof(int);
    int error = 0;

    if (p->asks < 0) {
        p->asks = socket(p->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        error = connect(p->asks, (struct sockaddr *)&p->at, sizeof p->at) ? errno : 0;
    } else if (poll(&ready, 1, 0) > 0) {
        getsockopt(p->asks, SOL_SOCKET, SO_ERROR, &error, &bytes);
    } else {
        return;
    }
    if (error != EINPROGRESS) {
        p->answers = error == 0 || error == ECONNREFUSED;
        end_asking(p);
    }
}

static void warn_of_the_deaf(struct cmn_heartbeat *h, int node)
{
    int i = 0;

    while (h->rank[i].node != node) {
        i++;
    }
    h->peer[node].warned = 1;
    cmn_warn("no heartbeat of %s's watchdog comes over UDP (a firewall?): should that host or its "
             "link fail, MPI alone may notice",
             h->rank[i].now.host);
}

void cmn_heartbeat_look(struct cmn_heartbeat *h, long ms, int leads)
{
    h->speaks = h->me == 0 || (leads && h->node);
    receive(h);
    if (!h->speaks) {
        end_asking(h->peer);
        /* If this process leads later, it has not heard rank 0 yet. */
        *h->peer = (struct peer){.asks = -1};
        return;
    }
    for (int i = 0; i < (h->me ? 1 : h->nodes); i++) {
        struct peer *p = &h->peer[i];
        p->silent += ms;
        if (p->heard && p->silent >= SILENT_MS) {
            ask_host(p);
        } else if (i != h->node && h->me == 0 && !p->heard && !p->warned && p->silent >= DEAF_MS) {
            warn_of_the_deaf(h, i);
        }
    }
}

/* ---- what is sent ---- */

/* Sends a datagram from rank 0 to all other nodes, or from another node to rank 0: to the address
 * that rank 0 last sent from, or to all of its addresses while it does not answer. */
static void send_datagram(struct cmn_heartbeat *h, struct datagram *d)
{
    size_t bytes = offsetof(struct datagram, status) + d->statuses * sizeof d->status[0];

    if (!h->speaks || h->place.n == 0) {
        return;
    }
    d->number = ++h->sent;
    d->sender = h->me;
    d->told = h->told;
    crypto_auth(d->mac, (unsigned char *)d + sizeof d->mac, bytes - sizeof d->mac, h->place.key);
    for (int i = 0; i < (h->me ? 1 : h->nodes); i++) {
        const struct peer *p = &h->peer[i];
        int answers = p->heard && (h->me == 0 || p->silent < SILENT_MS);
        const struct sockaddr_storage *to = answers ? &p->at : h->place.address;
        for (int k = 0; k < (answers ? 1 : h->me ? h->place.n : 0); k++) {
            /* A datagram that cannot be sent counts as lost on its way. */
            (void)!sendto(h->fd, d, bytes, MSG_NOSIGNAL, (const struct sockaddr *)&to[k],
                          sizeof to[k]);
        }
    }
}

void cmn_heartbeat_beat(struct cmn_heartbeat *h, const struct cmn_rank_status *rank, int n)
{
    struct datagram d;
    int done = 0;

    memset(&d, 0, sizeof d);
    n = h->me == 0 ? 0 : n;
    do {
        int some = n - done < STATUSES ? n - done : STATUSES;
        d.first = d.end;
        d.end = done + some < n ? rank[done + some].rank : h->ranks;
        d.statuses = (uint64_t)some;
        for (int i = 0; i < some; i++) {
            d.status[i] = rank[done++];
        }
        send_datagram(h, &d);
    } while (done < n);
}

void cmn_heartbeat_tell(struct cmn_heartbeat *h, unsigned what)
{
    struct datagram d;

    memset(&d, 0, sizeof d);
    h->told |= what;
    for (int i = 0; i < TIMES; i++) {
        send_datagram(h, &d);
    }
}

/* ---- what is known ---- */

int cmn_heartbeat_diagnosed(const struct cmn_heartbeat *h)
{
    return (h->told & CMN_BEAT_DIAGNOSED) != 0;
}

int cmn_heartbeat_elsewhere(const struct cmn_heartbeat *h, long limit)
{
    const struct peer *p = h->peer;

    return h->me && p->heard && !(p->told & CMN_BEAT_BYE) && p->silent - CHANGE_MS < limit;
}

void cmn_heartbeat_see(const struct cmn_heartbeat *h, struct cmn_rank_status *seen)
{
    for (int i = 0; i < h->ranks; i++) {
        const struct peer *p = &h->peer[h->rank[i].node];
        if (h->rank[i].node == h->node) {
            continue;
        }
        seen[i] = h->rank[i].now;
        if (!p->heard) {
            seen[i].state = CMN_RANK_UNKNOWN;
        } else if (p->told & CMN_BEAT_BYE) {
            seen[i].ended = 1;
        } else if (p->silent >= SILENT_MS) {
            seen[i].silent = p->silent - CHANGE_MS;
            seen[i].state = p->answers ? CMN_RANK_UNHEARD : CMN_RANK_UNREACHABLE;
        }
    }
}
