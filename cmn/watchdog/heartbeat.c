#include "watchdog/heartbeat.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "watchdog/address.h"
#include "watchdog/connection.h"

/* Milliseconds: until a stranger must have shown the token; between tries; until a node whose
 * connection has ended counts as gone (mpiexec, or its next speaker, may come first); what a change of speakers may
 * take; until people are told that a node cannot be heard. */
enum { STRANGER = 5000, PAUSE = 1000, GONE = 2500, CHANGE = 750, DEAF = 20000 };

enum { STRANGERS = 16 };

/* What is known of another node. */
struct peer {
    struct cmn_connection *line;
    int heard, bye, gone, told;
    long silent, gone_for;
};

struct cmn_heartbeat {
    int rank, size, node, nodes;
    unsigned char token[CMN_MESSAGE_TOKEN];
    struct cmn_address place;
    int listener[CMN_WATCH_ADDRESSES];
    struct cmn_connection *line; /* of rank 0; elsewhere there is one */
    int lines;
    struct peer *peer;            /* of each node; other ranks than 0 know the first one alone */
    struct cmn_rank_status *view; /* of each rank */
    int *node_of;
    int next;   /* address to try */
    long pause; /* until then */
    int verdict;
};

/* ---- opening ---- */

struct place_and_token {
    struct cmn_address place;
    unsigned char token[CMN_MESSAGE_TOKEN];
};

static int learn_hosts(struct cmn_heartbeat *n, const struct cmn_topology *t)
{
    char(*host)[sizeof t->host] = calloc((size_t)t->size, sizeof *host);
    int result = -1;

    if (!host) {
        return cmn_fail("out of memory");
    }
    if (!cmn_mpi_check(MPI_Allgather(t->host, sizeof t->host, MPI_CHAR, host, sizeof t->host,
                                     MPI_CHAR, t->world),
                       "MPI_Allgather of hosts") &&
        !cmn_mpi_check(MPI_Allgather(&t->inter_rank, 1, MPI_INT, n->node_of, 1, MPI_INT, t->world),
                       "MPI_Allgather of nodes")) {
        for (int i = 0; i < t->size; i++) {
            memcpy(n->view[i].host, host[i], sizeof host[i]);
            n->view[i].rank = i;
            n->view[i].layer = n->view[i].bucket = -1;
            n->view[i].iteration = -1;
        }
        result = 0;
    }
    free(host);
    return result;
}

static int share_place(struct cmn_heartbeat *n, const struct cmn_topology *t)
{
    struct place_and_token all = {0};

    if (t->rank == 0) {
        cmn_address_listen(&n->place, n->listener);
        all.place = n->place;
        if (getrandom(all.token, sizeof all.token, 0) != sizeof all.token) {
            all.place.n = 0; /* nobody connects */
        }
    }
    if (cmn_mpi_check(MPI_Bcast(&all, sizeof all, MPI_BYTE, 0, t->world), "MPI_Bcast")) {
        return -1;
    }
    n->place = all.place;
    memcpy(n->token, all.token, sizeof n->token);
    return learn_hosts(n, t);
}

int cmn_heartbeat_open(struct cmn_heartbeat **nodes, const struct cmn_topology *t)
{
    struct cmn_heartbeat *n;

    *nodes = NULL;
    if (t->inter_size < 2) {
        return 0;
    }
    *nodes = n = calloc(1, sizeof *n);
    if (!n) {
        return cmn_fail("out of memory");
    }
    n->rank = t->rank;
    n->size = t->size;
    n->node = t->inter_rank;
    n->nodes = t->inter_size;
    n->lines = t->rank == 0 ? t->inter_size + STRANGERS : 1;
    n->line = calloc((size_t)n->lines, sizeof *n->line);
    n->peer = calloc((size_t)t->inter_size, sizeof *n->peer);
    n->view = calloc((size_t)t->size, sizeof *n->view);
    n->node_of = calloc((size_t)t->size, sizeof *n->node_of);
    if (!n->line || !n->peer || !n->view || !n->node_of) {
        return cmn_fail("out of memory");
    }
    for (int i = 0; i < n->lines; i++) {
        n->line[i].fd = -1;
    }
    return share_place(n, t);
}

/* ---- connections ---- */

