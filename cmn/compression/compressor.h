/* A compressor sums shards of the gradients over a group of ranks, one of each node, and sends
 * fewer bytes than they have.
 *
 * It works in the background: begin() starts a shard, progress() advances all without waiting.
 * All ranks of the group begin the same shards in the same order, and shards end in that order.
 * A lossy compressor keeps what it did not send and adds it to the next gradient (error feedback:
 * Seide et al., "1-Bit Stochastic Gradient Descent", 2014; Karimireddy et al., "Error Feedback
 * Fixes SignSGD", 2019).
 * So a shard must hold the gradient without momentum.
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
    int owner; /* this rank begins the shards of this owner, and no others */
    /* Of this rank's addends, with cmn_exact; NULL: it has one, the shard. */
    const struct cmn_sum_tree *tree;
    float *block; /* where the shards lie on this rank, in each exchange */
};

/* Memory that a restart needs to continue with the same bits. Each rank has its own. */
struct cmn_state {
    const char *name;
    void *data; /* the compressor's; to be read, or overwritten, while nothing is in flight */
    size_t bytes;
    enum cmn_values values; /* what may be written there */
    long most;
};

/* What goes wrong in these calls ends the job. */
struct cmn_compressor {
    const char *name;
    const char *wire;   /* bytes that a rank sends for n floats, M ranks in the group */
    const char *use;    /* when to use it */
    const char *source; /* paper */
    int whole_tensors;  /* 1: a tensor must be one shard, with its rows; 0: any shards will do */

    /* Collective over comm, blocking. What it returns is `self` of the other calls. */
    void *(*open)(const struct cmn_compressor_plan *plan);
    /* Collective in order, not blocking. plan->shard[i] of the block holds this rank's addend; it
     * belongs to the compressor until the shard has ended. A shard that is `exact` travels as it
     * is, all others through the compressor. */
    void (*begin)(void *self, int i);
    /* Local. Advances all shards, and returns how many have ended since open: such a shard holds
     * the sum over comm, the same bits on all ranks. Returns as soon as `until` have: 0 does not
     * block. */
    long (*progress)(void *self, long until);
    /* Local. Bytes of gradients that this rank has given to MPI since open. */
    unsigned long long (*sent)(const void *self);
    /* Local. Entry i of what must be saved; 0 when there are no more, else 1, or 3 where a
     * checkpoint may lack it: then it stays as it is. */
    int (*state)(void *self, int i, struct cmn_state *state);
    /* Collective over comm. Nothing is in flight. */
    void (*close)(void *self);
};

/* Local. All compressors, in the order of enum cmn_compress: cmn_compressor_at(0) … until NULL. */
const struct cmn_compressor *cmn_compressor_at(int i);

/* Local. The one that cmn_compress asks for. */
const struct cmn_compressor *cmn_compressor_wanted(const struct cmn_options *o);

#endif
