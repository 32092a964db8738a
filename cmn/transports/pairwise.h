/* Sums over a group in main memory, by messages between each pair of its ranks, in the background.
 *
 * Every rank sends each slice to its owner, who adds what all ranks have of it in the order of the ranks; then
 * each owner sends its slice to the others. Chunk by chunk: while one is added others are under way, and
 * sums go back while others arrive, so that a link is busy both ways all the time. The memory that
 * arriving chunks need is kept from call to call. The order of additions does not depend on how the floats are
 * cut, so neither do the sums' bits.
 * With 16 bits a chunk travels rounded, both ways; additions are those of 32 bits.
 * Bytes sent per rank of k, n floats in k slices: (k-1)/k * 4n for each half, with 16 bits (k-1)/k * 2n. */
#ifndef CMN_PAIRWISE_H
#define CMN_PAIRWISE_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"

struct cmn_pairwise;

enum {
    CMN_SCATTER = 1,      /* each owner gets the sum of its slice */
    CMN_GATHER = 2,       /* every rank gets the slices of all owners */
    CMN_GATHER_FIRST = 4, /* rank 0 alone gets them */
};

/* Local. `chunk` is the most floats in one message; 0: chosen here. comm must outlive *p. 0, or -1 with a reason. */
int cmn_pairwise_open(struct cmn_pairwise **p, MPI_Comm comm, size_t chunk);

/* Local. Waiting so many seconds without anything moving is a failure, which names the missing rank of MPI_COMM_WORLD; 0
 * (the beginning): never. */
void cmn_pairwise_patience(struct cmn_pairwise *p, long seconds);

/* Local. Notes which rank of MPI_COMM_WORLD p has waited for so many seconds, and returns -1: for those who ask for progress
 * without waiting. Of the ranks of a group it is number `from`. */
int cmn_pairwise_late(struct cmn_pairwise *p, long seconds);
int cmn_nothing_from(MPI_Comm comm, int from, long seconds);

/* One sum. */
struct cmn_pairwise_job {
    float *data; /* n floats, pairwise's until the job has ended */
    size_t n;    /* may be 0 and may exceed INT_MAX */
    int slices, what;
    enum cmn_dtype dtype; /* what travels; with 16 bits `what` is CMN_SCATTER | CMN_GATHER */
    /* With 16 bits: n floats that are added before, and hold what was rounded off after; or NULL. */
    float *error;
};

/* Collective in order, not blocking: the job is copied and done after those before it. Cut by cmn_slice(). What a rank
 * was not to get is left undefined, but a rank's own slice is always kept. 0, or -1 with a reason. */
int cmn_pairwise_begin(struct cmn_pairwise *p, const struct cmn_pairwise_job *job);

/* Local. Moves on what can be moved, and returns how many jobs have ended since open; at least `until`: that many are waited
 * for. -1 with a reason. */
long cmn_pairwise_progress(struct cmn_pairwise *p, long until);

/* Collective, blocking: one job of 32 bits, begun and ended; nothing else is under way. 0, or -1 with a reason. */
int cmn_pairwise_run(struct cmn_pairwise *p, float *data, size_t n, int slices, int what);

/* Local. Bytes given to MPI since open. */
unsigned long long cmn_pairwise_sent(const struct cmn_pairwise *p);

/* Local. NULL is allowed. */
void cmn_pairwise_close(struct cmn_pairwise *p);

#endif
