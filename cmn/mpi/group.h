/* The ranks that work together, and which slice of a block each of them owns. */
#ifndef CMN_GROUP_H
#define CMN_GROUP_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

/* A group of ranks, and what a transport needs to connect them. All of it outlives the
 * transport. */
struct cmn_group {
    MPI_Comm comm;    /* numbers the ranks: "rank 0" of the group is its rank 0 */
    const char *name; /* "world", "intra", "inter": for messages */
    const struct cmn_topology *topology;
    const struct cmn_options *options;
};

/* Local. Number in MPI_COMM_WORLD of rank `rank` of comm. */
int cmn_world_rank(MPI_Comm comm, int rank);

/* Local. Slice i of n floats cut into `slices`: *at and *count in floats. Boundaries lie at
 * multiples of 16 floats (a cache line); a slice may be empty. */
void cmn_slice(size_t n, int slices, int i, size_t *at, size_t *count);

#endif
