#include "tools/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "tools/benchmark.h"
#include "base/status.h"

enum { VALUES = 100003, TRIED = 10007 };
enum { BYTES = 4 << 20, ROUNDS = 8, PINGS = 200, ALL_PAIRS = 16 };

static int add_up(const struct cmn_topology *t, int wrong, int *ranks)
{
    wrong = wrong != 0;
    return cmn_mpi_check(MPI_Allreduce(&wrong, ranks, 1, MPI_INT, MPI_SUM, t->world),
                         "MPI_Allreduce");
}

int cmn_probe_values(const struct cmn_topology *t, int *ring, int *sum)
{
    int next = (t->rank + 1) % t->size, before = (t->rank + t->size - 1) % t->size;
    float *out = malloc(VALUES * sizeof *out), *in = calloc(VALUES, sizeof *in);
    float ranks = (float)t->size * (float)(t->size + 1) / 2;
    int wrong = 0, wrong_sum = 0, result = -1;

    if (!out || !in) {
        cmn_fail("out of memory");
        goto done;
    }
    for (int i = 0; i < VALUES; i++) {
        out[i] = (float)((t->rank + 1) * (i % 61));
    }
    if (cmn_mpi_check(MPI_Sendrecv(out, VALUES, MPI_FLOAT, next, 1, in, VALUES, MPI_FLOAT, before,
                                   1, t->world, MPI_STATUS_IGNORE),
                      "MPI_Sendrecv with the neighbours")) {
        goto done;
    }
    for (int i = 0; i < VALUES; i++) {
        wrong |= in[i] != (float)((before + 1) * (i % 61));
    }
    if (cmn_mpi_check(MPI_Allreduce(out, in, VALUES, MPI_FLOAT, MPI_SUM, t->world),
                      "MPI_Allreduce")) {
        goto done;
    }
    for (int i = 0; i < VALUES; i++) {
        wrong_sum |= in[i] != ranks * (float)(i % 61);
    }
    result = add_up(t, wrong, ring) || add_up(t, wrong_sum, sum) ? -1 : 0;
done:
    free(out);
    free(in);
    return result;
}

/* ---- pairs ---- */

/* A barrier in which the waiting ranks sleep: they must not take the cores of those that measure. */
static int quiet_barrier(const struct cmn_topology *t)
{
    const struct timespec nap = {0, 500000};
    MPI_Request request;
    int done = 0;

    if (cmn_mpi_check(MPI_Ibarrier(t->world, &request), "MPI_Ibarrier")) {
        return -1;
    }
    while (!done) {
        if (cmn_mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Ibarrier")) {
            return -1;
        }
        if (!done) {
            nanosleep(&nap, NULL);
        }
    }
    return 0;
}

static int bounce(const struct cmn_topology *t, int peer, int first, char *buffer, int bytes)
{
    int code = MPI_SUCCESS;

    for (int half = 0; half < 2 && code == MPI_SUCCESS; half++) {
        code = half == !first
                   ? MPI_Send(buffer, bytes, MPI_BYTE, peer, 2, t->world)
                   : MPI_Recv(buffer, bytes, MPI_BYTE, peer, 2, t->world, MPI_STATUS_IGNORE);
    }
    return cmn_mpi_check(code, "exchange with a neighbour");
}

/* Seconds of one way at best: what the two can do, whatever else the machines did meanwhile. */
static int one_way(const struct cmn_topology *t, int peer, int first, char *buffer, int bytes,
                   int times, double *seconds)
{
    for (int i = -1; i < times; i++) { /* the first one connects the two */
        double begin = cmn_clock(), took;
        if (bounce(t, peer, first, buffer, bytes)) {
            return -1;
        }
        took = (cmn_clock() - begin) / 2;
        *seconds = i <= 0 || took < *seconds ? took : *seconds;
    }
    return 0;
}

static int measure(const struct cmn_topology *t, struct cmn_pair *p, char *buffer)
{
    int first = t->rank == p->a;
    int peer = first ? p->b : p->a;
    double latency, seconds;

    if (t->rank != p->a && t->rank != p->b) {
        return 0;
    }
    if (one_way(t, peer, first, buffer, 4, PINGS, &latency) ||
        one_way(t, peer, first, buffer, BYTES, ROUNDS, &seconds)) {
        return cmn_fail_in("between ranks %d and %d", p->a, p->b);
    }
    p->microseconds = latency * 1e6;
    p->gigabytes = BYTES / seconds / 1e9;
    return 0;
}

