/* Sums over a group in main memory in the rounds of a schedule (schedule.h), in the background.
 *
 * A job is cut into segments, each of which goes through all rounds; several are under way at
 * once, so that while one is added another travels. Additions follow the schedule: each block is
 * added by its owner in the end, so all ranks get the same bits, and the same in every run; but
 * not the order of the ranks, as pairwise.h has it.
 * With a 16-bit dtype a rank casts each float once in a job, with error feedback: partial sums in
 * the round that sends them, and its own block's sum; the allgather passes 16 bits on unchanged.
 * Bytes sent per rank of M, n floats: 2(M-1)/M * 4n, with 16 bits 2(M-1)/M * 2n; messages at most
 * of 60 KiB. */
#ifndef CMN_ROUNDS_H
#define CMN_ROUNDS_H

#include "transports/pairwise.h"
#include "transports/schedule.h"

struct cmn_rounds;

/* Local. comm must outlive it. */
struct cmn_rounds *cmn_rounds_open(MPI_Comm comm);

/* Collective in order, not blocking: the job is copied; its `slices` and `what` do not count: all
 * ranks get the sum. By halving or ring. */
void cmn_rounds_begin(struct cmn_rounds *r, const struct cmn_pairwise_job *job,
                      enum cmn_exchange_by by);

/* Local, not blocking. Advances all jobs, and returns how many have ended since open, in order. */
long cmn_rounds_progress(struct cmn_rounds *r);

/* Local. Bytes given to MPI since open. */
unsigned long long cmn_rounds_sent(const struct cmn_rounds *r);

/* Local. The rank of comm that the oldest segment waits for; -1: none. */
int cmn_rounds_missing(const struct cmn_rounds *r);

/* Local. NULL is allowed. */
void cmn_rounds_close(struct cmn_rounds *r);

#endif
