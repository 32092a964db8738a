/* The update policies share the functions of this file. */
#include "optimizers/update_policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "base/timeline.h"
#include "compression/compressor.h"
#include "mpi/call.h"
#include "optimizers/accumulation.h"

/* ---- the momentum apart from the gradients ---- */

void cmn_velocity_open(struct cmn_optimizer *o)
{
    const struct cmn_communicator *c = &o->communicator;
    size_t floats = o->gradients->exchange.block.n + 1;

    o->velocity.fills = 1;
    if (c->step && c->common(o->self, floats, &o->velocity.at, &o->velocity.fills)) {
        cmn_fatal_reason();
    }
    o->velocity.ours = !o->velocity.at;
    if (o->velocity.ours) {
        o->velocity.at = o->gradients->ops->memory(floats);
    }
}

void cmn_velocity_close(struct cmn_optimizer *o)
{
    if (o->velocity.ours) {
        o->gradients->ops->release(o->velocity.at);
    }
    o->velocity.at = NULL;
}

void cmn_velocity_to_darknet(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    struct cmn_span *block = &o->gradients->exchange.block;

    rule->done = !o->velocity.darknet_follows;
    if (o->velocity.darknet_follows) {
        o->gradients->ops->copy(block->data, o->velocity.at, block->n);
        rule->batch = images;
    }
}

/* If Darknet left a layer out of its update, the whole sum is still there, and the next step adds
 * to it. */
void cmn_velocity_from_darknet(struct cmn_optimizer *o)
{
    struct cmn_span *block = &o->gradients->exchange.block;

    if (o->velocity.darknet_follows) {
        o->gradients->ops->copy(o->velocity.at, block->data, block->n);
        o->gradients->ops->zero(block->data, block->n);
        o->velocity.darknet_follows = 0;
    }
}

static void note_update(struct cmn_optimizer *o, double began)
{
    double ended = cmn_clock();

    o->updating += ended - began;
    cmn_timeline_span(CMN_SPAN_UPDATE, -1, began, ended);
}

/* ---- what becomes of the sums ---- */

double cmn_clip_keeps(double limit, double norm)
{
    double keeps = limit / (norm + 1e-6);

    return keeps < 1 ? keeps : 1;
}

double cmn_lars_rate(double weights, double sum, double coefficient, double images, double decay)
{
    double against = sum / images + decay * weights;

    return weights > 0 && against > 0 ? coefficient * weights / against : 1;
}

static double total(const double *square, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        sum += square[i];
    }
    return sum;
}

static int may_be_too_large(const struct cmn_optimizer *o)
{
    return o->gradients->on_gpu && cmn_wire_type(o->options) != CMN_FP32 &&
           o->options->nonfinite != CMN_NONFINITE_IGNORE;
}

int cmn_decides_by_sums(const struct cmn_optimizer *o)
{
    return o->options->clip > 0 || o->options->lars > 0 || may_be_too_large(o);
}

/* Returns the first tensor of x whose sum is not finite, or -1; the same on all ranks. Only a GPU
 * checks this, and only if the sums were rounded to 16 bits on their way. */
static int first_too_large(const struct cmn_optimizer *o, const struct cmn_exchange *x)
{
    const struct cmn_gradients *g = o->gradients;
    int bad = -1;

    for (size_t at = 0; may_be_too_large(o) && at < x->block.n && bad < 0;
         at += g->exchange.block.n) {
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
             "layer %d, %s: the sum of the gradients does not fit into 16 bits "
             "(cmn_compress=%s): use bf16, or lower learning_rate",
             t->layer, t->name, cmn_options_word(o->options, "cmn_compress"));
}

/* Sets o->keeps from the norm of the mean gradient. */
static void clip(struct cmn_optimizer *o, double norm)
{
    o->keeps = 1;
    if (o->options->clip > 0) {
        o->keeps = cmn_clip_keeps(o->options->clip, norm);
        o->clipped += o->keeps < 1;
    }
}

