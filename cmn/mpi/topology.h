/* topology: the place of this process in the job: rank, node, and the groups of ranks. */
#ifndef CMN_TOPOLOGY_H
#define CMN_TOPOLOGY_H

#include "mpi/call.h"

struct cmn_topology {
    MPI_Comm world; /* a private copy of MPI_COMM_WORLD that returns errors */
    MPI_Comm intra; /* the ranks of this node, which share memory */
    /* the ranks with the same intra_rank, one of each node that has that many ranks */
    MPI_Comm inter;
    int rank, size;             /* in world */
    int intra_rank, intra_size; /* in intra */
    /* number of this node (nodes are ordered by lowest rank), and of nodes */
    int inter_rank, inter_size;
    /* The smallest intra_size of all nodes. A rank whose intra_rank is below it has a rank of every
     * node in its `inter`. */
    int least_intra;
    int device;      /* number of the GPU whose memory holds the gradients; -1: the CPU's memory */
    int shares_gpus; /* some ranks use the same GPU, or slices of one: NCCL would refuse them */
    char host[64];
};

/* Collective over MPI_COMM_WORLD, blocking. MPI must be initialised. */
void cmn_topology_open(struct cmn_topology *t);

/* Does the same, but ranks with the same `node` form a node, so that one machine stands for
 * several. For tests. */
void cmn_topology_open_as(struct cmn_topology *t, int node);

/* Collective, blocking. */
void cmn_topology_close(struct cmn_topology *t);

#endif
