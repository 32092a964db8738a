/* The flat gradient buffer in the CPU's memory: the communicator's, where it has some. */
#include "engine/gradients.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"

static void move(float **tensor, float *to, size_t n, int copy)
{
    if (copy) {
        memcpy(to, *tensor, n * sizeof *to);
    }
    free(*tensor);
    *tensor = to;
}

static void open_cpu(struct cmn_gradients *g, size_t floats, const struct cmn_communicator *c,
                     void *self)
{
    if (c && c->memory && c->memory(self, floats, &g->flat)) {
        cmn_fatal_reason();
    }
    g->flat_is_ours = !g->flat;
    if (g->flat_is_ours) {
        g->flat = cmn_alloc_floats(floats);
    }
    if (c && c->step && c->common(self, floats, &g->exchange.weights, &g->fills_weights)) {
        cmn_fatal_reason();
    }
}

static void move_cpu(struct cmn_gradients *g, const struct cmn_tensor *t, size_t at)
{
    move(t->at, g->flat + at, t->n, 1);
    if (g->exchange.weights) {
        move(t->weight, g->exchange.weights + at, t->n, g->fills_weights);
    }
}

static void sum_cpu(struct cmn_gradients *g, const struct cmn_communicator *c, void *self)
{
    c->allreduce(self, &g->exchange);
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

const struct cmn_flat_buffer_ops cmn_flat_buffer_cpu = {open_cpu, move_cpu, sum_cpu, close_cpu};
