#include "optimizers/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/status.h"
#include "compression/compressor.h"
#include "mpi/device.h"
#include "optimizers/accumulation.h"
#include "transports/sum_tree.h"

/* ---- which policy ---- */

static int skips(const struct cmn_options *options)
{
    return options->nonfinite == CMN_NONFINITE_SKIP;
}

static const struct cmn_update_policy *choose(const struct cmn_options *options, int adam)
{
    if (options->local_steps > 1) {
        return options->double_buffering ? &cmn_delayed_local_sgd : &cmn_local_sgd;
    }
    if (options->double_buffering) {
        return &cmn_double_buffering;
    }
    return !adam && (options->compress != CMN_COMPRESS_OFF || options->lars > 0 ||
                     options->clip > 0 || skips(options) || options->exact)
               ? &cmn_separate_momentum
               : &cmn_synchronous;
}

/* Ends the job if cmn_overlap=on was given and this communicator cannot exchange here while
 * backward runs. */
static void check_overlap(const struct cmn_optimizer *o)
{
    const char *why = cmn_communicator_no_begin(&o->communicator, o->self);

    if (o->options->overlap == CMN_OVERLAP_ON && o->topology->size > 1 && why) {
        cmn_fatal("cmn_overlap=on: communicator %s: %s", o->communicator.name, why);
    }
}

void cmn_optimizer_plan(struct cmn_optimizer *o, const struct cmn_topology *t,
                        const struct cmn_options *options, const struct cmn_communicator *c,
                        void *self, int adam, const char *own)
{
    memset(o, 0, sizeof *o);
    o->topology = t;
    o->options = options;
    o->communicator = *c;
    o->whole = c;
    o->self = self;
    o->loss_scale = 1;
    o->own_update = t->device >= 0 && own;
    o->adam = adam && !o->own_update;
    o->own_adam = o->adam && t->device >= 0;
    o->policy = choose(options, o->adam);
    /* On a GPU one kernel updates all tensors, from gradients and a momentum that lies apart. */
    if (t->device >= 0 && o->policy == &cmn_synchronous && !adam && !own) {
        o->policy = &cmn_separate_momentum;
        o->velocity.as_gradients = 1;
    }
    /* With cmn_exact, norms must have the bits that one rank computes, which sums over each whole
     * tensor; a communicator's step sums the squares by chunks. */
    if (!o->policy->steps || adam || (options->exact && (options->clip > 0 || options->lars > 0))) {
        o->communicator.step = NULL;
        o->communicator.common = NULL;
    }
    if (o->policy->sends_copy) {
        o->communicator.memory = NULL;
    }
    check_overlap(o);
}

int cmn_optimizer_blocks(const struct cmn_optimizer *o, int first, int end)
{
    const struct cmn_options *options = o->options;
    int lossy = options->compress != CMN_COMPRESS_OFF;

    return o->policy->blocks + (options->ema > 0) + lossy +
           (options->exact ? cmn_sum_tree_most(first, end) : 0);
}

void cmn_optimizer_describe(const struct cmn_optimizer *o, char *text, size_t bytes)
{
    const struct cmn_options *options = o->options;
    int used;

    if (options->compress == CMN_COMPRESS_POWERSGD) {
        used = snprintf(text, bytes, "powersgd of rank %ld", options->compress_rank);
    } else {
        used = snprintf(text, bytes, "%s",
                        options->compress == CMN_COMPRESS_OFF
                            ? "fp32"
                            : cmn_options_word(options, "cmn_compress"));
    }
    if (options->lars > 0) {
        used += snprintf(text + used, bytes - (size_t)used, ", LARS %g", options->lars);
    }
    if (options->clip > 0) {
        used += snprintf(text + used, bytes - (size_t)used, ", clipped to %g", options->clip);
    }
    if (options->ema > 0) {
        used += snprintf(text + used, bytes - (size_t)used, ", EMA of %g", options->ema);
    }
    if (o->policy->own_weights) {
        used += snprintf(text + used, bytes - (size_t)used, ", averaged every %ld steps",
                         options->local_steps);
    }
    if (options->exact) {
        used += snprintf(text + used, bytes - (size_t)used, ", sums in a fixed order");
    }
    if (o->policy == &cmn_double_buffering || o->policy == &cmn_delayed_local_sgd) {
        snprintf(text + used, bytes - (size_t)used, ", double buffering");
    } else if (o->communicator.begin && !o->policy->own_weights && o->topology->size > 1) {
        snprintf(text + used, bytes - (size_t)used, ", overlap %s",
                 o->buckets.tuner.steps       ? "to be measured"
                 : o->buckets.tuner.bucket[0] ? "on"
                                              : "off");
    }
}

