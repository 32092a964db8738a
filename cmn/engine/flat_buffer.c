/* The flat gradient buffer: its layout, and the factors of an update. */
#include "engine/gradients.h"

#include <stdlib.h>

#include "base/memory.h"

/* Moves the gradients into one block, in the order in which backward finishes them. */
static void fill(struct cmn_gradients *g, const struct cmn_block_memory *memory)
{
    size_t total = 0, at = 0;
    int spans = 0;

    for (int i = 0; i < g->tensors; i++) {
        total += g->tensor[i].kind == CMN_GRADIENT ? cmn_flat_padded(g->tensor[i].n) : 0;
    }
    g->ops->open(g, total + CMN_METRICS, memory);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT) {
            g->ops->move(g, t, at);
            g->tensor_of[spans] = i;
            g->span[spans++] = (struct cmn_span){g->flat + at, t->n, t->rows};
            at += cmn_flat_padded(t->n);
        }
    }
    g->exchange.tensor = g->span;
    g->exchange.tensors = spans;
    g->exchange.block = (struct cmn_span){.data = g->flat, .n = total};
    g->exchange.metrics = (struct cmn_span){.data = g->flat + total, .n = CMN_METRICS};
    g->metrics = g->metrics ? g->metrics : g->exchange.metrics.data;
    if (g->ops->ready) {
        g->ops->ready(g);
    }
}

void cmn_gradients_open(struct cmn_gradients *g, struct cmn_net *net,
                        const struct cmn_block_memory *memory)
{
    const struct cmn_block_memory own = {NULL, NULL, NULL};

    *g = (struct cmn_gradients){0};
    cmn_gradients_list(g, net);
    g->ops = g->on_gpu ? &cmn_flat_buffer_gpu : &cmn_flat_buffer_cpu;
    g->span = cmn_calloc((size_t)g->tensors, sizeof *g->span);
    g->tensor_of = cmn_calloc((size_t)g->tensors, sizeof *g->tensor_of);
    g->scale = cmn_calloc(3 * (size_t)g->tensors, sizeof *g->scale);
    g->rate = g->scale + g->tensors;
    g->decay = g->rate + g->tensors;
    fill(g, memory ? memory : &own);
}

void cmn_gradients_close(struct cmn_gradients *g)
{
    if (g->ops) {
        g->ops->close(g);
    }
    free(g->tensor);
    free(g->span);
    free(g->tensor_of);
    free(g->scale);
    *g = (struct cmn_gradients){0};
}

void cmn_gradients_rates(struct cmn_gradients *g, int images, float rate, float decay)
{
    for (int i = 0; i < g->exchange.tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[g->tensor_of[i]];
        g->scale[i] = 1;
        g->rate[i] = rate * *t->rate_scale / (float)images;
        g->decay[i] = t->decays ? -decay * (float)images : 0;
    }
}

void cmn_gradients_adam(struct cmn_gradients *g, float *sums, int images, float rate, float decay)
{
    for (int i = 0; i < g->exchange.tensors; i++) {
        g->scale[i] = 1;
        g->rate[i] = rate * *g->tensor[g->tensor_of[i]].rate_scale;
        g->decay[i] = -decay * (float)images;
    }
    g->ops->adam(g, sums);
}