/* Returns the sum of squares of each tensor in `block`; the caller frees the array. */
static double *squares_of(struct cmn_optimizer *o, const float *block)
{
    struct cmn_gradients *g = o->gradients;
    double *square = cmn_calloc((size_t)g->exchange.tensors + 1, sizeof *square);

    g->ops->squares(g, block, square);
    return square;
}

static double norm_of(struct cmn_optimizer *o, const struct cmn_exchange *x, int images)
{
    double squares = o->squares, *square;

    if (squares < 0) {
        square = squares_of(o, x->block.data);
        squares = total(square, x->tensors);
        free(square);
    }
    return sqrt(squares) / images / o->loss_scale;
}

int cmn_use_sums(struct cmn_optimizer *o, const struct cmn_exchange *x, int images)
{
    double began = cmn_clock();

    o->keeps = 1;
    o->too_large = first_too_large(o, x);
    if (o->too_large >= 0 && o->options->nonfinite == CMN_NONFINITE_STOP) {
        end_too_large(o, o->too_large);
    }
    if (o->too_large >= 0) {
        o->gradients->ops->zero(x->block.data, x->block.n);
        return 0;
    }
    if (o->options->clip > 0) {
        clip(o, norm_of(o, x, images));
        note_update(o, began);
    }
    return 1;
}

/* Sets rate, decay and scale of each tensor for an update that takes o->keeps of the sums. `square`
 * and `of_weights` hold the sums of squares of each tensor's sums and weights; they are read only
 * with cmn_lars. */
static void set_rates(struct cmn_optimizer *o, const struct cmn_rule *rule, int images,
                      const double *square, const double *of_weights)
{
    struct cmn_gradients *g = o->gradients;

    cmn_gradients_rates(g, images, rule->rate, rule->decay);
    for (int i = 0; i < g->exchange.tensors; i++) {
        g->scale[i] = (float)o->keeps;
        if (o->options->lars > 0 && g->tensor[g->tensor_of[i]].decays) {
            double l = cmn_lars_rate(sqrt(of_weights[i]), o->keeps * sqrt(square[i]),
                                     o->options->lars, images, (double)rule->decay);
            float rate = (float)((double)g->rate[i] * l);
            g->scale[i] = (float)(o->keeps * (double)rate);
            g->decay[i] *= rate;
            g->rate[i] = 1;
        }
    }
}

/* ---- the update with the momentum apart from the gradients ---- */

/* Lets the average follow the weights. Only a GPU needs this: on the CPU it happens in the
 * update. */
static void follow_on_gpu(struct cmn_optimizer *o)
{
    if (o->ema.decay > 0) {
        cmn_ema_follow(&o->ema, o->gradients, cmn_ema_next(&o->ema, o->gradients, 1));
    }
}

static void update_on_gpu(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule)
{
    o->gradients->ops->sgd(o->gradients, o->velocity.at, sums, rule->momentum);
    follow_on_gpu(o);
}

static void update_on_cpu(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule)
{
    const struct cmn_gradients *g = o->gradients;
    float part = cmn_ema_next(&o->ema, g, 1);

    for (int i = 0; i < g->exchange.tensors; i++) {
        const struct cmn_span *x = &g->exchange.tensor[i];
        size_t at = (size_t)(x->data - g->exchange.block.data);
        struct cmn_sgd_slice how = {
            .momentum = rule->momentum,
            .rate = g->rate[i],
            .decay = g->decay[i],
            .scale = g->scale[i],
            .average = o->ema.weights ? o->ema.weights + at : NULL,
            .part = part,
        };
        cmn_sgd_apart(*g->tensor[g->tensor_of[i]].weight, o->velocity.at + at, sums + at, &how,
                      x->n);
    }
}

void cmn_adam_update(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule, int images)
{
    double began = cmn_clock();

    cmn_gradients_adam(o->gradients, sums, images, rule->rate, rule->decay);
    follow_on_gpu(o);
    note_update(o, began);
}

