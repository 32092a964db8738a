/* group: the ranks that work together, and which slice of a block each of them owns. */
#ifndef CMN_GROUP_H
#define CMN_GROUP_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

/* A group of ranks, with what a transport needs to connect them. All of it must outlive the
 * transport. */
struct cmn_group {
    MPI_Comm comm;    /* "rank 0" of the group is rank 0 in it */
    const char *name; /* "world", "intra" or "inter", for messages */
    const struct cmn_topology *topology;
    const struct cmn_options *options;
};

/* Local. Returns the number in MPI_COMM_WORLD of rank `rank` of comm. */
int cmn_world_rank(MPI_Comm comm, int rank);

/* Local. Cuts n floats into `slices` slices, and sets *at and *count to begin and length, in
 * floats, of slice i. Boundaries lie at multiples of 16 floats (a cache line). A slice may be
 * empty. */
void cmn_slice(size_t n, int slices, int i, size_t *at, size_t *count);

#endif
