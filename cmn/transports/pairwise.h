/* Sums over a group in main memory, by messages between each pair of its ranks.
 *
 * Every rank sends each slice to its owner, who adds what all ranks have of it in the order of the ranks; then
 * each owner sends its slice to the others. Chunk by chunk: while one is added others are under way, and
 * sums go back while others arrive, so that a link is busy both ways all the time. The memory that
 * arriving chunks need is kept from call to call.
 * Bytes sent per rank of k, n floats in k slices: (k-1)/k * 4n for each half. */
#ifndef CMN_PAIRWISE_H
#define CMN_PAIRWISE_H

#include <mpi.h>
#include <stddef.h>

struct cmn_pairwise;

enum {
    CMN_SCATTER = 1,      /* each owner gets the sum of its slice */
    CMN_GATHER = 2,       /* every rank gets the slices of all owners */
    CMN_GATHER_FIRST = 4, /* rank 0 alone gets them */
};

/* Local. `chunk` is the most floats in one message; 0: chosen here. comm must outlive *p. 0, or -1 with a reason. */
int cmn_pairwise_open(struct cmn_pairwise **p, MPI_Comm comm, size_t chunk);

/* Collective, blocking. Does `what` (CMN_ bits) with n floats at `data` of the caller, cut by cmn_slice(). What a
 * rank was not to get is left undefined, but a rank's own slice is always kept. n may be 0 and may exceed
 * INT_MAX. 0, or -1 with a reason. */
int cmn_pairwise_run(struct cmn_pairwise *p, float *data, size_t n, int slices, int what);

/* Local. NULL is allowed. */
void cmn_pairwise_close(struct cmn_pairwise *p);

#endif
