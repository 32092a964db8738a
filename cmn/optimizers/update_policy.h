/* Update policies: when gradients are exchanged, and what the weights are updated with.
 *
 * A policy is one table of calls, in one file. optimizer.h chooses one for a training and drives
 * it.
 *
 *   synchronous        Gradients are summed in every step; then Darknet or the communicator
 *                      updates. The flat buffer also holds the momentum: each rank keeps 1/size
 *                      of it, so the sum contains it once (docs/internals/mechanisms.md).
 *   separate_momentum  Like synchronous, with the momentum in its own memory, so that the flat
 *                      buffer holds only the gradient: for lossy compressors, LARS, cmn_clip, and
 *                      for cmn_nonfinite=skip, which discards a gradient and keeps the momentum.
 *                      The communicator may update here, too.
 *   double_buffering   Like separate_momentum, one step late: the sum of a step is exchanged
 *                      during the next one. Source: ChainerMN's double-buffering optimizer (Akiba
 *                      et al., 2017).
 *   local_sgd          Each rank updates by itself; every k steps weights and momentum become
 *                      their means. Sources: Stich, "Local SGD Converges Fast and Communicates
 *                      Little", 2019; with averaged momentum: Yu, Jin, Yang, "On the Linear
 *                      Speedup Analysis of Communication Efficient Momentum SGD", 2019.
 *   delayed_local_sgd  Like local_sgd, but the mean of the weights arrives one period late, and
 *                      each rank keeps its own momentum. */
#ifndef CMN_UPDATE_POLICY_H
#define CMN_UPDATE_POLICY_H

#include <stddef.h>

#include "compression/compressor.h"
#include "optimizers/buckets.h"
#include "optimizers/ema.h"
#include "optimizers/gradient_exchange.h"

struct cmn_optimizer;

/* Parameters of an update. */
struct cmn_rule {
    int batch;
    float rate, momentum, decay;
    int done; /* Darknet's own update must not follow */
};

/* Says which ranks need an entry of the state. */
enum cmn_state_owner {
    CMN_STATE_END,
    CMN_STATE_OF_COMMUNICATOR, /* only for this rank, with this communicator and these nodes */
    CMN_STATE_OF_RANK,
    CMN_STATE_OF_ALL,  /* the same on all ranks */
    CMN_STATE_MOMENTUM /* the same on all ranks, for any number of ranks */
};

struct cmn_update_policy {
    const char *name;
    const char *key;  /* the key that selects it, for messages; NULL: no key does */
    int own_velocity; /* the momentum lies outside the flat buffer (o->velocity) */
    int own_weights;  /* between two means each rank has its own weights and momentum */
    int sends_copy;   /* a copy is exchanged, after backward */
    int steps;        /* the communicator may update (its call `step`) */
    int blocks;       /* blocks that open gets, each of the flat buffer's size */

    /* Collective, blocking. Gets the policy's memory. The gradients already lie in the flat
     * buffer. */
    void (*open)(struct cmn_optimizer *o);
    /* Optional. Local, or collective where it prepares an exchange. All ranks have the same weights
     * now; the policy initialises its state from them. */
    void (*begin)(struct cmn_optimizer *o);
    /* Collective, blocking. The step has `images` images of all ranks. Updates the weights, or sets
     * in *rule what Darknet's update must use. Returns 1 if o->metrics now holds sums over all
     * ranks, and 0 if they arrive in a later step. */
    int (*update)(struct cmn_optimizer *o, struct cmn_rule *rule, int images);
    /* Optional. Collective, after each update. Blocks if a mean is due or `synchronise` asks for
     * it; then all ranks have the same weights. Returns the same as update. */
    int (*after_update)(struct cmn_optimizer *o, int synchronise);
    /* Collective; called instead of update. All ranks discard the gradients of this step. The sums
     * of an exchange that began in an earlier step are still used. Returns the same as update. */
    int (*skip)(struct cmn_optimizer *o, struct cmn_rule *rule, int images);
    /* Local, while no exchange is under way. Sets *state to entry i of what a restart needs besides
     * the weights and the flat buffer, and returns its owner. */
    enum cmn_state_owner (*state)(struct cmn_optimizer *o, int i, struct cmn_state *state);
    /* Optional. Collective, blocking. Completes the exchange that is under way. */
    void (*complete)(struct cmn_optimizer *o);
    /* Optional. Local, after a resume. Removes stop requests from restored metrics. */
    void (*forget_stop_requests)(struct cmn_optimizer *o);
    /* Optional. Local. Returns whether all ranks have the same weights; NULL: they always do. */
    int (*synchronised)(const struct cmn_optimizer *o);
    /* Local. Frees the memory that open got. */
    void (*close)(struct cmn_optimizer *o);
};

extern const struct cmn_update_policy cmn_synchronous, cmn_separate_momentum, cmn_double_buffering,
    cmn_local_sgd, cmn_delayed_local_sgd;

