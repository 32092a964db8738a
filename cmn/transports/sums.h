/* Sums over a group in main memory by messages, in the background: by the algorithm that suits
 * group and length (schedule.h), or that CMN_DEBUG_EXCHANGE names.
 *
 * Each gives the same bits on all ranks, and the same in every run. Pairwise adds in the order of
 * the ranks, whatever the length, or along a tree (sum_tree.h); halving and the ring add in the
 * order of their rounds. With a 16-bit dtype a rank casts each float that it sends, and the owner
 * of a block its sum, with error feedback; additions are those of 32 bits. */
#ifndef CMN_SUMS_H
#define CMN_SUMS_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"
#include "transports/schedule.h"
#include "transports/sum_tree.h"

struct cmn_sums;

/* Local. comm and o must outlive it. A rank that waits for o->timeout without any message ends the
 * job and names the missing rank; `waits`: it waits without a limit. */
struct cmn_sums *cmn_sums_open(MPI_Comm comm, const struct cmn_options *o, int waits);

/* One sum, for all ranks. */
struct cmn_sum {
    float *data;          /* n floats, not to be touched until the sum has ended */
    size_t n;             /* may be 0 and may exceed INT_MAX */
    enum cmn_dtype dtype; /* what travels */
    /* With 16 bits, or NULL: n floats of error feedback. They are added before a cast, and hold
     * its rounding error after. */
    float *error;
    /* With cmn_exact, or NULL; 32 bits alone. A rank of the sums is a node of the tree, and has as
     * many addends as the tree says: the n floats behind `at` of each. The sum comes to `data`. */
    const struct cmn_sum_tree *tree;
    size_t at;
};

/* Collective in order, not blocking: the job is copied. */
void cmn_sums_begin(struct cmn_sums *s, const struct cmn_sum *sum);

/* Local. Advances all jobs and returns how many have ended since open, in order. Returns as soon as
 * `until` have: 0 does not block. */
long cmn_sums_progress(struct cmn_sums *s, long until);

/* Collective, blocking: one sum of 32 bits, begun and ended. No other is in flight. */
void cmn_sums_run(struct cmn_sums *s, float *data, size_t n);

/* Local. Bytes of gradients given to MPI since open. */
unsigned long long cmn_sums_sent(const struct cmn_sums *s);

/* Local. Ends the job: names the rank that s has waited for so many seconds. For callers that poll
 * with progress(s, 0). */
_Noreturn void cmn_sums_stalled(const struct cmn_sums *s, long seconds);

/* Local. NULL is allowed. */
void cmn_sums_close(struct cmn_sums *s);

#endif
