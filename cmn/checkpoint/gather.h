/* Moves the items of all ranks to rank 0, which writes the checkpoint, and back. An item is a named
 * block of this rank's memory that is saved and restored. Collective, blocking; a lost rank ends
 * the job. */
#ifndef CMN_CHECKPOINT_GATHER_H
#define CMN_CHECKPOINT_GATHER_H

#include "base/values.h"
#include "checkpoint/reader.h"
#include "mpi/topology.h"

/* What a rank gets of a tensor that each rank has for itself, if the ranks are not those that wrote
 * the checkpoint. */
enum cmn_merge {
    CMN_MERGE_FIRST, /* rank 0's tensor */
    CMN_MERGE_SUM,   /* the sum of the old ranks' floats */
    CMN_MERGE_MEAN,  /* the mean of the old ranks' floats */
    CMN_MERGE_DROP   /* nothing */
};

/* This rank's part of a tensor. A tensor is either common to all ranks, or each rank has its own
 * tensor of this name. */
struct cmn_checkpoint_item {
    char name[CMN_TENSOR_NAME];
    int own;       /* each rank has its own tensor of this name */
    void *data;    /* this rank's part; the caller owns it */
    size_t first;  /* byte of the tensor at which the part begins */
    size_t bytes;  /* of the part */
    int elsewhere; /* not written from here: another rank or the weights have the same bytes */
    int layer;     /* layer of the weights file that holds it, from 1 on; 0: it is not in there */
    enum cmn_merge merge;
    int of_exchange;        /* it is of no use to another communicator or on other nodes */
    float scale;            /* floats are multiplied by it after reading */
    enum cmn_values values; /* kind of values that the file may hold */
    long most;              /* for CMN_VALUES_COUNT: the largest valid value */
    size_t got;             /* bytes read; the rest of the data is unchanged */
};

/* Compares the job that wrote a checkpoint with this one. */
struct cmn_checkpoint_origin {
    int ranks;
    int same_ranks; /* the number of ranks is the same: each rank gets its own tensors again */
    int same_nodes; /* also the nodes and the communicator are the same */
};

/* Makes tensors of `to` from the items of all ranks, and allocates and fills their memory. The
 * parts of a common tensor are put together. `to` is rank 0's snapshot, or NULL if rank 0 has none;
 * NULL on the other ranks. 0; -1 on rank 0 if there is no snapshot, or with a reason if memory is
 * short: then no data were sent. The other ranks always return 0. */
int cmn_checkpoint_gather(const struct cmn_checkpoint_item *item, int items,
                          struct cmn_snapshot *to, const struct cmn_topology *t);

/* Fills the items and their `got` from a file, which only rank 0 has (NULL on other ranks). Ends
 * the job if the file lacks an item. */
void cmn_checkpoint_scatter(struct cmn_checkpoint_item *item, int items,
                            const struct cmn_checkpoint_file *from,
                            const struct cmn_checkpoint_origin *by, const struct cmn_topology *t);

#endif
