/* Probes: the ranks exchange messages and test each candidate. All collective and blocking; a
 * failure of MPI ends the job. */
#ifndef CMN_PROBE_H
#define CMN_PROBE_H

#include "tools/diagnosis.h"
#include "trainer/session.h"

/* Measures latency and bandwidth between ranks i and i + 1, one pair after the other, while the
 * other ranks sleep. With more than 16 ranks it measures only the first pair of each node and the
 * pairs between two nodes. Returns an array of *pairs results, which the caller frees. */
struct cmn_pair *cmn_probe_pairs(const struct cmn_topology *t, int *pairs);

/* Opens, verifies and closes MPI_Allreduce and every communicator. Returns an array of *trials
 * results, the same on all ranks, which the caller frees. */
struct cmn_trial *cmn_probe_candidates(const struct cmn_session *s, int *trials);

#endif
