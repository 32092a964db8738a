/* What the update policies have in common. */
#include "optimizers/update_policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "base/timeline.h"
#include "compression/compressor.h"
#include "optimizers/clip.h"
#include "optimizers/lars.h"

/* ---- the update with the momentum apart from the gradients ---- */

void cmn_velocity_open(struct cmn_optimizer *o)
{
    o->velocity = o->gradients->ops->memory(o->gradients->exchange.block.n + 1);
}

void cmn_velocity_close(struct cmn_optimizer *o)
{
    o->gradients->ops->release(o->velocity);
    o->velocity = NULL;
}

/* The norm of the mean of the sums in x, wherever they lie. */
static double norm_of(struct cmn_optimizer *o, const struct cmn_exchange *x, int images)
{
    struct cmn_gradients *g = o->gradients;
    double *square, sum = 0;

    if (o->squares >= 0) {
        return sqrt(o->squares) / images;
    }
    if (!g->on_gpu) {
        return cmn_clip_norm(x, images);
    }
    square = cmn_calloc((size_t)x->tensors + 1, sizeof *square);
    g->ops->squares(g, x->block.data, square);
    for (int i = 0; i < x->tensors; i++) {
        sum += square[i];
    }
    free(square);
    return sqrt(sum) / images;
}

/* Returns whether the sums were scaled down. */
static int clip(struct cmn_optimizer *o, const struct cmn_exchange *x, double norm)
{
    double keeps = cmn_clip_keeps(o->options->clip, norm);

    if (!o->gradients->on_gpu) {
        return cmn_clip(x, o->options->clip, norm);
    }
    if (keeps < 1) {
        o->gradients->ops->scale(x->block.data, (float)keeps, x->block.n);
    }
    return keeps < 1;
}

/* Whether the step is no outlier. */
static int is_usual(struct cmn_optimizer *o, double norm)
{
    struct cmn_left_out *left = &o->left_out;

    left->value[CMN_OUTLIER_LOSS] = (double)o->metrics[CMN_LOSS] / (double)o->metrics[CMN_IMAGES];
    left->value[CMN_OUTLIER_NORM] = norm;
    left->before = o->outlier;
    left->answer = cmn_outlier_check(&o->outlier, o->options->outlier, left->value, &left->which);
    return left->answer != CMN_OUTLIER_LEFT_OUT;
}

/* The first tensor of x whose sum is not finite, or -1. A GPU looks for that where the sums were rounded to
 * 16 bits on their way. The same on all ranks. */
static int first_too_large(const struct cmn_optimizer *o, const struct cmn_exchange *x)
{
    const struct cmn_gradients *g = o->gradients;
    int bad = -1;

    if (!g->on_gpu || o->options->dtype == CMN_FP32 ||
        o->options->nonfinite == CMN_NONFINITE_IGNORE) {
        return -1;
    }
    for (size_t at = 0; at < x->block.n && bad < 0; at += g->exchange.block.n) {
        bad = g->ops->nonfinite(g, x->block.data + at);
    }
    return bad;
}

static _Noreturn void end_too_large(const struct cmn_optimizer *o, int tensor)
{
    char text[CMN_TOO_LARGE];

    cmn_say_too_large(o, tensor, text);
    cmn_fatal("%s", text);
}

void cmn_say_too_large(const struct cmn_optimizer *o, int tensor, char text[CMN_TOO_LARGE])
{
    const struct cmn_tensor *t = &o->gradients->tensor[tensor];

    snprintf(text, CMN_TOO_LARGE,
             "layer %d, %s%s: the sum of the gradients does not fit into 16 bits "
             "(cmn_allreduce_dtype=%s): use bf16, or lower learning_rate",
             t->layer, t->part, t->name, cmn_options_word(o->options, "cmn_allreduce_dtype"));
}

int cmn_use_sums(struct cmn_optimizer *o, const struct cmn_exchange *x, int images)
{
    const struct cmn_options *options = o->options;
    double began = cmn_clock(), ended, norm;
    int used = 1;

    o->too_large = first_too_large(o, x);
    if (o->too_large >= 0 && options->nonfinite == CMN_NONFINITE_STOP) {
        end_too_large(o, o->too_large);
    }
    if (o->too_large >= 0) {
        o->gradients->ops->zero(x->block.data, x->block.n);
        return 0;
    }
    if (!(options->clip > 0 || options->outlier > 0)) {
        return 1;
    }
    norm = norm_of(o, x, images);
    if (options->outlier > 0 && !is_usual(o, norm)) {
        o->outliers++;
        o->gradients->ops->zero(x->block.data, x->block.n);
        used = 0;
    } else if (options->clip > 0) {
        o->clipped += clip(o, x, norm);
    }
    ended = cmn_clock();
    o->updating += ended - began;
    cmn_timeline_span(CMN_SPAN_UPDATE, -1, began, ended);
    return used;
}

