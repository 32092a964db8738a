/* A net of tests/layers_table.h whose objective is a fixed sum of its outputs, in double
 * precision so that rounding stays small. A loss layer has an objective of its own. */
#ifndef TESTS_LAYERS_H
#define TESTS_LAYERS_H

#include "check.h"

#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "layers_table.h"
#include "nets.h"

/* What is there already where the gradient by the input goes, as by another layer that reads the
 * same. */
#define ADDED .25f

struct rig {
    const char *name;
    network *net;
    struct cmn_gradients g;
    float *input, *pull; /* what goes in; the objective's gradient by the outputs */
    size_t inputs, outputs;
    int own_cost;
    float nudge;
};

static inline void fill(float *x, size_t n, float low, float high)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = uniform(low, high);
    }
}

static inline layer *last(const struct rig *r)
{
    return &r->net->layers[r->net->n - 1];
}

static inline void open_rig(struct rig *r, const char *name, const char *keys, const char *cfg)
{
    char text[4096];

    memset(r, 0, sizeof *r);
    r->name = name;
    r->nudge = 1.f / 200;
    snprintf(text, sizeof text, "[net]\n%s%s", keys, cfg);
    r->net = nets_parse(text);
    cmn_gradients_open(&r->g, cmn_net_of(r->net), NULL);
    for (int i = 0; i < r->g.tensors; i++) {
        const struct cmn_tensor *t = &r->g.tensor[i];
        if (t->kind == CMN_WEIGHT) {
            int scales = !strcmp(t->name, "scales");
            fill(*t->at, t->n, scales ? .5f : -.6f, scales ? 1.5f : .6f);
        }
    }
    r->inputs = (size_t)r->net->inputs * (size_t)r->net->batch;
    r->outputs = (size_t)last(r)->outputs * (size_t)r->net->batch;
    r->input = calloc(r->inputs, sizeof *r->input);
    r->pull = calloc(r->outputs, sizeof *r->pull);
    r->net->delta = calloc(r->inputs, sizeof *r->net->delta);
    fill(r->input, r->inputs, -1, 1);
    fill(r->pull, r->outputs, -1, 1);
    fill(r->net->truth, (size_t)r->net->truths * (size_t)r->net->batch, 0, 1);
}

static inline void close_rig(struct rig *r)
{
    free(r->input);
    free(r->pull);
    free(r->net->delta);
    cmn_gradients_close(&r->g);
    nets_free(r->net);
}

static inline double value(struct rig *r)
{
    double sum = 0;

    srand(9); /* dropout */
    memcpy(r->net->input, r->input, r->inputs * sizeof *r->input);
    r->net->train = 1;
    nets_forward(r->net);
    if (r->own_cost) {
        return *last(r)->cost;
    }
    for (size_t i = 0; i < r->outputs; i++) {
        sum += (double)r->pull[i] * (double)last(r)->output[i];
    }
    return sum;
}

static inline void backward(struct rig *r)
{
    value(r);
    for (size_t i = 0; i < r->inputs; i++) {
        r->net->delta[i] = ADDED;
    }
    memset(r->g.flat, 0, r->g.exchange.block.n * sizeof *r->g.flat);
    if (!r->own_cost) {
        memcpy(last(r)->delta, r->pull, r->outputs * sizeof *r->pull);
    }
    nets_backward(r->net);
}

#endif
