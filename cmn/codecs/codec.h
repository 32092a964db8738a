/* A codec sums pieces of the gradients over a group of ranks, one of each node, and sends less than they are.
 *
 * It works in the background: begin() notes a piece, progress() moves on what can be moved without waiting. All
 * ranks of the group begin the same pieces in the same order, and pieces end in that order.
 * A codec that sends less than it was given keeps the rest and adds it to the next gradient (error feedback: Seide et
 * al., "1-Bit Stochastic Gradient Descent", 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", 2019).
 * So it must see pure gradients: what a piece holds is the gradient alone, without momentum.
 * Codecs know pieces and groups, never layers. Each is one file in codecs/ and one line in codecs/registry.c. */
#ifndef CMN_CODEC_H
#define CMN_CODEC_H

#include <mpi.h>
#include <stddef.h>

#include "options.h"
#include "pieces.h"
#include "topology.h"

/* What a codec is opened for. All of it must outlive the codec. */
struct cmn_codec_plan {
    MPI_Comm comm;
    const char *group; /* "inter", "world": for messages */
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    const struct cmn_piece *piece;
    int pieces;
    int owner;    /* this rank begins the pieces of this owner, and no others */
    float *block; /* where the pieces lie on this rank, in each exchange */
};

/* Memory that a codec needs again to go on with the same bits after a restart. Each rank has its own. */
struct cmn_state {
    const char *name;
    void *data; /* the codec's; to be read, or overwritten, while nothing is under way */
    size_t bytes;
};

struct cmn_codec {
    const char *name;
    const char *wire;   /* bytes that a rank sends for n floats, M ranks in the group */
    const char *use;    /* when to use it */
    const char *source; /* paper */
    int whole_tensors;  /* 1: a tensor must be one piece, with its rows; 0: any cut will do */

    /* Collective over comm, blocking. *self is handed to the others; what a failed open leaves must not be closed. 0, or
     * -1 with a reason. */
    int (*open)(void **self, const struct cmn_codec_plan *plan);
    /* Collective in order, not blocking. plan->piece[i] of the block holds this rank's addend; it belongs to the codec
     * until the piece has ended. A piece that is `whole` travels exactly, all others by the codec. 0, or -1 with a
     * reason. */
    int (*begin)(void *self, int i);
    /* Local. Moves on what can be moved, and returns how many pieces have ended since open: such a piece holds the sum over
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

/* Local. All codecs: cmn_codec_at(0) … until NULL. The first is "none". */
const struct cmn_codec *cmn_codec_at(int i);

/* Local. The one that cmn_compress and cmn_allreduce_dtype ask for; NULL with a reason when they contradict each
 * other. */
const struct cmn_codec *cmn_codec_wanted(const struct cmn_options *o);

#endif