static void hang_up(struct cmn_heartbeat *n, struct cmn_connection *l)
{
    if (l->node >= 0 && n->peer[l->node].line == l) {
        n->peer[l->node].line = NULL;
    }
    cmn_connection_close(l);
}

/* It has ended on the other side. A link that is cut is not the end of the processes behind it. */
static void lose(struct cmn_heartbeat *n, struct cmn_connection *l)
{
    struct peer *p = l->node >= 0 ? &n->peer[l->node] : NULL;
    int cut = errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH;

    if (p && p->line == l && !cut && !p->gone) {
        p->gone = 1;
        p->gone_for = 0;
    }
    hang_up(n, l);
}

static void send_to_all(struct cmn_heartbeat *n, const struct cmn_message *w)
{
    for (int i = 0; i < n->lines; i++) {
        if (n->line[i].node >= 0 && cmn_connection_send(&n->line[i], n->token, w)) {
            lose(n, &n->line[i]);
        }
    }
}

/* ---- what comes ---- */

static void take_views(struct cmn_heartbeat *n, const struct cmn_message *w)
{
    for (int i = 0; i < n->size && w->kind == CMN_MESSAGE_BEAT; i++) {
        if (n->node_of[i] == (int)w->node) {
            n->view[i].still = n->view[i].silent = 0;
            n->view[i].waiting = 0;
            n->view[i].state = CMN_RANK_ALIVE;
        }
    }
    for (uint32_t i = 0; i < w->views; i++) {
        const struct cmn_message_rank *v = &w->view[i];
        if (n->node_of[v->rank] == (int)w->node) {
            cmn_message_unpack(v, &n->view[v->rank]);
        }
    }
}

/* 0, or -1: this cannot be. */
static int take(struct cmn_heartbeat *n, struct cmn_connection *l, const struct cmn_message *w)
{
    struct peer *p = &n->peer[w->node];

    if ((int)w->node == n->node || (l->node >= 0 && l->node != (int)w->node)) {
        return -1;
    }
    l->node = (int)w->node;
    if (p->line && p->line != l) {
        hang_up(n, p->line); /* the node has another speaker now */
    }
    p->line = l;
    p->heard = 1;
    p->gone = 0;
    p->silent = 0;
    p->bye |= w->kind == CMN_MESSAGE_BYE;
    n->verdict |= w->kind == CMN_MESSAGE_VERDICT;
    if (n->rank == 0) {
        take_views(n, w);
    }
    return 0;
}

static void listen_to(struct cmn_heartbeat *n, struct cmn_connection *l)
{
    struct cmn_message w;
    int is = 0;

    while (l->fd >= 0 &&
           (is = cmn_connection_next(l, n->token, (uint32_t)n->nodes, n->size, &w)) > 0) {
        if (take(n, l, &w)) {
            is = CMN_LINE_STRANGE;
            break;
        }
    }
    if (is == CMN_LINE_ENDED) {
        lose(n, l);
    } else if (is == CMN_LINE_STRANGE) {
        hang_up(n, l);
    }
}

/* ---- rank 0 ---- */

static struct cmn_connection *free_line(struct cmn_heartbeat *n)
{
    for (int i = 0; i < n->lines; i++) {
        if (n->line[i].fd < 0) {
            return &n->line[i];
        }
    }
    return NULL;
}

