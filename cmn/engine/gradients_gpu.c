#include "engine/gradients_gpu.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "mpi/device.h"
#include "base/log.h"

#ifdef GPU
/* Darknet's fields for the same tensor. */
static const struct {
    const char *name;
    size_t host, device;
} fields[] = {
#define FIELD(name)                                               \
    {                                                             \
#name, offsetof(layer, name), offsetof(layer, name##_gpu) \
    }
    FIELD(weights),
    FIELD(biases),
    FIELD(scales),
    FIELD(weight_updates),
    FIELD(bias_updates),
    FIELD(scale_updates),
    FIELD(rolling_mean),
    FIELD(rolling_variance),
    FIELD(m),
    FIELD(v),
    FIELD(bias_m),
    FIELD(bias_v),
    FIELD(scale_m),
    FIELD(scale_v),
#undef FIELD
};
#endif

/* The network's pointer to the tensor on the GPU: it lies in the same struct layer as t->at. */
static float **on_device(const struct cmn_tensor *t)
{
#ifdef GPU
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!strcmp(fields[i].name, t->name)) {
            return (float **)((char *)t->at - fields[i].host + fields[i].device);
        }
    }
#endif
    cmn_fail("gradients: layer %d %s%s has no place on the GPU", t->layer, t->part, t->name);
    return NULL;
}

static int move(const struct cmn_tensor *t, float *to)
{
    float **at = on_device(t);

    if (!at || !*at) {
        return cmn_fail("gradients: layer %d %s%s is not on the GPU", t->layer, t->part, t->name);
    }
    if (cmn_device_copy(to, *at, t->n)) {
        return -1;
    }
    cmn_device_free(*at);
    *at = to;
    return 0;
}

int cmn_gradients_gpu_open(struct cmn_gradients *g)
{
    size_t total = 0, at = 0;
    int spans = 0;

    for (int i = 0; i < g->tensors; i++) {
        total += g->tensor[i].kind == CMN_GRADIENT ? cmn_gradients_padded(g->tensor[i].n) : 0;
    }
    g->on_gpu = 1;
    g->span = calloc((size_t)g->tensors + 1, sizeof *g->span);
    g->metrics = calloc(CMN_METRICS, sizeof *g->metrics);
    g->bad = calloc((size_t)g->tensors + 1, sizeof *g->bad);
    if (!g->span || !g->metrics || !g->bad) {
        return cmn_fail("gradients: out of memory");
    }
    if (cmn_device_memory(&g->flat, total + CMN_METRICS) ||
        cmn_device_memory(&g->bad_on_gpu, (size_t)g->tensors + 1)) {
        return cmn_fail_in("gradients");
    }
    g->exchange.block = (struct cmn_span){.data = g->flat, .n = total};
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind != CMN_GRADIENT) {
            continue;
        }
        if (move(t, g->flat + at)) {
            return -1;
        }
        g->span[spans++] = (struct cmn_span){g->flat + at, t->n, t->rows};
        at += cmn_gradients_padded(t->n);
    }
    g->exchange = (struct cmn_exchange){
        .tensor = g->span,
        .tensors = spans,
        .block = {g->flat, at},
        .metrics = {g->flat + at, CMN_METRICS},
    };
    return 0;
}

void cmn_gradients_gpu_close(struct cmn_gradients *g)
{
    for (int i = 0; i < g->tensors && g->flat; i++) {
        float **at = g->tensor[i].kind == CMN_GRADIENT ? on_device(&g->tensor[i]) : NULL;
        /* Ours, or, after a failed open, still the layer's own. */
        if (at && *at >= g->flat && *at < g->flat + g->exchange.block.n) {
            *at = NULL;
        }
    }
    cmn_device_free(g->flat);
    cmn_device_free(g->bad_on_gpu);
    free(g->bad);
    free(g->metrics);
}

int cmn_gradients_gpu_look(struct cmn_gradients *g, int i)
{
    float **at = on_device(&g->tensor[i]);

    return at ? cmn_device_look(g->bad_on_gpu + i, *at, g->tensor[i].n) : -1;
}

int cmn_gradients_gpu_found(struct cmn_gradients *g, int *i)
{
    size_t n = (size_t)g->tensors;

    *i = -1;
    if (cmn_device_read(g->bad, g->bad_on_gpu, n)) {
        return -1;
    }
    for (int k = 0; k < g->tensors && *i < 0; k++) {
        *i = g->bad[k] != 0 ? k : -1;
    }
    if (*i >= 0) {
        memset(g->bad, 0, n * sizeof *g->bad);
        return cmn_device_write(g->bad_on_gpu, g->bad, n);
    }
    return 0;
}

int cmn_gradients_gpu_sum(struct cmn_gradients *g, const struct cmn_communicator *c, void *self)
{
    float *on_device = g->exchange.metrics.data;

    if ((c->poll && cmn_device_wait(c->poll, self)) ||
        cmn_device_write(on_device, g->metrics, CMN_METRICS) || c->allreduce(self, &g->exchange)) {
        return -1;
    }
    return cmn_device_read(g->metrics, on_device, CMN_METRICS);
}

static int transfer(const struct cmn_gradients *g, enum cmn_tensor_kind kind, int to_host)
{
    for (int i = 0; i < g->tensors && g->on_gpu; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        float **at = t->kind == kind ? on_device(t) : NULL;
        if (t->kind != kind || (at && !*at)) {
            continue; /* Darknet keeps some, like the scales of binary weights, on the host alone */
        }
        if (!at ||
            (to_host ? cmn_device_read(*t->at, *at, t->n) : cmn_device_write(*at, *t->at, t->n))) {
            return cmn_fail_in("layer %d %s%s", t->layer, t->part, t->name);
        }
    }
    return 0;
}

int cmn_gradients_pull(const struct cmn_gradients *g, enum cmn_tensor_kind kind)
{
    return transfer(g, kind, 1);
}

int cmn_gradients_push(const struct cmn_gradients *g, enum cmn_tensor_kind kind)
{
    return transfer(g, kind, 0);
}
