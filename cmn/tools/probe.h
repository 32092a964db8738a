/* What the ranks try with each other. All collective and blocking; a failure of MPI ends the
 * job. */
#ifndef CMN_PROBE_H
#define CMN_PROBE_H

#include "tools/diagnosis.h"
#include "trainer/session.h"

/* Measures latency and bandwidth between rank i and rank i + 1, one pair after the other, while
 * the other ranks sleep. Above 16 ranks only the first pair of each node and the pairs between two
 * nodes. Returns *pairs of them; the caller frees. */
struct cmn_pair *cmn_probe_pairs(const struct cmn_topology *t, int *pairs);

/* Opens, verifies and closes MPI_Allreduce and every communicator. Returns *trials of them, the same
 * on all ranks; the caller frees. */
struct cmn_trial *cmn_probe_candidates(const struct cmn_session *s, int *trials);

#endif
