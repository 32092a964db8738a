/* Sums over a group in main memory by messages between each pair of ranks, in the background.
 *
 * Every rank sends each slice to its owner, who adds what all ranks have of it in the order of
 * the ranks (reduce-scatter); then each owner sends its slice to the others (allgather). Slices
 * travel in chunks, in many pipeline steps at once: while one chunk is added others travel, and
 * sums return while other chunks arrive, so that a link is busy both ways all the time. Receive
 * buffers are kept from call to call. The order of additions does not depend on how slices are
 * cut into chunks, so neither do the sums' bits.
 * With a 16-bit dtype a chunk is cast to 16 bits for each of its two ways; additions are those of
 * 32 bits.
 * Bytes sent per rank of k, n floats in k slices: (k-1)/k * 4n for each half, with 16 bits
 * (k-1)/k * 2n. */
#ifndef CMN_PAIRWISE_H
#define CMN_PAIRWISE_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"

struct cmn_pairwise;

/* What a job does, or-ed together. */
enum {
    CMN_REDUCE_SCATTER = 1, /* each owner gets the sum of its slice */
    CMN_ALLGATHER = 2,      /* every rank gets the slices of all owners */
    CMN_GATHER = 4,         /* rank 0 alone gets them */
};

/* Local. comm must outlive it. A rank that waits so many seconds without any message ends the job
 * and names the missing rank of MPI_COMM_WORLD; 0: it waits without a limit. */
struct cmn_pairwise *cmn_pairwise_open(MPI_Comm comm, long timeout);

/* One sum. */
struct cmn_pairwise_job {
    float *data; /* n floats, not to be touched until the job has ended */
    size_t n;    /* may be 0 and may exceed INT_MAX */
    int slices, what;
    enum cmn_dtype
        dtype; /* what travels; with 16 bits `what` is CMN_REDUCE_SCATTER | CMN_ALLGATHER */
    /* With 16 bits, or NULL: n floats of error feedback. They are added before a cast, and hold
     * its rounding error after. */
    float *error;
};

/* Collective in order, not blocking: the job is copied and done after those before it. Slices are
 * those of cmn_slice(). What a rank was not to get becomes undefined, but a rank's own slice
 * stays. */
void cmn_pairwise_begin(struct cmn_pairwise *p, const struct cmn_pairwise_job *job);

/* Local. Advances all jobs and returns how many have ended since open. Returns as soon as `until`
 * have: 0 does not block. */
long cmn_pairwise_progress(struct cmn_pairwise *p, long until);

/* Collective, blocking: one job of 32 bits, begun and ended. No other is in flight. */
void cmn_pairwise_run(struct cmn_pairwise *p, float *data, size_t n, int slices, int what);

/* Local. Bytes given to MPI since open. */
unsigned long long cmn_pairwise_sent(const struct cmn_pairwise *p);

/* Local. Ends the job: names the rank that p has waited for so many seconds. For callers that
 * poll with progress(p, 0). */
_Noreturn void cmn_pairwise_stalled(const struct cmn_pairwise *p, long seconds);

/* Local. Ends the job: rank `from` of comm has sent nothing for so many seconds. */
_Noreturn void cmn_nothing_from(MPI_Comm comm, int from, long seconds);

/* Local. NULL is allowed. */
void cmn_pairwise_close(struct cmn_pairwise *p);

#endif
