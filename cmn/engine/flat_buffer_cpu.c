/* The flat gradient buffer in the CPU's memory. */
#include "engine/gradients.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/reduce.h"

static void move(float **tensor, float *to, size_t n, int copy)
{
    if (copy) {
        memcpy(to, *tensor, n * sizeof *to);
    }
    free(*tensor);
    *tensor = to;
}

static void open_cpu(struct cmn_gradients *g, size_t floats, const struct cmn_block_memory *memory)
{
    if (memory->flat && memory->flat(memory->self, floats, &g->flat)) {
        cmn_fatal_reason();
    }
    g->flat_is_ours = !g->flat;
    if (g->flat_is_ours) {
        g->flat = cmn_alloc_floats(floats);
    }
    if (memory->weights &&
        memory->weights(memory->self, floats, &g->exchange.weights, &g->fills_weights)) {
        cmn_fatal_reason();
    }
}

static void move_cpu(struct cmn_gradients *g, const struct cmn_tensor *t, size_t at)
{
    move(t->at, g->flat + at, t->n, 0); /* both are 0: nothing was trained yet */
    if (g->exchange.weights) {
        move(t->weight, g->exchange.weights + at, t->n, g->fills_weights);
    }
}

static void close_cpu(struct cmn_gradients *g)
{
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT) {
            *t->at = NULL;
        }
        if (t->kind == CMN_GRADIENT && g->exchange.weights) {
            *t->weight = NULL;
        }
    }
    if (g->flat_is_ours) {
        free(g->flat);
    }
}

/* ---- other blocks ---- */

static float *memory_cpu(size_t floats)
{
    return cmn_alloc_floats(floats);
}

static void release_cpu(float *memory)
{
    free(memory);
}

static void copy_cpu(float *to, const float *from, size_t n)
{
    memcpy(to, from, n * sizeof *to);
}

static void zero_cpu(float *x, size_t n)
{
    memset(x, 0, n * sizeof *x);
}

static void send_cpu(struct cmn_gradients *g, float *to, const float *metrics)
{
    (void)g;
    memcpy(to, metrics, CMN_METRICS * sizeof *to);
}

static void fetch_cpu(struct cmn_gradients *g, float *metrics, const float *from)
{
    (void)g;
    memcpy(metrics, from, CMN_METRICS * sizeof *metrics);
}

static void squares_cpu(struct cmn_gradients *g, const float *block, double *sum)
{
    for (int i = 0; i < g->exchange.tensors; i++) {
        const struct cmn_span *x = &g->exchange.tensor[i];
        const float *in_block = block ? block + (x->data - g->exchange.block.data) : NULL;
        sum[i] = cmn_sum_of_squares(in_block ? in_block : *g->tensor[g->tensor_of[i]].weight, x->n);
    }
}

const struct cmn_flat_buffer_ops cmn_flat_buffer_cpu = {
    .open = open_cpu,
    .move = move_cpu,
    .close = close_cpu,
    .memory = memory_cpu,
    .release = release_cpu,
    .host_memory = memory_cpu,
    .host_release = release_cpu,
    .copy = copy_cpu,
    .zero = zero_cpu,
    .scale = cmn_scale,
    .write = copy_cpu,
    .read = copy_cpu,
    .send_metrics = send_cpu,
    .fetch_metrics = fetch_cpu,
    .squares = squares_cpu,
};