/* A copy of the gradients, or of the changes of weights and momentum, that is exchanged while the
 * next steps compute. */
struct cmn_exchange_copy {
    struct cmn_exchange x;
    struct cmn_span *tensor; /* of x */
    float *own;              /* its memory if the communicator provides none; NULL: it does */
    int under_way;           /* its exchange has begun and was not waited for */
    int arrived;             /* it holds sums that were not used yet */
};

/* A page-locked copy of a GPU block on the host, for checkpoints. */
struct cmn_host_copy {
    float *block, *host;
    size_t n;
};
enum { CMN_HOST_COPIES_AT_MOST = 8 };

/* The momentum, if it lies apart from the gradients. */
struct cmn_velocity {
    float *at; /* laid out like the flat buffer; NULL: the momentum is in the flat buffer */
    /* `ours`: the memory is not the communicator's. A communicator with `step` shares it among the
     * ranks of a node; the rank with `fills` is the one that reads and writes it for
     * checkpoints. */
    int ours, fills;
    /* A checkpoint names the momentum as if it were in the flat buffer, because on the CPU it would
     * be: on a GPU it lies apart only for the sake of the update kernel. */
    int as_gradients;
    /* Darknet's update follows, with sums and momentum in the flat buffer (own_update, or Adam on
     * the CPU with double buffering). */
    int darknet_follows;
};

struct cmn_optimizer {
    const struct cmn_update_policy *policy;
    void *state; /* private to the policy */
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    /* `communicator` lacks the calls that the policy cannot use; gradients are opened with it.
     * `whole` is the complete one. */
    struct cmn_communicator communicator;
    const struct cmn_communicator *whole;
    void *self;
    struct cmn_gradients *gradients;
    struct cmn_accumulation *accumulation; /* only with cmn_exact */
    struct cmn_buckets buckets;
    struct cmn_velocity velocity;
    struct cmn_ema ema;
    struct cmn_host_copy host_copy[CMN_HOST_COPIES_AT_MOST + 1]; /* the last is empty */

    /* The rule that updates. */
    int adam;            /* Adam's rule, without a momentum; 0 if own_update */
    int own_adam;        /* on a GPU: our kernel updates all tensors by it, not Darknet */
    int own_update;      /* on a GPU: only Darknet implements the update that the cfg asks for */
    int darknet_updates; /* Darknet updates in this step; the average must follow */

    /* State of the current step. */
    float metrics[CMN_METRICS]; /* in: this rank's; out: sums over all ranks, if update returns 1 */
    double updating;            /* seconds spent in the update, without the exchange */
    double loss_scale;          /* the loss was multiplied by this before backward */
    double squares; /* sum of the squares of all sums, if the exchange computed it; or -1 */
    int too_large;  /* the tensor whose sum overflowed 16 bits, or -1 */
    double keeps;   /* the update multiplies the sums by this: 1, or less with cmn_clip */
    long clipped;   /* number of steps that were clipped since the training began */
};

/* The policies share the calls below. */

/* cmn_velocity_open() is collective if the communicator has `step`, else local; it gets zeroed
 * memory for the momentum, laid out like the flat buffer. cmn_velocity_close() is local. */
void cmn_velocity_open(struct cmn_optimizer *o);
void cmn_velocity_close(struct cmn_optimizer *o);

/* Local, not blocking. If Darknet's update is to follow (velocity.darknet_follows), fills the flat
 * buffer with what that update expects: sums plus momentum. Otherwise sets rule->done. The flat
 * buffer must hold nothing that is still needed. */
void cmn_velocity_to_darknet(struct cmn_optimizer *o, struct cmn_rule *rule, int images);
/* Local. After Darknet's update: copies the momentum that it left in the flat buffer back. */
void cmn_velocity_from_darknet(struct cmn_optimizer *o);

/* Clipping by the global norm (cmn_clip): a gradient that is longer than the limit is scaled to the
 * length of the limit. Local.
 *
 * With s the sum of the gradients over all images of a step, and n the number of those images:
 *     norm = |s / n|, over the values of all tensors: the L2 norm of the mean gradient
 *     s = s * min(1, limit / (norm + 1e-6))
 * As in PyTorch's clip_grad_norm_ only the gradient of the loss is clipped; decay, momentum and
 * learning rate are applied after it. Source: Pascanu, Mikolov, Bengio, "On the difficulty of
 * training recurrent neural networks", 2013.
 *
 * Returns the factor for the sums, at most 1. A norm that is NaN gives 1; an infinite norm gives 0,
 * which turns infinite values into NaN. */
double cmn_clip_keeps(double limit, double norm);