/* Rank i's node, of all ranks. */
static int *nodes(const struct cmn_topology *t)
{
    int *node = calloc((size_t)t->size, sizeof *node);

    if (!node) {
        cmn_fail("out of memory");
        return NULL;
    }
    if (cmn_mpi_check(MPI_Allgather(&t->inter_rank, 1, MPI_INT, node, 1, MPI_INT, t->world),
                      "MPI_Allgather")) {
        free(node);
        return NULL;
    }
    return node;
}

static int choose_pairs(const struct cmn_topology *t, struct cmn_pair *pair)
{
    int *node = nodes(t);
    int n = 0;

    if (!node) {
        return -1;
    }
    for (int i = 0; i + 1 < t->size; i++) {
        int crosses = node[i] != node[i + 1];
        int opens = i == 0 || node[i] != node[i - 1];
        if (t->size <= ALL_PAIRS || crosses || opens) {
            pair[n++] = (struct cmn_pair){.a = i, .b = i + 1};
        }
    }
    free(node);
    return n;
}

/* The lower rank of a pair has its figures; rank 0 prints them. */
static int collect(const struct cmn_topology *t, struct cmn_pair *p)
{
    if (p->a == 0) {
        return 0;
    }
    if (t->rank == p->a) {
        return cmn_mpi_check(MPI_Send(p, sizeof *p, MPI_BYTE, 0, 3, t->world), "MPI_Send");
    }
    if (t->rank == 0) {
        return cmn_mpi_check(MPI_Recv(p, sizeof *p, MPI_BYTE, p->a, 3, t->world, MPI_STATUS_IGNORE),
                             "MPI_Recv");
    }
    return 0;
}

int cmn_probe_pairs(const struct cmn_topology *t, struct cmn_pair **pair, int *pairs)
{
    struct cmn_pair *p = calloc((size_t)t->size, sizeof *p);
    char *buffer = calloc(1, BYTES);
    int result = 0;

    *pair = p;
    *pairs = 0;
    if (!p || !buffer) {
        free(buffer);
        return cmn_fail("out of memory");
    }
    result = *pairs = choose_pairs(t, p);
    for (int i = 0; i < *pairs && result >= 0; i++) {
        cmn_status_wait("an exchange between neighbours");
        result = measure(t, &p[i], buffer) || quiet_barrier(t) || collect(t, &p[i]) ? -1 : 0;
    }
    free(buffer);
    return result < 0 ? -1 : 0;
}

/* ---- communicators ---- */

static int try_one(const struct cmn_session *s, const char *name, struct cmn_trial *trial)
{
    struct cmn_benchmark k;
    int bad = -1;
    long wrong;

    trial->name = name;
    trial->result = CMN_WORKS;
    if (cmn_benchmark_open(&k, name, s, TRIED)) {
        return -1;
    }
    if (k.out[0]) {
        trial->result =
            cmn_communicator_refuses(k.c, &s->topology, &s->options) ? CMN_REFUSES : CMN_FAILS;
        snprintf(trial->why, sizeof trial->why, "%s", k.out);
    } else {
        if (cmn_benchmark_fill(&k, TRIED) || cmn_benchmark_run(&k, TRIED) ||
            cmn_benchmark_wrong(&k, TRIED, &wrong)) {
            return -1;
        }
        bad = cmn_mpi_first_bad(wrong > 0, s->topology.world);
    }
    if (bad >= 0) {
        trial->result = CMN_FAILS;
        snprintf(trial->why, sizeof trial->why, "wrong sums on rank %d", bad);
    }
    cmn_benchmark_close(&k);
    return 0;
}

int cmn_probe_communicators(const struct cmn_session *s, struct cmn_trial **trial, int *trials)
{
    int n = 0;

    while (cmn_communicator_at(n)) {
        n++;
    }
    *trials = n;
    *trial = calloc((size_t)n, sizeof **trial);
    if (!*trial) {
        return cmn_fail("out of memory");
    }
    for (int i = 0; i < n; i++) {
        cmn_status_wait("an exchange of every communicator");
        if (try_one(s, cmn_communicator_at(i)->name, &(*trial)[i])) {
            return -1;
        }
    }
    return 0;
}
