/* The place of this process in the job: rank, node, and the groups of ranks built from them. */
#ifndef CMN_TOPOLOGY_H
#define CMN_TOPOLOGY_H

#include "mpi/call.h"

struct cmn_topology {
    MPI_Comm world; /* a private copy of MPI_COMM_WORLD that returns its errors */
    MPI_Comm intra; /* the ranks that share memory with this one */
    MPI_Comm inter; /* the ranks with the same intra_rank, one of each node that has so many */
    int rank, size; /* in world */
    int intra_rank, intra_size; /* in intra */
    int inter_rank, inter_size; /* number of this node (by its lowest rank), number of nodes */
    /* The smallest intra_size of all nodes: intra ranks below it have an `inter` with a rank of
     * every node. */
    int least_intra;
    int device;      /* number of the GPU whose memory holds the gradients; -1: the CPU's */
    int shares_gpus; /* some ranks use the same GPU, and NCCL was not told to bear it */
    char host[64];
};

/* Collective over MPI_COMM_WORLD, blocking. MPI must be initialised. */
void cmn_topology_open(struct cmn_topology *t);

/* As cmn_topology_open, but ranks with the same `node` form a node. For tests: one machine
 * stands for several. */
void cmn_topology_open_as(struct cmn_topology *t, int node);

/* Collective, blocking. */
void cmn_topology_close(struct cmn_topology *t);

#endif
