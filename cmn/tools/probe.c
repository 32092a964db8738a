#include "tools/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/call.h"
#include "tools/candidate.h"

enum { VALUES = 100003, TRIED = 10007 };
enum { BYTES = 4 << 20, ROUNDS = 8, PINGS = 200, ALL_PAIRS = 16 };
enum { TAG_RING = 1, TAG_PING, TAG_PAIR };

/* The number of ranks where `wrong` is not 0. */
static int count_ranks(const struct cmn_topology *t, int wrong)
{
    int ranks, mine = wrong != 0;

    MPI_CALL(MPI_Allreduce(&mine, &ranks, 1, MPI_INT, MPI_SUM, t->world));
    return ranks;
}

void cmn_probe_values(const struct cmn_topology *t, int *ring, int *sum)
{
    int next = (t->rank + 1) % t->size, before = (t->rank + t->size - 1) % t->size;
    float *out = cmn_malloc(VALUES, sizeof *out), *in = cmn_calloc(VALUES, sizeof *in);
    float ranks = (float)t->size * (float)(t->size + 1) / 2;
    int wrong = 0, wrong_sum = 0;

    for (int i = 0; i < VALUES; i++) {
        out[i] = (float)((t->rank + 1) * (i % 61));
    }
    MPI_CALL(MPI_Sendrecv(out, VALUES, MPI_FLOAT, next, TAG_RING, in, VALUES, MPI_FLOAT, before,
                          TAG_RING, t->world, MPI_STATUS_IGNORE));
    for (int i = 0; i < VALUES; i++) {
        wrong |= in[i] != (float)((before + 1) * (i % 61));
    }
    MPI_CALL(MPI_Allreduce(out, in, VALUES, MPI_FLOAT, MPI_SUM, t->world));
    for (int i = 0; i < VALUES; i++) {
        wrong_sum |= in[i] != ranks * (float)(i % 61);
    }
    *ring = count_ranks(t, wrong);
    *sum = count_ranks(t, wrong_sum);
    free(out);
    free(in);
}

/* ---- pairs ---- */

/* A barrier in which the waiting ranks sleep, so that those that measure have the cores. */
static void sleeping_barrier(const struct cmn_topology *t)
{
    const struct timespec nap = {0, 500000};
    MPI_Request request;
    int done = 0;

    MPI_CALL(MPI_Ibarrier(t->world, &request));
    while (!done) {
        MPI_CALL(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (!done) {
            nanosleep(&nap, NULL);
        }
    }
}

/* A message there and back. */
static void bounce(const struct cmn_topology *t, int peer, int first, char *buffer, int bytes)
{
    for (int half = 0; half < 2; half++) {
        if (half == !first) {
            MPI_CALL(MPI_Send(buffer, bytes, MPI_BYTE, peer, TAG_PING, t->world));
        } else {
            MPI_CALL(
                MPI_Recv(buffer, bytes, MPI_BYTE, peer, TAG_PING, t->world, MPI_STATUS_IGNORE));
        }
    }
}

/* Seconds of one way at best: what the two can do, whatever else the machines did meanwhile. */
static double one_way(const struct cmn_topology *t, int peer, int first, char *buffer, int bytes,
                      int times)
{
    double best = 0;

    for (int i = -1; i < times; i++) { /* the first one connects the two */
        double begin = cmn_clock(), took;
        bounce(t, peer, first, buffer, bytes);
        took = (cmn_clock() - begin) / 2;
        best = i <= 0 || took < best ? took : best;
    }
    return best;
}

static void measure(const struct cmn_topology *t, struct cmn_pair *p, char *buffer)
{
    int first = t->rank == p->a;
    int peer = first ? p->b : p->a;

    if (t->rank == p->a || t->rank == p->b) {
        p->microseconds = one_way(t, peer, first, buffer, 4, PINGS) * 1e6;
        p->gigabytes = BYTES / one_way(t, peer, first, buffer, BYTES, ROUNDS) / 1e9;
    }
}

static int choose_pairs(const struct cmn_topology *t, struct cmn_pair *pair)
{
    int *node = cmn_calloc((size_t)t->size, sizeof *node);
    int n = 0;

    MPI_CALL(MPI_Allgather(&t->inter_rank, 1, MPI_INT, node, 1, MPI_INT, t->world));
    for (int i = 0; i + 1 < t->size; i++) {
        int between_nodes = node[i] != node[i + 1];
        int first_of_node = i == 0 || node[i] != node[i - 1];
        if (t->size <= ALL_PAIRS || between_nodes || first_of_node) {
            pair[n++] = (struct cmn_pair){.a = i, .b = i + 1};
        }
    }
    free(node);
    return n;
}

/* The lower rank of a pair has its figures; rank 0 prints them. */
static void collect(const struct cmn_topology *t, struct cmn_pair *p)
{
    if (p->a == 0) {
        return;
    }
    if (t->rank == p->a) {
        cmn_mpi_send(p, sizeof *p, 0, TAG_PAIR, t->world);
    }
    if (t->rank == 0) {
        cmn_mpi_recv(p, sizeof *p, p->a, TAG_PAIR, t->world);
    }
}

struct cmn_pair *cmn_probe_pairs(const struct cmn_topology *t, int *pairs)
{
    struct cmn_pair *p = cmn_calloc((size_t)t->size, sizeof *p);
    char *buffer = cmn_calloc(1, BYTES);

    *pairs = choose_pairs(t, p);
    for (int i = 0; i < *pairs; i++) {
        cmn_status_wait("an exchange between neighbours");
        measure(t, &p[i], buffer);
        sleeping_barrier(t);
        collect(t, &p[i]);
    }
    free(buffer);
    return p;
}

/* ---- communicators ---- */

static void try_one(const struct cmn_session *s, const char *name, struct cmn_trial *trial)
{
    struct cmn_candidate k;
    int bad = -1;

    trial->name = name;
    trial->result = CMN_WORKS;
    cmn_candidate_open(&k, name, s, TRIED);
    if (k.refusal[0]) {
        trial->result =
            cmn_communicator_refuses(k.c, &s->topology, &s->options) ? CMN_REFUSES : CMN_FAILS;
        snprintf(trial->why, sizeof trial->why, "%s", k.refusal);
    } else {
        cmn_candidate_fill(&k, TRIED);
        cmn_candidate_run(&k, TRIED);
        bad = cmn_mpi_first_bad(cmn_candidate_wrong(&k, TRIED) > 0, s->topology.world);
    }
    if (bad >= 0) {
        trial->result = CMN_FAILS;
        snprintf(trial->why, sizeof trial->why, "wrong sums on rank %d", bad);
    }
    cmn_candidate_close(&k);
}

struct cmn_trial *cmn_probe_communicators(const struct cmn_session *s, int *trials)
{
    struct cmn_trial *trial;
    int n = 0;

    while (cmn_communicator_at(n)) {
        n++;
    }
    trial = cmn_calloc((size_t)n, sizeof *trial);
    for (int i = 0; i < n; i++) {
        cmn_status_wait("an exchange of every communicator");
        try_one(s, cmn_communicator_at(i)->name, &trial[i]);
    }
    *trials = n;
    return trial;
}
