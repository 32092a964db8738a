#include "tools/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/call.h"
#include "tools/candidate.h"

/* ---- pairs ---- */

/* BYTES, ROUNDS: messages for the bandwidth; PINGS: messages for the latency; ALL_PAIRS: the most
 * ranks of which all pairs are measured. */
enum { BYTES = 4 << 20, ROUNDS = 8, PINGS = 200, ALL_PAIRS = 16, TAG = 1 };

/* A barrier in which the waiting ranks sleep, so that the cores are free for the measuring
 * ranks. */
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

/* Returns the shortest one-way time in seconds of all rounds. The shortest one is what the pair can
 * do; other work on the machines lengthens only the others. */
static double one_way(const struct cmn_topology *t, const struct cmn_pair *p, char *buffer,
                      int bytes, int times)
{
    int sends = t->rank == p->a, peer = sends ? p->b : p->a;
    double best = 0;

    for (int i = -1; i < times; i++) { /* the first round opens the connection and does not count */
        double begin = cmn_clock(), took;
        for (int half = 0; half < 2; half++, sends = !sends) {
            if (sends) {
                MPI_CALL(MPI_Send(buffer, bytes, MPI_BYTE, peer, TAG, t->world));
            } else {
                MPI_CALL(MPI_Recv(buffer, bytes, MPI_BYTE, peer, TAG, t->world, MPI_STATUS_IGNORE));
            }
        }
        took = (cmn_clock() - begin) / 2;
        best = i <= 0 || took < best ? took : best;
    }
    return best;
}

static int choose_pairs(const struct cmn_topology *t, struct cmn_pair *pair)
{
    int *node = cmn_calloc((size_t)t->size, sizeof *node);
    int n = 0;

    MPI_CALL(MPI_Allgather(&t->inter_rank, 1, MPI_INT, node, 1, MPI_INT, t->world));
    for (int i = 0; i + 1 < t->size; i++) {
        int first_of_node = i == 0 || node[i] != node[i - 1];
        if (t->size <= ALL_PAIRS || node[i] != node[i + 1] || first_of_node) {
            pair[n++] = (struct cmn_pair){.a = i, .b = i + 1};
        }
    }
    free(node);
    return n;
}

struct cmn_pair *cmn_probe_pairs(const struct cmn_topology *t, int *pairs)
{
    struct cmn_pair *pair = cmn_calloc((size_t)t->size, sizeof *pair);
    char *buffer = cmn_calloc(1, BYTES);
    double figures[2];

    *pairs = choose_pairs(t, pair);
    for (int i = 0; i < *pairs; i++) {
        struct cmn_pair *p = &pair[i];
        cmn_status_wait("an exchange between neighbours");
        figures[0] = figures[1] = 0;
        if (t->rank == p->a || t->rank == p->b) {
            figures[0] = one_way(t, p, buffer, 4, PINGS) * 1e6;
            figures[1] = BYTES / one_way(t, p, buffer, BYTES, ROUNDS) / 1e9;
        }
        sleeping_barrier(t);
        MPI_CALL(MPI_Bcast(figures, 2, MPI_DOUBLE, p->a, t->world));
        p->microseconds = figures[0];
        p->gigabytes = figures[1];
    }
    free(buffer);
    return pair;
}

/* ---- candidates ---- */

enum { TRIED = 10007 }; /* floats */

static void try_one(const struct cmn_session *s, struct cmn_trial *trial)
{
    struct cmn_candidate k;
    int bad = -1;

    cmn_status_wait("an exchange of every communicator");
    cmn_candidate_open(&k, trial->name, s, TRIED);
    if (!k.refusal[0]) {
        bad = cmn_mpi_first_bad(cmn_candidate_verify(&k, TRIED) > 0, s->topology.world);
    }
    trial->result = k.failed || bad >= 0 ? CMN_FAILS : k.refusal[0] ? CMN_REFUSES : CMN_WORKS;
    if (bad >= 0) {
        snprintf(trial->why, sizeof trial->why, "wrong sums on rank %d", bad);
    } else {
        snprintf(trial->why, sizeof trial->why, "%s", k.refusal);
    }
    cmn_candidate_close(&k);
}

struct cmn_trial *cmn_probe_candidates(const struct cmn_session *s, int *trials)
{
    struct cmn_trial *trial = cmn_calloc(CMN_CANDIDATES, sizeof *trial);
    int n = 0;

    while ((trial[n].name = cmn_candidate_name(n)) && strcmp(trial[n].name, CMN_MEMORY)) {
        try_one(s, &trial[n++]);
    }
    *trials = n;
    return trial;
}
