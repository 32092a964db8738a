/* A compressor sums shards of the gradients over a group of ranks, one of each node, and sends less than they are.
 *
 * It works in the background: begin() notes a shard, progress() moves on what can be moved without waiting. All
 * ranks of the group begin the same shards in the same order, and shards end in that order.
 * A compressor that sends less than it was given keeps the rest and adds it to the next gradient (error feedback: Seide et
 * al., "1-Bit Stochastic Gradient Descent", 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", 2019).
 * So it must see gradient without momentum: what a shard holds is the gradient alone, without momentum.
 * Compressors know shards and groups, never layers. Each is one file in compressors/ and one line in compressors/registry.c. */
#ifndef CMN_COMPRESSOR_H
#define CMN_COMPRESSOR_H

#include <mpi.h>
#include <stddef.h>

#include "config/options.h"
#include "compression/shards.h"
#include "mpi/topology.h"

/* What a compressor is opened for. All of it must outlive the compressor. */
struct cmn_compressor_plan {
    MPI_Comm comm;
    const char *group; /* "inter", "world": for messages */
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    const struct cmn_shard *shard;
    int shards;
    int owner;    /* this rank begins the shards of this owner, and no others */
    float *block; /* where the shards lie on this rank, in each exchange */
};

/* Memory that a compressor needs again to go on with the same bits after a restart. Each rank has its own. */
struct cmn_state {
    const char *name;
    void *data; /* the compressor's; to be read, or overwritten, while nothing is under way */
    size_t bytes;
};

struct cmn_compressor {
    const char *name;
    const char *wire;   /* bytes that a rank sends for n floats, M ranks in the group */
    const char *use;    /* when to use it */
    const char *source; /* paper */
    int whole_tensors;  /* 1: a tensor must be one shard, with its rows; 0: any cut will do */

    /* Collective over comm, blocking. *self is handed to the others; what a failed open leaves must not be closed. 0, or
     * -1 with a reason. */
    int (*open)(void **self, const struct cmn_compressor_plan *plan);
    /* Collective in order, not blocking. plan->shard[i] of the block holds this rank's addend; it belongs to the compressor
     * until the shard has ended. A shard that is `whole` travels exactly, all others by the compressor. 0, or -1 with a
     * reason. */
    int (*begin)(void *self, int i);
    /* Local. Moves on what can be moved, and returns how many shards have ended since open: such a shard holds the sum over
     * comm, the same bits on all ranks. Does not return before at least `until` have; with 0 it does not wait.
     * -1 with a reason. */
    long (*progress)(void *self, long until);
    /* Local. Bytes of gradients that this rank has given to MPI since open. */
    unsigned long long (*sent)(const void *self);
    /* Local. Entry i of what must be saved; 0 when there are no more, else 1. */
    int (*state)(void *self, int i, struct cmn_state *state);
    /* Collective over comm. Nothing is under way. */
    void (*close)(void *self);
};

/* Local. All compressors: cmn_compressor_at(0) … until NULL. The first is "none". */
const struct cmn_compressor *cmn_compressor_at(int i);

/* Local. The one that cmn_compress and cmn_allreduce_dtype ask for; NULL with a reason when they contradict each
 * other. */
const struct cmn_compressor *cmn_compressor_wanted(const struct cmn_options *o);

#endif
