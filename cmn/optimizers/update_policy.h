/* Update policies: when gradients are exchanged, and what the weights are updated with.
 *
 * A policy is one table of calls, in one file. optimizer.h chooses one for a training and drives
 * it.
 *
 *   synchronous        Gradients are summed in every step, and Darknet's own update follows, or the
 *                      communicator's. The flat buffer holds the momentum, too; each rank keeps
 *                      1/size of it, so the sum holds it once (docs/internals/mechanisms.md).
 *   separate_momentum  The same with the momentum in memory of its own, so that the flat buffer
 *                      holds the gradient alone: for lossy compressors, LARS, cmn_clip, and
 *                      for cmn_nonfinite=skip, which throws a gradient away and keeps the
 *                      momentum. Here, too, the communicator may update.
 *   double_buffering   As separate_momentum, one step late: the sum of a step travels during the
 *                      next one. Source: ChainerMN's double-buffering optimizer (Akiba et al.,
 *                      2017).
 *   local_sgd          Each rank updates by itself; every k steps weights and momentum become
 *                      their means. Sources: Stich, "Local SGD Converges Fast and Communicates
 *                      Little", 2019; with the momentum averaged, too: Yu, Jin, Yang, "On the
 *                      Linear Speedup Analysis of Communication Efficient Momentum SGD", 2019.
 *   delayed_local_sgd  As local_sgd, but the mean of the weights arrives one period late, and
 *                      each rank keeps its momentum. */
#ifndef CMN_UPDATE_POLICY_H
#define CMN_UPDATE_POLICY_H

#include <stddef.h>

#include "compression/compressor.h"
#include "optimizers/bucket_tuner.h"
#include "optimizers/ema.h"
#include "optimizers/gradient_exchange.h"

struct cmn_optimizer;

/* The numbers of an update. */
struct cmn_rule {
    int batch;
    float rate, momentum, decay;
    int done; /* the update has happened: Darknet's own is not to follow */
};

/* Who owns an entry of the state. */
enum cmn_state_owner {
    CMN_STATE_END,
    CMN_STATE_OF_COMMUNICATOR, /* this rank's; nothing to other communicators, or on other nodes */
    CMN_STATE_OF_RANK,
    CMN_STATE_OF_ALL,  /* the same on all ranks */
    CMN_STATE_MOMENTUM /* the same on all ranks, however many they are */
};

struct cmn_update_policy {
    const char *name;
    const char *key;  /* the key that asks for it, for messages; NULL: none does */
    int own_velocity; /* the momentum is kept apart from the gradients (o->velocity) */
    int own_weights;  /* ranks have weights and momentum of their own between two means */
    int sends_copy;   /* what is exchanged is a copy, after backward */
    int steps;        /* the communicator may update, too (its step) */
    int blocks;       /* as large as the flat buffer that open gets, the communicator's included */

    /* Collective, blocking. The gradients lie in the flat buffer: gets memory. */
    void (*open)(struct cmn_optimizer *o);
    /* Optional. Local. All ranks have the same weights now; what the policy keeps begins from
     * them. */
    void (*begin)(struct cmn_optimizer *o);
    /* Collective, blocking; `images` of all ranks are in the step. Updates, or says in *rule what
     * Darknet's update is to use. Returns 1 when o->metrics holds sums over all ranks, and 0 when
     * they come in a later step. */
    int (*update)(struct cmn_optimizer *o, struct cmn_rule *rule, int images);
    /* Optional. Collective, after each update; blocks where a mean is due, or `synchronise` asks
     * for it: then all ranks have the same weights. Returns as update does. */
    int (*after_update)(struct cmn_optimizer *o, int synchronise);
    /* Collective, in place of update: the gradients of this step are thrown away, on all ranks.
     * What an earlier step has begun is still used. Returns as update does. */
    int (*skip)(struct cmn_optimizer *o, struct cmn_rule *rule, int images);
    /* Local, while nothing is under way. Entry i of what a restart needs besides weights and flat
     * buffer, and whose it is. */
    enum cmn_state_owner (*state)(struct cmn_optimizer *o, int i, struct cmn_state *state);
    /* Optional. Collective, blocking. Completes what is under way. */
    void (*complete)(struct cmn_optimizer *o);
    /* Optional. Local. After a resume: stop requests in restored metrics are removed. */
    void (*forget_stop_requests)(struct cmn_optimizer *o);
    /* Optional. Local. Whether all ranks have the same weights; NULL: always. */
    int (*synchronised)(const struct cmn_optimizer *o);
    /* Local. Frees what open got. */
    void (*close)(struct cmn_optimizer *o);
};

extern const struct cmn_update_policy cmn_synchronous, cmn_separate_momentum, cmn_double_buffering,
    cmn_local_sgd, cmn_delayed_local_sgd;

/* A copy of the gradients, or of weights and momentum, that travels while the next steps
 * compute. */
