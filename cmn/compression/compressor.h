/* A compressor sums shards of the gradients over a group of ranks, one of each node, and may send
 * fewer bytes than the shards have.
 *
 * It works in the background: begin() starts a shard, and progress() advances all shards without
 * waiting. All ranks of the group begin the same shards in the same order, and shards end in that
 * order.
 *
 * A lossy compressor keeps what it did not send and adds it to the next gradient (error feedback:
 * Seide et al., "1-Bit Stochastic Gradient Descent", 2014; Karimireddy et al., "Error Feedback
 * Fixes SignSGD", 2019). So a shard must hold the gradient without momentum.
 *
 * Compressors know shards and groups, never layers. Each is one file here and one line in
 * registry.c. */
#ifndef CMN_COMPRESSOR_H
#define CMN_COMPRESSOR_H

#include <mpi.h>
#include <stddef.h>

#include "base/values.h"
#include "compression/shards.h"
#include "config/options.h"
#include "mpi/topology.h"
#include "transports/sum_tree.h"

/* What a compressor is opened for. All of it must outlive the compressor. */
struct cmn_compressor_plan {
    MPI_Comm comm;
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    const struct cmn_shard *shard;
    int shards;
    int owner; /* this rank begins only the shards of this owner */
    /* With cmn_exact: the tree of this rank's addends. NULL: its only addend is the shard. */
    const struct cmn_sum_tree *tree;
    float *block; /* where this rank's shards lie, in each exchange */
};

/* State that a checkpoint must contain, so that a restart continues with the same bits. Each rank
 * has its own. */
struct cmn_state {
    const char *name;
    void *data; /* owned by the compressor; may be read or overwritten while nothing is in flight */
    size_t bytes;
    enum cmn_values values; /* the values that may be written there */
    long most;
};

/* Errors in these calls end the job. */
struct cmn_compressor {
    const char *name;
    const char *wire;   /* formula: bytes that a rank sends for n floats and M ranks in the group */
    const char *use;    /* when to use it */
    const char *source; /* the paper that describes it */
    int whole_tensors;  /* 1: a tensor must be one shard, with its rows; 0: any shards work */

    /* Collective over comm, blocking. Returns the `self` of the other calls. */
    void *(*open)(const struct cmn_compressor_plan *plan);
    /* Collective, in the same order on all ranks, not blocking. Begins shard i. plan->shard[i] of
     * the block holds this rank's addend, and belongs to the compressor until the shard has ended.
     * An `exact` shard is sent unchanged; all others go through the compressor. */
    void (*begin)(void *self, int i);
    /* Local. Advances all shards, and returns how many have ended since open. A shard that has
     * ended holds the sum over comm, the same bits on all ranks. Blocks until `until` have ended;
     * with until = 0 it does not block. */
    long (*progress)(void *self, long until);
    /* Local. Returns the bytes of gradients that this rank has given to MPI since open. */
    unsigned long long (*sent)(const void *self);
    /* Local. Fills in entry i of the state to save. Returns 0 if there is no such entry, else 1, or
     * 3 if a checkpoint may lack it: then a restart leaves it as it is. */
    int (*state)(void *self, int i, struct cmn_state *state);
    /* Collective over comm. Nothing may be in flight. */
    void (*close)(void *self);
};

/* Local. Returns the compressors in the order of enum cmn_compress: cmn_compressor_at(0) and so on
 * until NULL. */
const struct cmn_compressor *cmn_compressor_at(int i);

/* Local. Returns the compressor that cmn_compress selects. */
const struct cmn_compressor *cmn_compressor_wanted(const struct cmn_options *o);

#endif
