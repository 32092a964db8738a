/* A communicator turns every rank's gradients into their sum over all ranks.
 *
 * Communicators know buffers and groups, never layers. Each is one file here and one line in
 * registry.c, which feeds the choice, `darknet cmn list`, docs and tests. */
#ifndef CMN_COMMUNICATOR_H
#define CMN_COMMUNICATOR_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"
#include "transports/exchange.h"

/* Stochastic gradient descent with momentum, as Darknet does it. With g the sum of a gradient
 * over all ranks, for each weight w: u = g + decay * w; w += rate * u. */
struct cmn_sgd {
    float momentum;
    const float *rate, *decay, *scale; /* one for each tensor */
    /* NULL: the momentum is part of the sums. Else it lies here as the gradients do in the block,
     * in memory of `common`: u = scale * g + velocity + decay * w; velocity = momentum * u, and
     * the block becomes 0 on all ranks. */
    float *velocity;
    /* Optional, with velocity. Local; called once between sum and update, on all ranks with the
     * same values: for each tensor the sum of the squares of its sums, then, with
     * `looks_at_weights`, for each that of its weights. What it changes of rate, decay, scale and
     * x->part counts. */
    void (*look)(void *self, const double *squares);
    void *look_self;
    int looks_at_weights;
};

struct cmn_state;

enum cmn_can {
    CMN_CASTS = 1,      /* send what cmn_compress=fp16 and bf16 ask for */
    CMN_COMPRESSES = 2, /* send what cmn_compress=powersgd makes of the gradients */
    CMN_DELAYS = 4,     /* exchange during the next step */
    CMN_ORDERS = 8,     /* add along the tree of cmn_exact */
    CMN_CAN_ALL = CMN_CASTS | CMN_COMPRESSES | CMN_DELAYS | CMN_ORDERS
};

/* Which ranks exchange with which, of a communicator that is made of node groups
 * (node_groups.h). */
enum cmn_recipe {
    CMN_OWN_RECIPE,     /* its file says it */
    CMN_WITHIN_NODE,    /* the ranks of the one node */
    CMN_FIRST_OF_NODE,  /* the first rank of each node, for all of them */
    CMN_SLICES_OF_NODE, /* each rank of a node a slice */
    CMN_ONE_GROUP,      /* all ranks, as if they were on one node */
    CMN_THROUGH_HOST    /* as CMN_FIRST_OF_NODE, on the CPU for GPUs */
};

struct cmn_communicator {
    const char *name;
    const char *cpu, *gpu; /* "yes", or why not */
    const char *use;       /* when to use it */
    int sums;              /* 0: ranks are left different (dummy) */
    unsigned can[2];       /* what it can do on the CPU, and on GPUs: bits of enum cmn_can */
    enum cmn_recipe recipe;

    /* NULL: works everywhere. Local, the same on all ranks. Why c, which is this one, cannot work
     * here (one clause that says what to use instead), or NULL. */
    const char *(*refuses)(const struct cmn_communicator *c, const struct cmn_topology *t,
                           const struct cmn_options *o);
    /* Collective, blocking, before the network is built. c is this one. *self is handed to the
     * other calls; t and o must outlive it. 0, or -1 with a reason: another communicator may do.
     * What a failed open leaves must not be closed. */
    int (*open)(void **self, const struct cmn_communicator *c, const struct cmn_topology *t,
                const struct cmn_options *o);
    /* NULL where any memory will do. Collective, blocking. Zeroed memory of the CPU for `floats`
     * floats, aligned to 64 bytes; blocks and their metrics must lie in such memory, at the same
     * place on all ranks, at a multiple of 64 bytes. On GPUs it is the GPU's memory, and any other
     * will do, too, if perhaps not as fast. The communicator owns it until close. *memory becomes
     * NULL where any memory will do after all. 0, or -1 with a reason. */
    int (*memory)(void *self, size_t floats, float **memory);
    /* NULL without step. Collective, blocking. Zeroed memory for `floats` floats that all ranks
     * of the node have in common; *first says whether this rank is the one to fill it. The
     * communicator owns it until close. 0, or -1 with a reason. */
    int (*common)(void *self, size_t floats, float **memory, int *first);

    /* What goes wrong from here on ends the job. */

    /* Collective, blocking, in the same order everywhere. Replaces every tensor, and the metrics,
     * by its sum over all ranks; the same bits on all ranks. */
    void (*allreduce)(void *self, const struct cmn_exchange *x);
    /* NULL where there is none. As allreduce, but ends with the weights updated on all ranks;
     * these lie in what `common` gave. Of the gradients it leaves on the ranks what sums up to
     * momentum * u, or nothing, where the momentum is apart: the next step's gradients are added to
     * that. */
    void (*step)(void *self, const struct cmn_exchange *x, const struct cmn_sgd *sgd);
    /* NULL without step. Local. Where step leaves the momentum that is not apart, of a block of
     * `floats`: this rank holds the floats [*first, *first + *n), and zeros elsewhere; *copies
     * ranks hold each float, an equal part of it. */
    void (*momentum)(void *self, size_t floats, size_t *first, size_t *n, int *copies);
    /* NULL where it cannot exchange in the background. Collective, in the same order everywhere,
     * not blocking. The block's floats below `upto`, an end of a tensor, hold what this rank has
     * to add, and are the communicator's until allreduce or step, which completes the exchange.
     * The sums have the same bits as without. `upto` grows from call to call. */
    void (*begin)(void *self, const struct cmn_exchange *x, size_t upto);
    /* NULL without begin. Local, not blocking. Advances what was begun. */
    void (*poll)(void *self);
    /* Optional, on GPUs. Collective, once all of an exchange is begun; allreduce must follow. What
     * Darknet asks of the GPU from here on finds the sums, and no GPU is waited for: 1. 0: it can
     * not, and has done nothing. */
    int (*order)(void *self);
    /* Optional. Why begin cannot be used here, or NULL. Local, the same on all ranks. */
    const char *(*no_begin)(void *self);
    /* Optional. Local. Entry i of what a restart needs, as struct cmn_compressor has it. */
    int (*state)(void *self, int i, struct cmn_state *state);
    /* Collective. */
    void (*close)(void *self);
};

/* Local. All communicators: cmn_communicator_at(0) … until NULL. */
const struct cmn_communicator *cmn_communicator_at(int i);

/* Local. The one of that name, or NULL. */
const struct cmn_communicator *cmn_communicator_find(const char *name);

/* Local, the same on all ranks. Why c cannot be used with these options here (see `refuses`), or
 * NULL. */
const char *cmn_communicator_refuses(const struct cmn_communicator *c, const struct cmn_topology *t,
                                     const struct cmn_options *o);

/* Local, the same on all ranks. Why c, opened as self, cannot exchange during backward, or NULL. */
const char *cmn_communicator_no_begin(const struct cmn_communicator *c, void *self);

/* Collective, blocking. The communicator that cmn_communicator names; `auto` follows from
 * topology, devices, cmn_overlap and a short benchmark, and *why (static, or the thread's own)
 * says how. NULL with a reason when there is none, or when it refuses to work here. */
const struct cmn_communicator *cmn_communicator_choose(const struct cmn_topology *t,
                                                       const struct cmn_options *o,
                                                       const char **why);

#endif