struct cmn_exchange_copy {
    struct cmn_exchange x;
    struct cmn_span *tensor; /* of x */
    float *own;              /* its memory where the communicator gives none */
    int under_way;           /* begun, and not waited for */
    int arrived;             /* the sums are there, and not used */
};

/* On a GPU: the host's page-locked copy of a block, for checkpoints. */
struct cmn_host_copy {
    float *block, *host;
    size_t n;
};
enum { CMN_HOST_COPIES_AT_MOST = 8 };

/* The momentum, where it lies apart from the gradients. */
struct cmn_velocity {
    float *at; /* as the flat buffer lies; NULL: the momentum is in the flat buffer */
    /* With a communicator that steps the ranks of a node share it, and one of them fills it. */
    int ours, fills;
    /* A checkpoint names it as if it were in the flat buffer: on a GPU it lies apart only for the
     * update's sake, and on the CPU it does not. */
    int as_gradients;
    /* Where own_update: Darknet's update follows, with sums and momentum in the flat buffer. */
    int darknet_follows;
};

/* Buckets of gradients that are exchanged while backward still runs. */
struct cmn_buckets {
    int layers;
    size_t *final; /* floats of the flat buffer that are final when backward has done layer i */
    struct cmn_bucket_tuner tuner;
    size_t floats; /* of a bucket in the current step; 0: no overlap */
    size_t begun;  /* floats whose exchange has begun in the current step */
};

struct cmn_optimizer {
    const struct cmn_update_policy *policy;
    void *state; /* the policy's own */
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    /* Without the calls that the policy cannot use (gradients are opened with this one); whole. */
    struct cmn_communicator communicator;
    const struct cmn_communicator *whole;
    void *self;
    struct cmn_gradients *gradients;
    struct cmn_accumulation *accumulation; /* with cmn_exact */
    struct cmn_buckets buckets;
    struct cmn_velocity velocity;
    struct cmn_ema ema;
    struct cmn_host_copy host_copy[CMN_HOST_COPIES_AT_MOST + 1]; /* the last is empty */

    /* Which rule updates. */
    int adam;            /* Adam's rule, and no momentum; not where own_update */
    int own_adam;        /* on a GPU: one kernel updates all tensors by it, not Darknet */
    int own_update;      /* on a GPU: only Darknet knows how the weights are updated */
    int darknet_updates; /* Darknet updates in the current step: the average has to follow */

    /* The current step. */
    float metrics[CMN_METRICS]; /* in: this rank's; out: sums over all ranks, if update says so */
    double updating;            /* seconds of the update that were no exchange */
    double loss_scale;          /* the gradients are those of the loss times this */
    double squares; /* the sum of the sums' squares, where the exchange has made it; or -1 */
    int too_large;  /* tensor whose sum did not fit into 16 bits, or -1 */
    double keeps;   /* the update takes this part of the sums: 1, less with cmn_clip */
    long clipped;   /* steps since the training began */
};

/* What is common to the policies' files. */

/* Collective where the communicator steps, else local. Zeroed memory for the momentum, as the flat
 * buffer lies; and its end, which is local. */
void cmn_velocity_open(struct cmn_optimizer *o);
void cmn_velocity_close(struct cmn_optimizer *o);

/* Local, not blocking. After cmn_velocity_update() where o->own_update: the flat buffer, which
 * holds nothing that is needed, becomes what Darknet's update expects, which is to follow.
 * Otherwise there is none to follow. */
void cmn_velocity_to_darknet(struct cmn_optimizer *o, struct cmn_rule *rule, int images);
/* After Darknet's update: copies what it has left of it. */
void cmn_velocity_from_darknet(struct cmn_optimizer *o);

/* Clipping by the global norm (cmn_clip): a step whose gradient is longer than a limit is made as
 * long as the limit. Local.
 *
 * With s the sum of the gradients over all images of a step, as the update sees it, and n those
 * images:
 *     norm = |s / n|, over the values of all tensors: the L2 norm of the mean gradient
 *     s = s * min(1, limit / (norm + 1e-6))
 * The gradient is the loss's alone, as PyTorch's clip_grad_norm_ has it: decay and momentum come
 * after it, and so does the learning rate. Source: Pascanu, Mikolov, Bengio, "On the difficulty of
 * training recurrent neural networks", 2013.
 *
 * By what sums whose mean has that norm are multiplied: 1, or less. A norm that is NaN gives 1; an
 * infinite one 0, which makes NaN of infinite values. */
double cmn_clip_keeps(double limit, double norm);