void cmn_velocity_update(struct cmn_optimizer *o, float *sums, const struct cmn_rule *rule,
                         int images)
{
    struct cmn_gradients *g = o->gradients;
    int lars = o->options->lars > 0;
    size_t n = g->exchange.block.n;
    double began = cmn_clock(), *square = lars ? squares_of(o, sums) : NULL,
           *of_weights = lars ? squares_of(o, g->exchange.weights) : NULL;

    set_rates(o, rule, images, square, of_weights);
    free(square);
    free(of_weights);
    if (o->own_update) {
        g->ops->combine(o->velocity.at, o->velocity.at, (float)o->keeps, sums, n);
        g->ops->zero(sums, n);
        o->velocity.darknet_follows = 1;
    } else if (g->on_gpu) {
        update_on_gpu(o, sums, rule);
    } else {
        update_on_cpu(o, sums, rule);
    }
    note_update(o, began);
}

/* ---- the same by a communicator, each rank a slice ---- */

struct step {
    struct cmn_optimizer *o;
    const struct cmn_rule *rule;
    int images;
};

/* The communicator calls this between sum and update, with the sums of squares of each tensor. It
 * makes the same decisions as cmn_use_sums() and cmn_velocity_update(). */
static void look_in_step(void *self, const double *square)
{
    const struct step *step = self;
    struct cmn_optimizer *o = step->o;
    struct cmn_exchange *x = &o->gradients->exchange;

    clip(o, sqrt(total(square, x->tensors)) / step->images);
    set_rates(o, step->rule, step->images, square, square + x->tensors);
    x->part = cmn_ema_next(&o->ema, o->gradients, 1);
}

static void sum_and_update(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    struct cmn_gradients *g = o->gradients;
    struct step step = {o, rule, images};
    struct cmn_sgd sgd = {.momentum = rule->momentum, .velocity = o->velocity.at};

    g->exchange.average = o->ema.weights;
    if (o->velocity.at && (o->options->clip > 0 || o->options->lars > 0)) {
        sgd.look = look_in_step;
        sgd.look_self = &step;
        sgd.looks_at_weights = o->options->lars > 0;
    } else {
        g->exchange.part = cmn_ema_next(&o->ema, g, 1);
    }
    cmn_gradient_exchange_step(g, &o->communicator, o->self, images, rule->rate, rule->decay, &sgd);
    rule->done = 1;
}

/* ---- exchanges ---- */

/* Ends the accumulation of cmn_exact. The metrics in the flat buffer are those of this rank's last
 * micro-batch; its stop requests are written to them. A rank without a micro-batch has no addend,
 * so if there is one, all ranks sum the stop requests in a separate allreduce (*request). Such a
 * rank begins here the buckets that the others began during backward. */
static void end_accumulation(struct cmn_optimizer *o, MPI_Request *request)
{
    struct cmn_gradients *g = o->gradients;
    float *requests = o->metrics + CMN_INTERRUPTS;

    for (int i = o->buckets.floats ? o->buckets.layers : 0; i-- > 0;) {
        cmn_buckets_begin(&o->buckets, &g->exchange, &o->communicator, o->self, i);
    }
    cmn_accumulation_end_step(o->accumulation);
    if (cmn_accumulation_idle(o->accumulation)) {
        MPI_CALL(MPI_Iallreduce(MPI_IN_PLACE, requests, 2, MPI_FLOAT, MPI_SUM, o->topology->world,
                                request));
    } else {
        memcpy(g->metrics + CMN_INTERRUPTS, requests, 2 * sizeof *requests);
    }
}

void cmn_prepare(struct cmn_optimizer *o, const struct cmn_exchange *x)
{
    const struct cmn_communicator *c = &o->communicator;

    if (!cmn_communicator_no_begin(c, o->self)) {
        c->begin(o->self, x, 0);
    }
}