/* ---- the beginning ---- */

void cmn_optimizer_open(struct cmn_optimizer *o, struct cmn_gradients *g, int layers)
{
    int overlaps = !o->policy->sends_copy && !skips(o->options) && o->topology->size > 1 &&
                   !cmn_communicator_no_begin(&o->communicator, o->self);
    struct cmn_options options = *o->options;

    o->gradients = g;
    options.overlap = overlaps ? options.overlap : CMN_OVERLAP_OFF;
    cmn_buckets_open(&o->buckets, &options, g, layers);
    if (o->options->clip > 0 && o->policy == &cmn_synchronous && !g->on_gpu) {
        g->exchange.squares = &o->squares;
    }
    o->squares = -1;
    o->too_large = -1;
    o->policy->open(o);
    cmn_ema_open(&o->ema, options.ema, g, &o->communicator, o->self);
}

void cmn_optimizer_begin(struct cmn_optimizer *o)
{
    /* On a GPU the first step loads Darknet's kernels, and loading may wait for all running
     * kernels: an exchange among them waits for other ranks, and these for this rank. So the first
     * step has no overlap. */
    o->buckets.floats = o->topology->device >= 0 ? 0 : cmn_bucket_tuner_bucket(&o->buckets.tuner);
    if (o->policy->begin) {
        o->policy->begin(o);
    }
    if (o->ema.steps == 0) {
        cmn_ema_begin(&o->ema, o->gradients);
    }
}

/* ---- a step ---- */

void cmn_optimizer_add_in_order(struct cmn_optimizer *o, int micro_batches)
{
    struct cmn_exchange *x = &o->gradients->exchange;

    o->accumulation = cmn_accumulation_open(o->topology, &o->communicator, o->self, micro_batches,
                                            x->block.n + x->metrics.n);
    x->addends = cmn_accumulation_addends(o->accumulation);
}

void cmn_optimizer_divide(struct cmn_optimizer *o, const int *first)
{
    cmn_accumulation_deal(o->accumulation, first);
}

void cmn_optimizer_after_micro_batch(struct cmn_optimizer *o, const float *metrics)
{
    struct cmn_gradients *g = o->gradients;

    memcpy(g->metrics, metrics, CMN_METRICS * sizeof *metrics);
    cmn_accumulation_add(o->accumulation, g->flat);
}

void cmn_optimizer_after_backward(struct cmn_optimizer *o, int i)
{
    if (!cmn_buckets_begin(&o->buckets, &o->gradients->exchange, &o->communicator, o->self, i)) {
        cmn_optimizer_poll(o);
    }
}

void cmn_optimizer_poll(struct cmn_optimizer *o)
{
    if (o->topology && o->topology->size > 1 && o->communicator.poll) {
        o->communicator.poll(o->self);
    }
}

static void poll(void *self)
{
    cmn_optimizer_poll(self);
}

/* Returns whether the update needs the end of backward on the GPU. With double buffering it does
 * only if the host must look at the gradients before they are exchanged, or at the sums. */
static int waits_for_backward(const struct cmn_optimizer *o)
{
    return !o->policy->own_weights &&
           (!o->policy->sends_copy || cmn_decides_by_sums(o) || skips(o->options));
}

void cmn_optimizer_finish_backward(struct cmn_optimizer *o)
{
    if (!o->gradients->on_gpu || !waits_for_backward(o)) {
        return;
    }
    cmn_status_compute("backward on the GPU"); /* no other rank is waited for */
    cmn_device_wait(poll, o);
}