/* As cmn_lars_prepare(), for all tensors. */
static void set_lars_rates(struct cmn_optimizer *o, const float *sums, const struct cmn_rule *rule,
                           int images)
{
    struct cmn_gradients *g = o->gradients;
    size_t n = (size_t)g->exchange.tensors;
    double *square = cmn_calloc(2 * n + 1, sizeof *square);

    g->ops->squares(g, g->exchange.weights, square);
    g->ops->squares(g, sums, square + n);
    for (size_t i = 0; i < n; i++) {
        double l = cmn_lars_rate_of(sqrt(square[i]), sqrt(square[n + i]), o->options->lars, images,
                                    (double)rule->decay);
        if (g->tensor[g->tensor_of[i]].decays) {
            g->scale[i] = (float)((double)g->rate[i] * l);
            g->decay[i] *= g->scale[i];
            g->rate[i] = 1;
        }
    }
    free(square);
}

/* The average follows the weights. */
static void follow_on_gpu(struct cmn_optimizer *o)
{
    if (o->ema.decay > 0) {
        cmn_ema_follow(&o->ema, o->gradients, cmn_ema_next(&o->ema, o->gradients, 1));
    }
}

/* One kernel for all tensors. */
static void update_on_gpu(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule,
                          int images)
{
    if (o->options->lars > 0) {
        set_lars_rates(o, sums, rule, images);
    }
    o->gradients->ops->sgd(o->gradients, o->velocity, sums, rule->momentum);
    follow_on_gpu(o);
}

static void update_on_cpu(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule,
                          int images)
{
    struct cmn_gradients *g = o->gradients;
    float follows = cmn_ema_next(&o->ema, g, 1);
    int span = 0;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        struct cmn_sgd_slice how = {.momentum = rule->momentum, .part = follows};
        size_t at;
        float *part[2];
        if (t->kind != CMN_GRADIENT) {
            continue;
        }
        at = (size_t)(g->exchange.tensor[span].data - g->exchange.block.data);
        how.rate = g->rate[span];
        how.decay = g->decay[span++];
        if (o->options->lars > 0 && t->decays) {
            cmn_lars_prepare(&how, *t->weight, sums + at, t->n, o->options->lars, images,
                             rule->decay);
        }
        how.average = o->ema.weights ? o->ema.weights + at : NULL;
        part[0] = o->velocity + at;
        part[1] = sums + at;
        cmn_reduce_sgd(*t->weight, part, 2, 0, &how, t->n);
    }
}

static void note_update(struct cmn_optimizer *o, double began)
{
    double ended = cmn_clock();

    o->updating += ended - began;
    cmn_timeline_span(CMN_SPAN_UPDATE, -1, began, ended);
}

void cmn_adam_update(struct cmn_optimizer *o, const struct cmn_rule *rule, int images)
{
    double began = cmn_clock();

    cmn_gradients_adam(o->gradients, images, rule->rate, rule->decay);
    follow_on_gpu(o);
    note_update(o, began);
}

void cmn_velocity_update(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule,
                         int images)
{
    double began = cmn_clock();

    cmn_gradients_rates(o->gradients, images, rule->rate, rule->decay);
    if (o->gradients->on_gpu) {
        update_on_gpu(o, sums, rule, images);
    } else {
        update_on_cpu(o, sums, rule, images);
    }
    note_update(o, began);
}

/* ---- exchanges ---- */

void cmn_prepare(struct cmn_optimizer *o, const struct cmn_exchange *x)
{
    const struct cmn_communicator *c = &o->communicator;

    int begins = o->gradients->on_gpu ? o->options->compress != CMN_COMPRESS_NONE
                                      : !(c->no_begin && c->no_begin(o->self));

    if (c->begin && begins) {
        c->begin(o->self, x, 0);
    }
}

void cmn_sum_begin(struct cmn_optimizer *o, size_t upto)
{
    o->communicator.begin(o->self, &o->gradients->exchange, upto);
}

void cmn_sum_poll(struct cmn_optimizer *o)
{
    if (o->communicator.poll) {
        o->communicator.poll(o->self);
    }
}

void cmn_sum_gradients(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    struct cmn_gradients *g = o->gradients;
    const struct cmn_communicator *c = &o->communicator;

    memcpy(g->metrics, o->metrics, sizeof o->metrics);
    if (rule && c->step) {
        g->exchange.average = o->ema.weights;
        g->exchange.part = cmn_ema_next(&o->ema, g, 1);
        cmn_gradients_step(g, c, o->self, images, rule->rate, rule->momentum, rule->decay);
        rule->done = 1;
    } else {
        o->squares = -1;
        cmn_gradients_sum(g, c, o->self);
    }
    memcpy(o->metrics, g->metrics, sizeof o->metrics);
    o->begun = 0;
}

