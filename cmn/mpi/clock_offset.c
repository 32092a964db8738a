#include "mpi/clock_offset.h"

#include <string.h>

/* TAG: no other messages in `inter` have it. */
enum { TRIES = 40, TAG = 30000 };

/* Seconds. On busy nodes more attempts follow the first TRIES, until one is as good as good_error
 * or `patience` is over. */
static const double good_error = 0.0005, patience = 0.5, no_more = -1;

void cmn_clock_offset_open(struct cmn_clock_offset *c, const struct cmn_topology *t,
                           double (*clock)(void))
{
    memset(c, 0, sizeof *c);
    c->topology = t;
    c->clock = clock;
}

/* The first ranks of the nodes are neighbours in `inter`, in the order of the nodes. */
static double receive(const struct cmn_clock_offset *c, int from)
{
    double time = 0;

    MPI_CALL(MPI_Recv(&time, 1, MPI_DOUBLE, from, TAG, c->topology->inter, MPI_STATUS_IGNORE));
    return time;
}

static void send(const struct cmn_clock_offset *c, double time, int to)
{
    MPI_CALL(MPI_Send(&time, 1, MPI_DOUBLE, to, TAG, c->topology->inter));
}

/* Runs on rank 0. Answers one node after the other, so that the nodes do not disturb each other. */
static void answer(const struct cmn_clock_offset *c)
{
    for (int node = 1; node < c->topology->inter_size; node++) {
        while (receive(c, node) != no_more) {
            send(c, c->clock(), node);
        }
    }
}

/* Runs on the first rank of each other node. The first attempt waits until it is this node's turn,
 * and so is slow. */
static void ask(const struct cmn_clock_offset *c, struct cmn_clock_mark *mark)
{
    double end = 0, tried = 0;

    for (int i = 0; i < TRIES || (mark->error > good_error && end - tried < patience); i++) {
        double begin = c->clock(), time;
        send(c, 0, 0);
        time = receive(c, 0);
        end = c->clock();
        if (i < TRIES) {
            tried = end;
        }
        if (i == 0 || (end - begin) / 2 < mark->error) {
            mark->at = (begin + end) / 2;
            mark->ahead = mark->at - time;
            mark->error = (end - begin) / 2;
        }
    }
    send(c, no_more, 0);
}

void cmn_clock_offset_measure(struct cmn_clock_offset *c)
{
    const struct cmn_topology *t = c->topology;
    struct cmn_clock_mark mark = {.at = c->clock()};

    if (t->rank == 0) {
        answer(c);
    } else if (t->inter_rank != 0 && t->intra_rank == 0) {
        /* The ranks of node 0 share rank 0's clock, and measure nothing. */
        ask(c, &mark);
    }
    MPI_CALL(MPI_Bcast(&mark, sizeof mark, MPI_BYTE, 0, t->intra));
    cmn_clock_offset_add(c, &mark);
}

void cmn_clock_offset_add(struct cmn_clock_offset *c, const struct cmn_clock_mark *mark)
{
    if (c->marks == CMN_CLOCK_MARKS) {
        memmove(&c->mark[1], &c->mark[2], (CMN_CLOCK_MARKS - 2) * sizeof c->mark[0]);
        c->marks--;
    }
    c->mark[c->marks++] = *mark;
}

double cmn_clock_offset_align(const struct cmn_clock_offset *c, double time)
{
    const struct cmn_clock_mark *a, *b;
    int i = 1;

    if (c->marks == 0) {
        return time;
    }
    if (time <= c->mark[0].at) {
        return time - c->mark[0].ahead;
    }
    while (i < c->marks && c->mark[i].at < time) {
        i++;
    }
    a = &c->mark[i - 1];
    if (i == c->marks || c->mark[i].at <= a->at) {
        return time - a->ahead;
    }
    b = &c->mark[i];
    return time - a->ahead - (b->ahead - a->ahead) * (time - a->at) / (b->at - a->at);
}
