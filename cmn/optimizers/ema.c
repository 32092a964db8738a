#include "optimizers/ema.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/reduce.h"

/* ---- beginning and end ---- */

void cmn_ema_open(struct cmn_ema *e, double decay, const struct cmn_gradients *g,
                  const struct cmn_communicator *c, void *self)
{
    size_t floats = g->exchange.block.n + CMN_METRICS; /* also makes it more than 0 */

    *e = (struct cmn_ema){.decay = decay, .fills = 1};
    if (!(decay > 0)) {
        return;
    }
    if (c->step && c->common(self, floats, &e->weights, &e->fills)) {
        cmn_fatal_reason();
    }
    e->ours = !e->weights;
    e->ops = g->ops;
    if (e->ours) {
        e->weights = g->ops->memory(floats);
    }
    e->statistics = cmn_calloc(cmn_gradients_floats(g, CMN_STATISTIC) + 1, sizeof *e->statistics);
}

void cmn_ema_close(struct cmn_ema *e)
{
    if (e->ours) {
        e->ops->release(e->weights);
    }
    free(e->statistics);
    free(e->own);
    *e = (struct cmn_ema){0};
}

/* ---- following the weights ---- */

typedef void (*visit)(float *average, float **weights, size_t n, float part);

static void for_each(struct cmn_ema *e, const struct cmn_gradients *g, visit what, float part)
{
    int span = 0;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT) {
            const struct cmn_span *x = &g->exchange.tensor[span++];
            what(e->weights + (x->data - g->exchange.block.data), t->weight, t->n, part);
        }
    }
}

static void copy(float *average, float **weights, size_t n, float part)
{
    (void)part;
    memcpy(average, *weights, n * sizeof *average);
}

static void follow(float *average, float **weights, size_t n, float part)
{
    cmn_follow(average, *weights, part, n);
}

void cmn_ema_begin(struct cmn_ema *e, const struct cmn_gradients *g)
{
    if (!(e->decay > 0)) {
        return;
    }
    e->steps = 0;
    if (g->on_gpu) {
        g->ops->copy(e->weights, g->exchange.weights, g->exchange.block.n);
    } else if (e->fills) {
        for_each(e, g, copy, 0);
    }
    cmn_gradients_pack(g, CMN_STATISTIC, e->statistics);
}

float cmn_ema_next(struct cmn_ema *e, const struct cmn_gradients *g, long steps)
{
    double stays = 1;
    float part, *at = e->statistics;

    if (!(e->decay > 0)) {
        return 0;
    }
    for (long i = 0; i < steps; i++) {
        double t = (double)++e->steps, early = (1 + t) / (10 + t);
        stays *= early < e->decay ? early : e->decay;
    }
    part = (float)(1 - stays);
    cmn_gradients_pull(g, CMN_STATISTIC);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_STATISTIC) {
            cmn_follow(at, *t->at, part, t->n);
            at += t->n;
        }
    }
    return part;
}

void cmn_ema_follow(struct cmn_ema *e, const struct cmn_gradients *g, float part)
{
    if (g->on_gpu) {
        cmn_ema_follow_block(e, g, g->exchange.weights, part);
    } else {
        for_each(e, g, follow, part);
    }
}

void cmn_ema_follow_block(struct cmn_ema *e, const struct cmn_gradients *g, const float *weights,
                          float part)
{
    if (g->on_gpu) {
        g->ops->combine(e->weights, e->weights, -part, e->weights, g->exchange.block.n);
        g->ops->combine(e->weights, e->weights, part, weights, g->exchange.block.n);
    } else {
        cmn_follow(e->weights, weights, part, g->exchange.block.n);
    }
}

/* ---- in the network ---- */

/* Returns the pointer through which the network reads the weights when it computes. */
static float **pointer(const struct cmn_gradients *g, const struct cmn_tensor *t)
{
    return g->on_gpu ? t->device_weight : t->weight;
}

void cmn_ema_swap_in(struct cmn_ema *e, const struct cmn_gradients *g)
{
    int span = 0;

    e->own = cmn_calloc((size_t)g->exchange.tensors + 1, sizeof *e->own);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT) {
            const struct cmn_span *x = &g->exchange.tensor[span];
            e->own[span++] = *pointer(g, t);
            *pointer(g, t) = e->weights + (x->data - g->exchange.block.data);
        }
    }
}

void cmn_ema_restore(struct cmn_ema *e, const struct cmn_gradients *g)
{
    int span = 0;

    for (int i = 0; i < g->tensors && e->own; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT) {
            *pointer(g, t) = e->own[span++];
        }
    }
    free(e->own);
    e->own = NULL;
}
