/* A communicator turns every rank's gradients into their sum over all ranks.
 *
 * Communicators know buffers and groups, never layers. Each is one file in communicators/ and one
 * line in communicators/registry.c, which feeds the choice, `darknet cmn list`, docs and tests. */
#ifndef CMN_COMMUNICATOR_H
#define CMN_COMMUNICATOR_H

#include <stddef.h>

#include "config/options.h"
#include "compression/shards.h"
#include "mpi/topology.h"

/* What is exchanged in a step: the gradients one by one, and the block in which all of them lie.
 * The block may hold padding between tensors; padding is zero on every rank. The metrics, a few
 * exact sums, starts where the block ends: it may travel with the block, but never through a lossy
 * compressor. The memory is the caller's and the same in every call. It is the CPU's, or the GPU's where
 * topology->device is not -1. */
struct cmn_exchange {
    const struct cmn_span *tensor;
    int tensors;
    struct cmn_span block;
    struct cmn_span metrics;
    /* For step: the weights, each as far from here as its gradient from the block's begin. */
    float *weights;
};

/* Stochastic gradient descent with momentum, as Darknet does it. With g the sum of a gradient over all
 * ranks, for each weight w: u = g + decay * w; w += rate * u. */
struct cmn_sgd {
    float momentum;
    const float *rate, *decay; /* one for each tensor */
};

struct cmn_state;

struct cmn_communicator {
    const char *name;
    const char *cpu, *gpu; /* "yes", or why not */
    const char *use;       /* when to use it */
    int sums;              /* 0: ranks are left different (dummy) */
    const char *always;    /* the transport that it takes; NULL: cmn_intra decides, within a node */
    int narrows;           /* 1: it can send what cmn_allreduce_dtype asks for */
    int encodes; /* 1: it can send what a compressor makes of the gradients (compressors/compressor.h) */

    /* Local, the same on all ranks. Why it cannot work here (one clause that says what to use instead),
     * or NULL. */
    const char *(*refuses)(const struct cmn_topology *t, const struct cmn_options *o);
    /* Collective, blocking, before the network is built. *self is handed to the others; t and o must outlive
     * it. 0, or -1 with a reason; what a failed open leaves must not be closed. */
    int (*open)(void **self, const struct cmn_topology *t, const struct cmn_options *o);
    /* Optional (may be NULL). Collective, blocking. Zeroed memory for `floats` floats, in which a block is exchanged
     * faster than elsewhere; a block lies at the same place of it on all ranks, at a multiple of 64 bytes. The
     * communicator owns it until close. 0, or -1 with a reason. */
    int (*memory)(void *self, size_t floats, float **memory);
    /* Optional, where there is a step. Collective, blocking. Zeroed memory for `floats` floats that all ranks of the node
     * have in common; *first says whether this rank is the one to fill it. The communicator owns it
     * until close. 0, or -1 with a reason. */
    int (*common)(void *self, size_t floats, float **memory, int *first);
    /* Collective, blocking, called in the same order everywhere. Replaces every tensor, and the
     * metrics, by its sum over all ranks; the same bits on all ranks. 0, or -1 with a reason. */
    int (*allreduce)(void *self, const struct cmn_exchange *x);
    /* Optional (may be NULL). As allreduce, but ends with the weights updated on all ranks. The block and the
     * metrics lie in memory that `memory` gave, the weights in what `common` gave. Of the gradients it
     * leaves on the ranks what sums up to momentum * u: the next step's gradients are added to that. */
    int (*step)(void *self, const struct cmn_exchange *x, const struct cmn_sgd *sgd);
    /* Where there is a step. Local. Where it leaves the momentum of a block of `floats`: this rank holds floats
     * *first to *first + *n - 1, and zeros elsewhere; *copies ranks hold each float, an equal share of it. */
    void (*momentum)(void *self, size_t floats, size_t *first, size_t *n, int *copies);
    /* Optional (may be NULL): exchanging in the background. Collective, in the same order everywhere, not blocking. The
     * block's floats below `upto`, an end of a tensor, hold what this rank has to add, and are the
     * communicator's until allreduce or step, which ends what was begun. The sums have the same bits as
     * without. `upto` grows from call to call. 0, or -1 with a reason. */
    int (*begin)(void *self, const struct cmn_exchange *x, size_t upto);
    /* Optional, with begin. Local, not blocking. Moves on what was begun. 0, or -1 with a reason. */
    int (*poll)(void *self);
    /* Optional. Why begin cannot be used here, or NULL. Local, the same on all ranks. */
    const char *(*no_begin)(void *self);
    /* Optional. Local. Entry i of what a restart needs, 0 when there are no more (struct cmn_state in compressors/compressor.h). */
    int (*state)(void *self, int i, struct cmn_state *state);
    /* Collective. */
    void (*close)(void *self);
};

/* Local. All communicators: cmn_communicator_at(0) … until NULL. */
const struct cmn_communicator *cmn_communicator_at(int i);

/* Local. The one of that name, or NULL. */
const struct cmn_communicator *cmn_communicator_find(const char *name);

/* Local, the same on all ranks. Why c cannot be used with these options here (see `refuses`), or NULL. */
const char *cmn_communicator_refuses(const struct cmn_communicator *c, const struct cmn_topology *t,
                                     const struct cmn_options *o);

/* Collective, blocking. The communicator that cmn_communicator names; `auto` is resolved from topology,
 * devices and a short measurement, and *why (static, or the thread's own) says how. NULL with a reason when
 * there is none, or when it refuses to work here. */
const struct cmn_communicator *cmn_communicator_choose(const struct cmn_topology *t,
                                                       const struct cmn_options *o,
                                                       const char **why);

#endif
