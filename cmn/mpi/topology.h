/* Where this process stands in the job: its rank, its node, and the groups built from them. */
#ifndef CMN_TOPOLOGY_H
#define CMN_TOPOLOGY_H

#include <mpi.h>
#include <stddef.h>

#include "base/status.h"

struct cmn_topology {
    MPI_Comm world; /* a private copy of MPI_COMM_WORLD that returns its errors */
    MPI_Comm intra; /* the ranks that share memory with this one */
    MPI_Comm inter; /* the ranks with this one's intra_rank, one of each node that has so many */
    int rank, size; /* in world */
    int intra_rank, intra_size; /* in intra */
    int inter_rank, inter_size; /* number of this node (by its lowest rank), number of nodes */
    int least_intra; /* the smallest intra_size of all nodes: for intra ranks below it, `inter`
                                   has a rank of every node, numbered as the nodes */
    int device;      /* number of the GPU whose memory holds the gradients; -1: the CPU's */
    char host[64];
};

/* Collective over MPI_COMM_WORLD, blocking. MPI must be initialised. 0, or -1 with a reason. */
int cmn_topology_open(struct cmn_topology *t);

/* As cmn_topology_open, but ranks that give the same `node` count as a node, whatever memory they
 * share. For tests: one machine stands for several. */
int cmn_topology_open_as(struct cmn_topology *t, int node);

/* Collective, blocking. */
void cmn_topology_close(struct cmn_topology *t);

/* Local: returns 0 when `code` is MPI_SUCCESS, else notes "<what>: <MPI's text>" and returns -1: as a loss, unless it is this
 * process's own mistake. While `code` is computed this rank counts as one that waits for others (watch.h). */
#define cmn_mpi_check(code, what) (cmn_status_wait_begin(), cmn_mpi_checked((code), (what)))
int cmn_mpi_checked(int code, const char *what);

/* The most elements that one call of MPI is given: counts are ints, and bytes should fit them too. */
enum { CMN_MPI_CHUNK = 1 << 28 };

/* Collective over the group, blocking. Rank 0's n elements at `data` go to all. n may exceed what an
 * int holds. 0, or -1 with a reason. */
int cmn_mpi_bcast(void *data, size_t n, MPI_Datatype type, MPI_Comm group);

/* Collective, blocking. *first becomes the lowest rank that calls with `bad` != 0, or -1 when none
 * does. 0, or -1 with a reason. */
int cmn_first_bad(const struct cmn_topology *t, int bad, int *first);

#endif