/* LARS (cmn_lars): a learning rate for each layer's weights, in proportion to their norm and not to
 * that of their gradient. Local.
 *
 * With w the weights, g the mean gradient of the batch's images, c the trust coefficient, d the
 * decay, m the momentum and r the learning rate (of the schedule, times the layer's own factor):
 *     l = c * |w| / (|g| + d * |w|)
 *     v = m * v + r * l * (g + d * w)
 *     w = w - v
 * So what momentum keeps is in units of the weights: a later change of the rate does not change it.
 * l is 1 where the weights, or gradient and decay, are all 0. Biases and scales have no l, and are
 * updated as Darknet does. Source: You, Gitman, Ginsburg, "Large Batch Training of Convolutional
 * Networks", 2017, algorithm 1.
 *
 * The l above, of the norms of the weights and of the sum of their gradients over `images`;
 * Darknet's gradients point downhill, which is the same to a norm. An update with momentum in units
 * of the weights takes rate = 1, and r * l as the factor of sum and decay. */
double cmn_lars_rate(double weights, double sum, double coefficient, double images, double decay);

/* Whether the host has to look at sums, or at what a GPU found in them, before they are used. */
int cmn_decides_by_sums(const struct cmn_optimizer *o);

/* Local, the same on all ranks. Whether the sums in x over `images` are used: with
 * cmn_nonfinite=skip they are not where one did not fit into 16 bits (o->too_large), and are zeroed
 * then. With cmn_clip the update is to take o->keeps of them (cmn_clip_keeps). */
int cmn_use_sums(struct cmn_optimizer *o, const struct cmn_exchange *x, int images);

/* Local. Updates the weights with the sums over `images` and the momentum in o->velocity, and
 * zeroes the sums. For each weight w, with g the sum times o->keeps and v the momentum: u = g + v
 * + decay * w; w += rate * u; v = momentum * u. With cmn_lars each tensor of weights has a rate of
 * its own (cmn_lars_rate). With cmn_ema the average follows in the same pass (ema.h). Where
 * o->own_update the sums are added to the momentum, and cmn_velocity_to_darknet() is to follow. */
void cmn_velocity_update(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule,
                         int images);

/* Local. Says which tensor (o->too_large) did not fit into 16 bits. */
enum { CMN_TOO_LARGE = 256 };
void cmn_say_too_large(const struct cmn_optimizer *o, int tensor, char text[CMN_TOO_LARGE]);

/* Local. As cmn_velocity_update, where o->own_adam. */
void cmn_adam_update(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule, int images);

/* Collective, blocking. Sums the flat buffer and o->metrics over all ranks. With a communicator
 * that steps and `rule`, all that follows is done, too: cmn_use_sums(), and where the policy keeps
 * the momentum apart cmn_velocity_update(), each rank a slice of it. Then rule->done. */
void cmn_sum_gradients(struct cmn_optimizer *o, struct cmn_rule *rule, int images);

/* Collective in order, not blocking. Backward has done layer i in the last micro-batch of a step:
 * begins the exchange of what is final, where that is a bucket. Returns whether it is. */
int cmn_sum_layer(struct cmn_optimizer *o, int i);

/* Local. The floats of the flat buffer that cmn_sum_layer() will have begun to exchange with layer
 * i; 0: it begins nothing then. */
size_t cmn_sum_will_begin(const struct cmn_optimizer *o, int i);

/* Local, not blocking. Makes progress in exchanges that are under way. */
void cmn_sum_poll(struct cmn_optimizer *o);

/* Collective. x will be exchanged: the communicator gets memory for it (that of a compressor, which
 * a checkpoint can then fill), and begins nothing. */
void cmn_prepare(struct cmn_optimizer *o, const struct cmn_exchange *x);

/* Collective when the communicator has memory of its own. The copy gets room for `blocks` blocks as
 * large as the flat buffer, one behind the other, and for metrics. */
void cmn_copy_open(struct cmn_optimizer *o, struct cmn_exchange_copy *copy, int blocks);

/* Collective, not blocking. Begins the exchange of the copy. */
void cmn_copy_begin(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Collective, blocking. Ends the exchange of the copy, if it is under way. */
void cmn_copy_complete(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Collective, blocking. Sums the copy over all ranks, now. */
void cmn_copy_sum(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Local. Stop requests in the copy's metrics are those of an earlier run: removes them. */
void cmn_copy_forget_stop_requests(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Local. */
void cmn_copy_close(struct cmn_optimizer *o, struct cmn_exchange_copy *copy);

/* Local. Where the host has the n floats of a block: there, or, on a GPU, in a copy that the first
 * call makes. */
float *cmn_host_copy(struct cmn_optimizer *o, float *block, size_t n);

/* Local, blocking. All copies that were made become what the GPU has, or the other way round; or
 * end. */
enum cmn_host_copies { CMN_HOST_PULL, CMN_HOST_PUSH, CMN_HOST_END };
void cmn_host_copies(struct cmn_optimizer *o, enum cmn_host_copies what);

/* Local. Entry i of a policy's list; behind them come the communicator's. */
struct cmn_policy_entry {
    struct cmn_state state;
    enum cmn_state_owner owner;
    int is_block; /* floats that lie where the flat buffer does */
};
enum cmn_state_owner cmn_policy_entry(struct cmn_optimizer *o, const struct cmn_policy_entry *entry,
                                      int entries, int i, struct cmn_state *state);

#endif