void cmn_sum_gradients(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    struct cmn_gradients *g = o->gradients;
    const struct cmn_communicator *c = &o->communicator;
    MPI_Request request = MPI_REQUEST_NULL;

    if (o->accumulation) {
        end_accumulation(o, &request);
    } else {
        memcpy(g->metrics, o->metrics, sizeof o->metrics);
    }
    if (rule && c->step) {
        sum_and_update(o, rule, images);
    } else {
        o->squares = -1;
        cmn_gradient_exchange_sum(g, c, o->self);
    }
    if (request != MPI_REQUEST_NULL) {
        MPI_CALL(MPI_Wait(&request, MPI_STATUS_IGNORE));
        memcpy(g->metrics + CMN_INTERRUPTS, o->metrics + CMN_INTERRUPTS, 2 * sizeof *g->metrics);
    }
    memcpy(o->metrics, g->metrics, sizeof o->metrics);
    o->buckets.begun = 0;
}

static float *memory_for(struct cmn_optimizer *o, struct cmn_exchange_copy *copy, size_t floats)
{
    float *memory = NULL;

    if (o->whole->memory && o->whole->memory(o->self, floats, &memory)) {
        cmn_fatal_reason();
    }
    return memory ? memory : (copy->own = o->gradients->ops->memory(floats));
}

void cmn_copy_open(struct cmn_optimizer *o, struct cmn_exchange_copy *copy, int blocks)
{
    const struct cmn_exchange *from = &o->gradients->exchange;
    size_t n = from->block.n, all = n * (size_t)blocks;
    float *memory = memory_for(o, copy, all + CMN_METRICS);
    int tensors = 0;

    copy->tensor = cmn_calloc((size_t)from->tensors * (size_t)blocks + 1, sizeof *copy->tensor);
    for (int block = 0; block < blocks; block++) {
        for (int i = 0; i < from->tensors; i++) {
            struct cmn_span *span = &copy->tensor[tensors++];
            *span = from->tensor[i];
            span->data = memory + (size_t)block * n + (from->tensor[i].data - from->block.data);
        }
    }
    copy->x = (struct cmn_exchange){
        .tensor = copy->tensor,
        .tensors = tensors,
        .block = {.data = memory, .n = all},
        .metrics = {.data = memory + all, .n = CMN_METRICS},
    };
}

void cmn_copy_begin(struct cmn_optimizer *o, struct cmn_exchange_copy *copy)
{
    copy->under_way = 1;
    o->communicator.begin(o->self, &copy->x, copy->x.block.n + copy->x.metrics.n);
}

void cmn_copy_sum(struct cmn_optimizer *o, struct cmn_exchange_copy *copy)
{
    int bad;

    o->communicator.allreduce(o->self, &copy->x);
    bad = o->policy->own_weights ? first_too_large(o, &copy->x) : -1;
    if (bad >= 0) {
        end_too_large(o, bad);
    }
}

void cmn_copy_complete(struct cmn_optimizer *o, struct cmn_exchange_copy *copy)
{
    if (copy->under_way) {
        copy->under_way = 0;
        copy->arrived = 1;
        cmn_copy_sum(o, copy);
    }
}

void cmn_copy_forget_stop_requests(struct cmn_optimizer *o, struct cmn_exchange_copy *copy)
{
    const float none[] = {0, 0};

    _Static_assert(CMN_TERMINATIONS == CMN_INTERRUPTS + 1, "both are written at once");
    o->gradients->ops->write(copy->x.metrics.data + CMN_INTERRUPTS, none, 2);
}

void cmn_copy_close(struct cmn_optimizer *o, struct cmn_exchange_copy *copy)
{
    o->gradients->ops->release(copy->own);
    free(copy->tensor);
    memset(copy, 0, sizeof *copy);
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
    return is ? CMN_STATE_OF_COMMUNICATOR : CMN_STATE_END;
}