/* Each rank keeps its part of the sums that it adds to in the next step. */
void cmn_optimizer_leaves_out(struct cmn_optimizer *o, int layer)
{
    if (!o->policy->own_velocity && !o->policy->own_weights) {
        cmn_gradients_scale_layer(o->gradients, layer, 1.0F / (float)o->topology->size);
    }
}

int cmn_optimizer_update(struct cmn_optimizer *o, struct cmn_rule *rule, int images, int skip)
{
    int fresh;

    o->updating = 0;
    o->too_large = -1;
    fresh = skip ? o->policy->skip(o, rule, images) : o->policy->update(o, rule, images);
    o->darknet_updates = !rule->done && !o->policy->own_weights;
    return fresh;
}

int cmn_optimizer_after_update(struct cmn_optimizer *o, int synchronise)
{
    if (o->darknet_updates && o->options->ema > 0) {
        cmn_ema_follow(&o->ema, o->gradients, cmn_ema_next(&o->ema, o->gradients, 1));
    }
    o->darknet_updates = 0;
    cmn_velocity_from_darknet(o);
    return o->policy->after_update ? o->policy->after_update(o, synchronise) : 0;
}

const char *cmn_optimizer_step_took(struct cmn_optimizer *o, double seconds)
{
    int chosen = cmn_bucket_tuner_took(&o->buckets.tuner, seconds, o->topology);

    o->buckets.floats = cmn_bucket_tuner_bucket(&o->buckets.tuner);
    return chosen ? o->buckets.tuner.why : NULL;
}

int cmn_optimizer_synchronised(const struct cmn_optimizer *o)
{
    return !o->policy || !o->policy->synchronised || o->policy->synchronised(o);
}

/* ---- a restart, and the end ---- */

static void complete(struct cmn_optimizer *o)
{
    if (o->policy->complete) {
        o->policy->complete(o);
    }
}

void cmn_optimizer_pause(struct cmn_optimizer *o)
{
    complete(o);
    cmn_host_copies(o, CMN_HOST_PULL);
}

void cmn_optimizer_restored(struct cmn_optimizer *o)
{
    cmn_host_copies(o, CMN_HOST_PUSH);
}

enum cmn_state_owner cmn_optimizer_state(struct cmn_optimizer *o, int i, struct cmn_state *state)
{
    return o->policy->state(o, i, state);
}

int cmn_optimizer_replicates(const struct cmn_optimizer *o)
{
    return !o->policy->own_weights && o->communicator.sums;
}

struct cmn_momentum_part cmn_optimizer_momentum(struct cmn_optimizer *o)
{
    struct cmn_span *block = &o->gradients->exchange.block;
    struct cmn_momentum_part part = {block->data, 0, block->n, o->topology->size, 0};

    if (o->velocity.as_gradients) {
        part.data = cmn_host_copy(o, o->velocity.at, block->n);
        part.copies = part.whole = 1;
    } else if (o->policy->own_velocity) {
        part.n = 0;
    } else if (o->communicator.step) {
        o->communicator.momentum(o->self, part.n, &part.first, &part.n, &part.copies);
    } else if (!o->policy->own_weights) {
        part.data = cmn_host_copy(o, block->data, block->n);
    }
    return part;
}

int cmn_optimizer_momentum_apart(const struct cmn_optimizer *o)
{
    return o->policy->own_velocity && !o->velocity.as_gradients;
}

void cmn_optimizer_forget_stop_requests(struct cmn_optimizer *o)
{
    if (o->policy->forget_stop_requests) {
        o->policy->forget_stop_requests(o);
    }
}

void cmn_optimizer_close(struct cmn_optimizer *o)
{
    complete(o); /* the exchange uses memory that is freed below */
    cmn_host_copies(o, CMN_HOST_END);
    o->policy->close(o);
    cmn_accumulation_close(o->accumulation);
    o->accumulation = NULL;
    cmn_ema_close(&o->ema);
    cmn_buckets_close(&o->buckets);
}
