/* Sums over a group, in main memory, by messages, in the background. The algorithm is the one that
 * suits group and length (schedule.h), or the one that CMN_DEBUG_EXCHANGE names.
 *
 * Each algorithm gives the same bits on all ranks and in every run. Pairwise adds in the order of
 * the ranks for any length, or along a tree (sum_tree.h); halving and the ring add in the order of
 * their rounds. With a 16-bit type each rank casts the floats that it sends, and the owner of a
 * block casts its sum, with error feedback; additions use 32 bits. */
#ifndef CMN_SUMS_H
#define CMN_SUMS_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"
#include "transports/schedule.h"
#include "transports/sum_tree.h"

struct cmn_sums;

/* Local. comm and o must outlive it. A rank that waits for o->timeout seconds without any message
 * ends the job and names the missing rank; with `waits` it waits without a limit. */
struct cmn_sums *cmn_sums_open(MPI_Comm comm, const struct cmn_options *o, int waits);

/* One sum over all ranks of comm. */
struct cmn_sum {
    float *data;          /* n floats, which belong to the sum until it has ended */
    size_t n;             /* floats; may be 0 and may exceed INT_MAX */
    enum cmn_dtype dtype; /* the type that is sent */
    /* n floats of error feedback for a 16-bit type, or NULL: each is added before a cast and then
     * replaced by its rounding error. */
    float *error;
    /* With cmn_exact, or NULL; only with 32 bits. A rank of comm is a node of the tree and has as
     * many addends as the tree says: the n floats from offset `at` of each. The sum is written to
     * `data`. */
    const struct cmn_sum_tree *tree;
    size_t at;
};

/* Collective, in the same order on all ranks, not blocking. Begins a sum; *sum is copied. */
void cmn_sums_begin(struct cmn_sums *s, const struct cmn_sum *sum);

/* Local. Advances all sums and returns how many have ended since open, in order. Blocks until
 * `until` have ended; with until = 0 it does not block. */
long cmn_sums_progress(struct cmn_sums *s, long until);

/* Collective, blocking. Does one sum of 32 bits from begin to end; no other may be in flight. */
void cmn_sums_run(struct cmn_sums *s, float *data, size_t n);

/* Local. Returns the bytes of gradients given to MPI since open. */
unsigned long long cmn_sums_sent(const struct cmn_sums *s);

/* Local. Ends the job with the name of the rank that s has waited for, for that many seconds. For
 * callers that poll with progress(s, 0). */
_Noreturn void cmn_sums_stalled(const struct cmn_sums *s, long seconds);

/* Local. NULL is allowed. */
void cmn_sums_close(struct cmn_sums *s);

#endif
