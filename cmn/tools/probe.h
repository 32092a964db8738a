/* What the ranks try with each other. All collective and blocking; 0, or -1 with a reason. */
#ifndef CMN_PROBE_H
#define CMN_PROBE_H

#include "trainer/session.h"
#include "tools/diagnosis.h"

/* Every rank sends to the next one and checks what it gets; then all sum with MPI_Allreduce and check. *ring and *sum
 * become the numbers of ranks that got wrong values. */
int cmn_probe_values(const struct cmn_topology *t, int *ring, int *sum);

/* Latency and bandwidth between rank i and rank i + 1, one pair after the other, while the other ranks sleep.
 * Above 16 ranks only the first pair of each node and the pairs that lie on two nodes. *pair, of *pairs, is the
 * caller's to free; on rank 0 it is complete. */
int cmn_probe_pairs(const struct cmn_topology *t, struct cmn_pair **pair, int *pairs);

/* Opens, runs, checks and closes every communicator. *trial, of *trials, is the caller's to free; the same on all
 * ranks. */
int cmn_probe_communicators(const struct cmn_session *s, struct cmn_trial **trial, int *trials);

#endif