static void accept_all(struct cmn_heartbeat *n)
{
    for (int i = 0; i < n->place.n; i++) {
        int fd;
        while ((fd = accept4(n->listener[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
            struct cmn_connection *l = free_line(n);
            if (l) {
                cmn_connection_open(l, fd, -1);
            } else {
                close(fd);
            }
        }
    }
}

static void tell_of_the_deaf(struct cmn_heartbeat *n, struct peer *p, int node, long ms)
{
    p->silent += ms; /* since the begin */
    if (p->told || p->silent < DEAF) {
        return;
    }
    p->told = 1;
    for (int i = 0; i < n->size; i++) {
        if (n->node_of[i] == node) {
            cmn_warn(
                "the watchdog of %s does not connect over TCP (a firewall?): should that host or "
                "its link fail, MPI alone may notice",
                n->view[i].host);
            return;
        }
    }
}

/* ---- other ranks ---- */

static void connect_to_rank_0(struct cmn_heartbeat *n, long ms)
{
    n->pause -= ms;
    if (n->place.n > 0 && n->pause <= 0) {
        cmn_connection_connect(n->line, &n->place.address[n->next], 0);
        n->next = (n->next + 1) % n->place.n;
        n->pause = n->next ? 0 : PAUSE;
    }
}

static void grow_older(struct cmn_heartbeat *n, long ms)
{
    for (int i = 0; i < (n->rank == 0 ? n->nodes : 1); i++) {
        struct peer *p = &n->peer[i];
        if (i != n->node && !p->heard && n->rank == 0) {
            tell_of_the_deaf(n, p, i, ms);
        } else if (p->heard) {
            p->silent += ms;
            p->gone_for += p->gone ? ms : 0;
        }
    }
}

void cmn_heartbeat_look(struct cmn_heartbeat *n, long ms, int speaks)
{
    if (n->rank == 0) {
        accept_all(n);
    } else if (!speaks || n->node == 0) {
        if (n->line->fd >= 0) {
            hang_up(n, n->line);
        }
        memset(n->peer, 0, sizeof *n->peer); /* of what it will hear it knows nothing yet */
        return;
    } else if (n->line->fd < 0) {
        connect_to_rank_0(n, ms);
    }
    for (int i = 0; i < n->lines; i++) {
        struct cmn_connection *l = &n->line[i];
        cmn_connection_complete(l, ms);
        if (l->fd >= 0 && !l->connecting) {
            listen_to(n, l);
        }
        if (l->fd >= 0 && l->node < 0 && (l->age += ms) > STRANGER) {
            hang_up(n, l);
        }
    }
    grow_older(n, ms);
}

/* ---- what is sent ---- */

void cmn_heartbeat_beat(struct cmn_heartbeat *n, const struct cmn_rank_status *view, int views)
{
    struct cmn_message w = {.kind = CMN_MESSAGE_BEAT, .node = (uint32_t)n->node};
    int at = 0;

    do {
        for (w.views = 0; at < views && w.views < CMN_MESSAGE_VIEWS && n->rank != 0; at++) {
            cmn_message_pack(&view[at], &w.view[w.views++]);
        }
        send_to_all(n, &w);
        w.kind = CMN_MESSAGE_MORE;
    } while (at < views && n->rank != 0);
}

void cmn_heartbeat_tell(struct cmn_heartbeat *n, enum cmn_message_kind kind)
{
    const struct cmn_message w = {.kind = kind, .node = (uint32_t)n->node};

    send_to_all(n, &w);
}

/* ---- what is known ---- */

int cmn_heartbeat_met(const struct cmn_heartbeat *n)
{
    for (int i = 0; i < (n->rank == 0 ? n->nodes : 1); i++) {
        if (i != n->node && !n->peer[i].heard) {
            return 0;
        }
    }
    return 1;
}

int cmn_heartbeat_diagnosed(const struct cmn_heartbeat *n)
{
    return n->verdict;
}

int cmn_heartbeat_elsewhere(const struct cmn_heartbeat *n, long limit)
{
    const struct peer *p = &n->peer[0];

    return n->rank != 0 && p->heard && !p->bye && !(p->gone && p->gone_for >= GONE) &&
           p->silent - CHANGE < limit;
}

/* Whether the host takes what is sent to it: its kernel does, when the processes are stopped. */
static int answers(const struct peer *p)
{
    long quiet = p->line ? cmn_connection_quiet(p->line) : -1;

    return quiet >= 0 && 2 * quiet < p->silent;
}

static void see(const struct peer *p, struct cmn_rank_status *v)
{
    if (!p->heard) {
        v->state = CMN_RANK_UNKNOWN;
    } else if (p->bye) {
        v->ended = 1;
    } else if (p->gone && p->gone_for >= GONE) {
        v->state = CMN_RANK_GONE;
        v->silent = LONG_MAX;
    } else if (p->silent >= 2 * CHANGE) {
        v->silent = p->silent - CHANGE;
        v->state = answers(p) ? CMN_RANK_UNHEARD : CMN_RANK_UNREACHABLE;
    }
}

void cmn_heartbeat_see(const struct cmn_heartbeat *n, struct cmn_rank_status *seen)
{
    static const struct peer nobody;

    for (int i = 0; i < n->size; i++) {
        if (n->node_of[i] != n->node) {
            seen[i] = n->view[i];
            see(n->rank == 0 || n->node_of[i] == 0 ? &n->peer[n->node_of[i]] : &nobody, &seen[i]);
        }
    }
}