/* LARS (cmn_lars): each layer's weights get a learning rate that is proportional to their norm and
 * independent of the norm of their gradient. Local.
 *
 * With w the weights, g the mean gradient over the batch's images, c the trust coefficient, d the
 * decay, m the momentum and r the learning rate (of the schedule, times the layer's own factor):
 *     l = c * |w| / (|g| + d * |w|)
 *     v = m * v + r * l * (g + d * w)
 *     w = w - v
 * The momentum is therefore in units of the weights, so a later change of the rate does not rescale
 * it. l is 1 if the weights, or gradient and decay, are all 0. Biases and scales have no l and are
 * updated as Darknet does it. Source: You, Gitman, Ginsburg, "Large Batch Training of Convolutional
 * Networks", 2017, algorithm 1.
 *
 * Returns l, given the norms of the weights and of the sum of their gradients over `images`.
 * Darknet's gradients point downhill, which does not change a norm. For a momentum in units of the
 * weights the update takes rate = 1, and r * l as the factor of sum and decay. */
double cmn_lars_rate(double weights, double sum, double coefficient, double images, double decay);

/* Local. Returns whether the host must read the sums, or the result of a GPU's check of them,
 * before they are used. */
int cmn_decides_by_sums(const struct cmn_optimizer *o);

/* Local, the same on all ranks. Returns whether the sums in x over `images` are used. With
 * cmn_nonfinite=skip they are zeroed and not used if one of them overflowed 16 bits (o->too_large);
 * with cmn_nonfinite=stop that ends the job. With cmn_clip the update must multiply them by
 * o->keeps (cmn_clip_keeps). */
int cmn_use_sums(struct cmn_optimizer *o, const struct cmn_exchange *x, int images);

/* Local. Updates the weights with the sums over `images` and with the momentum in o->velocity, and
 * zeroes the sums. For each weight w, with g the sum times o->keeps and v the momentum: u = g + v +
 * decay * w; w += rate * u; v = momentum * u. With cmn_lars each tensor of weights has its own rate
 * (cmn_lars_rate). With cmn_ema the average follows in the same pass (ema.h). If o->own_update, it
 * only adds the sums to the momentum; cmn_velocity_to_darknet() must follow. */
void cmn_velocity_update(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule,
                         int images);

/* Local. Writes a message to `text` that names the tensor whose sum overflowed 16 bits. */
enum { CMN_TOO_LARGE = 256 };
void cmn_say_too_large(const struct cmn_optimizer *o, int tensor, char text[CMN_TOO_LARGE]);

/* Local. Does the same as cmn_velocity_update() by Adam's rule, if o->own_adam. */
void cmn_adam_update(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule, int images);

/* Collective, blocking. Sums the flat buffer and o->metrics over all ranks. If the communicator has
 * `step` and `rule` is not NULL, it also does what follows, each rank for a slice: cmn_use_sums()
 * and, if the policy keeps the momentum apart, cmn_velocity_update(). It then sets rule->done. */
void cmn_sum_gradients(struct cmn_optimizer *o, struct cmn_rule *rule, int images);

/* Collective. x will be exchanged later: the communicator gets its memory for it (such as a
 * compressor's, which a checkpoint can then fill) and begins nothing. */
void cmn_prepare(struct cmn_optimizer *o, const struct cmn_exchange *x);

/* Collective if the communicator provides memory. The copy gets room for `blocks` consecutive
 * blocks of the flat buffer's size, and for metrics. */
void cmn_copy_open(struct cmn_optimizer *o, struct cmn_exchange_copy *copy, int blocks);

/* Collective, not blocking. Begins the exchange of the copy. */
void cmn_copy_begin(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Collective, blocking. Completes the exchange of the copy, if it is under way. */
void cmn_copy_complete(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Collective, blocking. Sums the copy over all ranks. */
void cmn_copy_sum(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Local. Removes stop requests from the copy's metrics: they belong to an earlier run. */
void cmn_copy_forget_stop_requests(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Local. Frees the copy's memory, unless it is the communicator's. */
void cmn_copy_close(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Local. Returns the n floats of a block in the host's memory: the block itself or, on a GPU, a
 * copy that the first call makes. The optimizer owns the copy. */
float *cmn_host_copy(struct cmn_optimizer *o, float *block, size_t n);

/* Local, blocking. Refreshes all these copies from the GPU (PULL), writes them to it (PUSH), or
 * frees them (END). */
enum cmn_host_copies { CMN_HOST_PULL, CMN_HOST_PUSH, CMN_HOST_END };
void cmn_host_copies(struct cmn_optimizer *o, enum cmn_host_copies what);

/* Local. Sets *state to entry i of the policy's `entries` entries or, after these, to one of the
 * communicator's, and returns its owner. */
struct cmn_policy_entry {
    struct cmn_state state;
    enum cmn_state_owner owner;
    int is_block; /* the data is floats in the flat buffer's memory: the CPU's, or the GPU's */
};
enum cmn_state_owner cmn_policy_entry(struct cmn_optimizer *o, const struct cmn_policy_entry *entry,
                                      int entries, int i, struct cmn_state *state);

#endif
