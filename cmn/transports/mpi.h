/* MPI's own allreduce, for communicators that want it. Open MPI 4.1 allocates the temporary of a large
 * one in every call, and chooses an algorithm by size alone; sums.h has messages of our own. */
#ifndef CMN_TRANSPORTS_MPI_H
#define CMN_TRANSPORTS_MPI_H

#include <stddef.h>

#include "mpi/group.h"

/* Floats in a call of MPI where no other length is asked for. It bounds the temporary that Open MPI
 * allocates in each call. Of 1/4 to 8 MiB, 4 MiB took the least time
 * (docs/reference/performance.md). */
enum { CMN_MPI_FLOATS = 1024 * 1024 };

/* Collective over the group, blocking. The sum of n floats at `data`, in place, by MPI_Allreduce
 * with at most `most` (<= CMN_MPI_CHUNK) floats in a call. The memory may be a GPU's where MPI is
 * CUDA-aware. */
void cmn_mpi_allreduce(const struct cmn_group *group, float *data, size_t n, size_t most);

#endif
