#include "mpi/clock_offset.h"

#include <string.h>

enum { TRIES = 40, TAG = 1 };

int cmn_clock_offset_open(struct cmn_clock_offset *c, const struct cmn_topology *t,
                          double (*clock)(void))
{
    memset(c, 0, sizeof *c);
    c->topology = t;
    c->clock = clock;
    c->leaders = MPI_COMM_NULL;
    if (cmn_mpi_check(MPI_Comm_split(t->world, t->intra_rank == 0 ? 0 : MPI_UNDEFINED,
                                     t->inter_rank, &c->leaders),
                      "MPI_Comm_split")) {
        return -1;
    }
    if (c->leaders != MPI_COMM_NULL) {
        MPI_Comm_set_errhandler(c->leaders, MPI_ERRORS_RETURN);
    }
    return 0;
}

void cmn_clock_offset_close(struct cmn_clock_offset *c)
{
    if (c->topology && c->leaders != MPI_COMM_NULL) {
        MPI_Comm_free(&c->leaders);
    }
    memset(c, 0, sizeof *c);
}

static int receive(const struct cmn_clock_offset *c, double *time, int from)
{
    return cmn_mpi_check(MPI_Recv(time, 1, MPI_DOUBLE, from, TAG, c->leaders, MPI_STATUS_IGNORE),
                         "MPI_Recv");
}

static int send(const struct cmn_clock_offset *c, double time, int to)
{
    return cmn_mpi_check(MPI_Send(&time, 1, MPI_DOUBLE, to, TAG, c->leaders), "MPI_Send");
}

/* Of rank 0: tells its time, first to one node and then to the next, so that they are not in each other's way. */
static int answer(const struct cmn_clock_offset *c)
{
    double theirs;

    for (int node = 1; node < c->topology->inter_size; node++) {
        for (int i = 0; i < TRIES; i++) {
            if (receive(c, &theirs, node) || send(c, c->clock(), node)) {
                return -1;
            }
        }
    }
    return 0;
}

/* Of the first rank of another node. The first try waits until it is this node's turn, and is slow. */
static int ask(const struct cmn_clock_offset *c, struct cmn_clock_mark *mark)
{
    for (int i = 0; i < TRIES; i++) {
        double begin = c->clock(), end, time = 0;
        if (send(c, begin, 0) || receive(c, &time, 0)) {
            return -1;
        }
        end = c->clock();
        if (i == 0 || (end - begin) / 2 < mark->error) {
            mark->at = (begin + end) / 2;
            mark->ahead = mark->at - time;
            mark->error = (end - begin) / 2;
        }
    }
    return 0;
}

int cmn_clock_offset_measure(struct cmn_clock_offset *c)
{
    const struct cmn_topology *t = c->topology;
    struct cmn_clock_mark mark = {.at = c->clock()};

    if (t->inter_rank == 0) { /* its clock is rank 0's */
        if (t->rank == 0 && answer(c)) {
            return -1;
        }
    } else if (t->intra_rank == 0 && ask(c, &mark)) {
        return -1;
    }
    if (cmn_mpi_check(MPI_Bcast(&mark, sizeof mark, MPI_BYTE, 0, t->intra), "MPI_Bcast")) {
        return -1;
    }
    cmn_clock_offset_add(c, &mark);
    return 0;
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
