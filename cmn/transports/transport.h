/* A transport moves floats inside one group of ranks. Transports know buffers, never networks.
 *
 * A communicator (communicators/communicator.h) is a recipe over groups, a transport is how one
 * group moves floats: each recipe runs over each transport. A transport is one file here and one
 * line in registry.c. */
#ifndef CMN_TRANSPORT_H
#define CMN_TRANSPORT_H

#include <stddef.h>

#include "mpi/group.h"

/* All calls but `refuses` are collective over the group and blocking. The sums and copies work in
 * place on n floats at `data`, which the caller owns; n is the same on all ranks, may be 0 and
 * may exceed INT_MAX. The memory is the CPU's, or, where topology->device is not -1, the GPU's.
 * Sums are taken in a fixed order: the same bits on all ranks and in every run. What goes wrong
 * in them ends the job.
 *
 * `slices` says into how many slices the n floats are cut (cmn_slice()): rank i owns slice i, and
 * ranks from `slices` on own none. 1 <= slices <= ranks of the group. */
struct cmn_transport {
    const char *name;
    /* Local; the same on all ranks of a node. Why it cannot connect them, or NULL. */
    const char *(*refuses)(const struct cmn_topology *t, const struct cmn_options *o);
    /* *self is handed to the other calls. The group must outlive it. 0, or -1 with a reason:
     * another transport may do. What a failed open leaves must not be closed. */
    int (*open)(void **self, const struct cmn_group *group);
    /* NULL where any memory will do, else all `data` must lie in memory that this gave. Zeroed
     * memory for at least `floats` floats (the largest request of the group counts), aligned to
     * 64 bytes. Data lies at the same place of it on all ranks, at a multiple of 16 bytes. The
     * transport owns it until close. 0, or -1 with a reason. */
    int (*memory)(void *self, size_t floats, float **memory);
    /* All ranks get the sum. */
    void (*allreduce)(void *self, float *data, size_t n);
    /* Rank 0 gets the sum; the other ranks' data becomes undefined. */
    void (*reduce)(void *self, float *data, size_t n);
    /* Each rank gets the sum of its own slice; the rest becomes undefined. */
    void (*reduce_scatter)(void *self, float *data, size_t n, int slices);
    /* All ranks get each slice of its owner. */
    void (*allgather)(void *self, float *data, size_t n, int slices);
    /* All ranks get the data of rank 0. */
    void (*bcast)(void *self, float *data, size_t n);
    void (*close)(void *self);
};

extern const struct cmn_transport cmn_mpi;
extern const struct cmn_transport cmn_shm;
extern const struct cmn_transport cmn_nccl;

/* Local. The transport inside a node: shm on the CPU, nccl on GPUs, mpi where that refuses, and where
 * CMN_DEBUG_INTRA asks for it. NULL with a reason when all refuse. */
const struct cmn_transport *cmn_transport_intra(const struct cmn_topology *t,
                                                const struct cmn_options *o);

/* Local. The transport between nodes: nccl on GPUs, else mpi where MPI can read the buffers. NULL with
 * a reason when both refuse. */
const struct cmn_transport *cmn_transport_inter(const struct cmn_topology *t,
                                                const struct cmn_options *o);

#endif
