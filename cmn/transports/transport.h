/* A transport moves bytes inside one group of ranks. Transports know buffers, never networks.
 *
 * A strategy (communicator.h) is a recipe over groups; a transport is how a group moves bytes, so every
 * recipe runs over every transport. Each is one file here and one line in registry.c. */
#ifndef CMN_TRANSPORT_H
#define CMN_TRANSPORT_H

#include <stddef.h>

#include "mpi/group.h"

/* All calls are collective over the group and blocking, and return 0, or -1 with a reason. They
 * work in place on n floats at `data`, which the caller owns; n is the same on all ranks, may be 0
 * and may exceed INT_MAX. The buffers are the CPU's, or, where topology->device is not -1, the GPU's.
 * Sums are taken in a fixed order: the same bits on all ranks and in every run.
 *
 * `slices` says into how many slices the n floats are cut (cmn_slice()): rank i owns slice i, and ranks
 * from `slices` on own none. 1 <= slices <= ranks of the group. */
struct cmn_transport {
    const char *name;
    /* Why it cannot connect the ranks of a node here, or NULL. Local; the same on all ranks. */
    const char *(*refuses)(const struct cmn_topology *t, const struct cmn_options *o);
    /* *self is handed to the others. What a failed open leaves must not be closed. */
    int (*open)(void **self, const struct cmn_group *group);
    /* Optional (may be NULL). Zeroed memory for at least `floats` floats (the largest request of the group
     * counts), aligned to 64 bytes, which the other calls use without a copy: data in it lies at the same place
     * on all ranks, at a multiple of 16 bytes. The transport owns it until close. */
    int (*memory)(void *self, size_t floats, float **memory);
    /* The sum, on all ranks. */
    int (*allreduce)(void *self, float *data, size_t n);
    /* The sum, on rank 0; the other ranks' data is left undefined. */
    int (*reduce)(void *self, float *data, size_t n);
    /* On each rank its own slice becomes the sum of that slice; the rest is left undefined. */
    int (*reduce_scatter)(void *self, float *data, size_t n, int slices);
    /* Every slice becomes that of its owner. */
    int (*allgather)(void *self, float *data, size_t n, int slices);
    /* Everything becomes that of rank 0. */
    int (*bcast)(void *self, float *data, size_t n);
    /* Collective too. */
    void (*close)(void *self);
};

extern const struct cmn_transport cmn_mpi;
extern const struct cmn_transport cmn_shm;
extern const struct cmn_transport cmn_nccl;

/* Local. The transport that cmn_intra asks for inside a node; `auto` takes shm on the CPU and nccl on
 * GPUs. NULL with a reason when it cannot be had. */
const struct cmn_transport *cmn_transport_intra(const struct cmn_topology *t,
                                                const struct cmn_options *o);

/* Local. The transport between nodes: mpi where it can be given the buffers, else nccl. NULL with a reason
 * when neither can be had. */
const struct cmn_transport *cmn_transport_inter(const struct cmn_topology *t,
                                                const struct cmn_options *o);

#endif