static float *memory_for(struct cmn_optimizer *o, size_t floats)
{
    float *memory = NULL;

    if (o->gradients->on_gpu) {
        return o->copy.own = o->gradients->ops->memory(floats);
    }
    if (o->whole->memory && o->whole->memory(o->self, floats, &memory)) {
        cmn_fatal_reason();
    }
    return memory ? memory : (o->copy.own = cmn_alloc_floats(floats));
}

void cmn_copy_open(struct cmn_optimizer *o, int copies)
{
    const struct cmn_exchange *from = &o->gradients->exchange;
    struct cmn_exchange_copy *to = &o->copy;
    size_t n = from->block.n, all = n * (size_t)copies;
    float *memory = memory_for(o, all + CMN_METRICS);
    int tensors = 0;

    to->tensor = cmn_calloc((size_t)from->tensors * (size_t)copies + 1, sizeof *to->tensor);
    for (int copy = 0; copy < copies; copy++) {
        for (int i = 0; i < from->tensors; i++) {
            struct cmn_span *span = &to->tensor[tensors++];
            *span = from->tensor[i];
            span->data = memory + (size_t)copy * n + (from->tensor[i].data - from->block.data);
        }
    }
    to->x = (struct cmn_exchange){
        .tensor = to->tensor,
        .tensors = tensors,
        .block = {.data = memory, .n = all},
        .metrics = {.data = memory + all, .n = CMN_METRICS},
    };
}

void cmn_copy_begin(struct cmn_optimizer *o)
{
    const struct cmn_exchange *x = &o->copy.x;

    o->copy.under_way = 1;
    o->communicator.begin(o->self, x, x->block.n + x->metrics.n);
}

void cmn_copy_sum(struct cmn_optimizer *o)
{
    int bad;

    o->communicator.allreduce(o->self, &o->copy.x);
    bad = o->policy->own_weights ? first_too_large(o, &o->copy.x) : -1;
    if (bad >= 0) {
        end_too_large(o, bad);
    }
}

void cmn_copy_complete(struct cmn_optimizer *o)
{
    if (o->copy.under_way) {
        o->copy.under_way = 0;
        o->copy.arrived = 1;
        cmn_copy_sum(o);
    }
}

void cmn_copy_close(struct cmn_optimizer *o)
{
    o->gradients->ops->release(o->copy.own);
    free(o->copy.tensor);
    memset(&o->copy, 0, sizeof o->copy);
}

/* ---- what a restart needs ---- */

float *cmn_host_copy(struct cmn_optimizer *o, float *block, size_t n)
{
    const struct cmn_flat_buffer_ops *ops = o->gradients->ops;
    struct cmn_host_copy *copy = o->host_copy;

    if (!o->gradients->on_gpu) {
        return block;
    }
    while (copy->block && copy->block != block) {
        copy++;
    }
    if (!copy->block) {
        *copy = (struct cmn_host_copy){block, ops->host_memory(n), n};
        ops->read(copy->host, block, n);
    }
    return copy->host;
}

void cmn_host_copies(struct cmn_optimizer *o, enum cmn_host_copies what)
{
    const struct cmn_flat_buffer_ops *ops = o->gradients->ops;

    for (struct cmn_host_copy *copy = o->host_copy; copy->block; copy++) {
        if (what == CMN_HOST_PULL) {
            ops->read(copy->host, copy->block, copy->n);
        } else if (what == CMN_HOST_PUSH) {
            ops->write(copy->block, copy->host, copy->n);
        } else {
            ops->host_release(copy->host);
            *copy = (struct cmn_host_copy){NULL, NULL, 0};
        }
    }
}

enum cmn_state_owner cmn_policy_entry(struct cmn_optimizer *o, const struct cmn_policy_entry *entry,
                                      int entries, int i, struct cmn_state *state)
{
    int is;

    if (i < entries) {
        *state = entry[i].state;
        if (entry[i].is_block) {
            state->data = cmn_host_copy(o, state->data, state->bytes / sizeof(float));
        }
        return o->communicator.sums ? entry[i].owner : CMN_STATE_OF_RANK;
    }
    is = o->communicator.state ? o->communicator.state(o->self, i - entries, state) : 0;
    if (is == 2) {
        state->data = cmn_host_copy(o, state->data, state->bytes / sizeof(float));
    }
    return is ? CMN_STATE_OF_COMMUNICATOR : CMN_STATE_END;
}
