/* A communicator replaces every rank's gradients by their sum over all ranks.
 *
 * Communicators know buffers and groups, never layers. Each is one file here and one line in
 * registry.c, which selection, `darknet cmn list`, docs and tests use. */
#ifndef CMN_COMMUNICATOR_H
#define CMN_COMMUNICATOR_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"
#include "transports/exchange.h"

/* Stochastic gradient descent with momentum, as in Darknet. With g the sum of a gradient over all
 * ranks, for each weight w: u = g + decay * w; w += rate * u. */
struct cmn_sgd {
    float momentum;
    const float *rate, *decay, *scale; /* arrays, one entry for each tensor */
    /* NULL: the momentum is part of the sums. Otherwise it is kept separately here, laid out like
     * the block, in memory of `common`: u = scale * g + velocity + decay * w; velocity = momentum *
     * u; and the block becomes 0 on all ranks. */
    float *velocity;
    /* Optional, only with velocity. Local. Called once between sum and update, on all ranks with
     * the same values: `squares` has the sum of the squares of each tensor's gradient sum, and
     * then, with `looks_at_weights`, that of each tensor's weights. The update uses the values of
     * rate, decay, scale and x->part that it sets. */
    void (*look)(void *self, const double *squares);
    void *look_self;
    int looks_at_weights;
};

struct cmn_state;

enum cmn_can {
    CMN_CASTS = 1,      /* send the gradients as 16 bits (cmn_compress=fp16, bf16) */
    CMN_COMPRESSES = 2, /* compress the gradients (cmn_compress=powersgd) */
    CMN_DELAYS = 4,     /* exchange during the next step (cmn_double_buffering) */
    CMN_ORDERS = 8,     /* add along a tree (cmn_exact) */
    CMN_CAN_ALL = CMN_CASTS | CMN_COMPRESSES | CMN_DELAYS | CMN_ORDERS
};

/* Which ranks exchange with each other in a communicator that is made of node groups
 * (node_groups.h). */
enum cmn_recipe {
    CMN_OWN_RECIPE,     /* not made of node groups, or opened by its own file */
    CMN_WITHIN_NODE,    /* all ranks of the only node */
    CMN_FIRST_OF_NODE,  /* the first rank of each node, for all ranks of the node */
    CMN_SLICES_OF_NODE, /* each rank of a node exchanges a slice */
    CMN_ONE_GROUP       /* all ranks, as if they were on one node */
};

struct cmn_communicator {
    const char *name;
    const char *cpu, *gpu; /* whether it works there: "yes", or a condition or reason */
    const char *use;       /* when to use it */
    int sums;              /* 0: it does not sum, and the ranks' weights differ (dummy) */
    unsigned can[2];       /* on the CPU, on GPUs: bits of enum cmn_can */
    enum cmn_recipe recipe;

    /* NULL: it works everywhere. Local, the same on all ranks. Returns why c, which is this
     * communicator, cannot work here (one clause that says what to use instead), or NULL. */
    const char *(*refuses)(const struct cmn_communicator *c, const struct cmn_topology *t,
                           const struct cmn_options *o);
    /* Collective, blocking, before the network is built. c is this communicator. Sets *self, the
     * handle for the other calls; t and o must outlive it. Returns 0, or -1 with a reason: another
     * communicator may work. After a failure *self must not be closed. */
    int (*open)(void **self, const struct cmn_communicator *c, const struct cmn_topology *t,
                const struct cmn_options *o);
    /* NULL: any memory works. Collective, blocking. Allocates zeroed memory for `floats` floats,
     * which the communicator owns until close; *memory becomes NULL if any memory works after all.
     * Returns 0, or -1 with a reason.
     * On the CPU it is main memory, aligned to 64 bytes. Blocks and their metrics must lie in it,
     * at the same offset on all ranks, at a multiple of 64 bytes. On GPUs it is the GPU's memory,
     * and any other memory works, too, but may be slower. */
    int (*memory)(void *self, size_t floats, float **memory);
    /* NULL without step. Collective, blocking. Allocates zeroed memory for `floats` floats that is
     * common to all ranks of the node, which the communicator owns until close. *first says whether
     * this is the rank that has to fill it. Returns 0, or -1 with a reason. */
    int (*common)(void *self, size_t floats, float **memory, int *first);

    /* Errors in the calls below end the job. */

    /* Collective, blocking, in the same order on all ranks. Replaces every tensor and the metrics
     * by their sums over all ranks; the same bits on all ranks. */
    void (*allreduce)(void *self, const struct cmn_exchange *x);
    /* NULL: there is none. Sums like allreduce, but then updates the weights on all ranks instead
     * of returning the sums of the gradients; the weights must lie in memory of `common`. The
     * metrics become their sums. The next step's gradients are added to what it leaves in the
     * blocks: with sgd->velocity zeros, otherwise values that sum up to momentum * u over the
     * ranks. */
    void (*step)(void *self, const struct cmn_exchange *x, const struct cmn_sgd *sgd);
    /* NULL without step. Local. Says where step leaves the momentum in a block of `floats` floats,
     * without sgd->velocity: this rank holds the floats [*first, *first + *n), and zeros elsewhere.
     * Each float is spread over *copies ranks, each of which holds an equal part of its value. */
    void (*momentum)(void *self, size_t floats, size_t *first, size_t *n, int *copies);
    /* NULL: it cannot exchange in the background. Collective, in the same order on all ranks, not
     * blocking. The block's floats below `upto`, an end of a tensor, hold this rank's addend. They
     * belong to the communicator until allreduce or step, which completes the exchange. The sums
     * have the same bits as without begin. `upto` grows from call to call. */
    void (*begin)(void *self, const struct cmn_exchange *x, size_t upto);
    /* NULL without begin. Local, not blocking. Advances the exchange that was begun. */
    void (*poll)(void *self);
    /* Optional, on GPUs. Collective, once all of an exchange is begun; allreduce must follow.
     * Returns 1 if work that Darknet queues on the GPU from here on finds the sums, without the CPU
     * waiting for the GPU. Returns 0 if it cannot do that; then it has done nothing. */
    int (*order)(void *self);
    /* Optional. Local, the same on all ranks. Returns why begin cannot be used here, or NULL. */
    const char *(*no_begin)(void *self);
    /* Optional. Local. Fills in entry i of the state to save, like cmn_compressor.state. */
    int (*state)(void *self, int i, struct cmn_state *state);
    /* Collective. */
    void (*close)(void *self);
};

/* Local. Returns all communicators: cmn_communicator_at(0) and so on until NULL. */
const struct cmn_communicator *cmn_communicator_at(int i);

/* Local. Returns the communicator of that name, or NULL. */
const struct cmn_communicator *cmn_communicator_find(const char *name);

/* Local, the same on all ranks. Returns why c cannot be used with these options here (see
 * `refuses`), or NULL. */
const char *cmn_communicator_refuses(const struct cmn_communicator *c, const struct cmn_topology *t,
                                     const struct cmn_options *o);

/* Local, the same on all ranks. Returns why c, opened as self, cannot exchange during backward, or
 * NULL. */
const char *cmn_communicator_no_begin(const struct cmn_communicator *c, void *self);

/* Collective, blocking. Returns the communicator that the key cmn_communicator names. `auto`
 * depends on topology, devices, cmn_overlap and a short benchmark. *why says how it was chosen
 * (static text, or the thread's own). Returns NULL with a reason if there is none, or if it refuses
 * to work here. */
const struct cmn_communicator *cmn_communicator_choose(const struct cmn_topology *t,
                                                       const struct cmn_options *o,
                                                       const char **why);

#endif
