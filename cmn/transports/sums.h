/* Sums over a group in main memory by messages, in the background: by the algorithm that
 * cmn_exchange names, or, with auto, the fastest for each length by a model of the network
 * (schedule.h).
 *
 * pairwise (pairwise.h) adds in the order of the ranks; halving and ring (rounds.h) in the order
 * of their rounds; mpi is MPI_Iallreduce, which chooses for itself. Each gives the same bits on
 * all ranks, and the same in every run; but which one auto takes above CMN_SCHEDULE_FEW ranks
 * depends on what is measured, which a checkpoint keeps (cmn_sums_link). */
#ifndef CMN_SUMS_H
#define CMN_SUMS_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"
#include "transports/pairwise.h"
#include "transports/schedule.h"

struct cmn_sums;

/* Collective, blocking. comm and o must outlive it. With auto and many ranks it measures the
 * network for some milliseconds; rank 0 of the job says what is taken. A rank that waits for
 * o->timeout without any message ends the job and names the missing rank; `waits`: it waits
 * without a limit. */
struct cmn_sums *cmn_sums_open(MPI_Comm comm, const struct cmn_options *o, int waits);

/* One sum, for all ranks. */
struct cmn_sum {
    float *data;          /* n floats, not to be touched until the sum has ended */
    size_t n;             /* may be 0 and may exceed INT_MAX */
    enum cmn_dtype dtype; /* what travels; 32 bits where cmn_exchange=mpi */
    /* With 16 bits, or NULL: n floats of error feedback. They are added before a cast, and hold
     * its rounding error after. */
    float *error;
};

/* Local. What auto chooses by, to be read, or overwritten before the first sum, with the same values on
 * all ranks: then it chooses as the run that had them. NULL where nothing is measured. */
struct cmn_link *cmn_sums_link(struct cmn_sums *s);

/* Collective in order, not blocking: the job is copied. */
void cmn_sums_begin(struct cmn_sums *s, const struct cmn_sum *sum);

/* Local. Advances all sums and returns how many have ended since open, in order. Returns as soon as
 * `until` have: 0 does not block. */
long cmn_sums_progress(struct cmn_sums *s, long until);

/* Collective, blocking: one sum of 32 bits, begun and ended. No other is in flight. */
void cmn_sums_run(struct cmn_sums *s, float *data, size_t n);

/* Collective, blocking. What is less than a sum for all: cmn_pairwise_run(), whatever cmn_exchange
 * says. Nothing is in flight. */
void cmn_sums_run_slices(struct cmn_sums *s, float *data, size_t n, int slices, int what);

/* Local. Bytes of gradients given to MPI since open; MPI_Iallreduce counts as if it sent what
 * pairwise does. */
unsigned long long cmn_sums_sent(const struct cmn_sums *s);

/* Local. Ends the job: names the rank that s has waited for so many seconds. For callers that poll
 * with progress(s, 0). */
_Noreturn void cmn_sums_stalled(const struct cmn_sums *s, long seconds);

/* Local. NULL is allowed. */
void cmn_sums_close(struct cmn_sums *s);

/* Collective over comm, blocking, some milliseconds. What the network does while all ranks send:
 * the best of a few attempts, of the slowest rank; equal on all ranks. */
void cmn_link_measure(MPI_Comm comm, struct cmn_link *link);

#endif
