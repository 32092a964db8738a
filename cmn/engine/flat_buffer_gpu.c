/* The flat gradient buffer in the GPU's memory, the weights in a second block with the same layout,
 * and operations on such blocks: one kernel launch for all tensors. The metrics stay on the host
 * and are copied to the GPU before the exchange and back after it. The host's weights are in one
 * block, too, so that one copy transfers all of them. */
#include "engine/gradients.h"

#ifdef GPU

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/device.h"
#include "mpi/kernels.h"

_Static_assert((int)CMN_FLAT_ALIGN == (int)CMN_KERNEL_UNIT, "tensors have whole units");

/* All pointers are to the GPU's memory, except those that begin with `host_`. */
struct cmn_flat_buffer_gpu {
    /* The number of its gradient for each unit of the flat buffer, and pointers into `table`. */
    struct cmn_kernel_table of;
    /* For each gradient: where it begins in the flat buffer, and its size; in floats. */
    size_t *at, *n;
    /* For each gradient: not 0 if a check found NaN or infinities in it. */
    float *bad;
    /* Floats at the begin of the flat buffer that were checked since the last ask_gpu(). */
    size_t checked;
    /* A sum of 8 bytes for each gradient, and room for those of its parts. */
    void *sum;
    /* g->scale, g->rate and g->decay, then the limits. */
    float *table;
    /* Adam's moments, with the layout of the flat buffer; NULL: there are none. */
    float *m, *v;
    void *stream; /* beside all other work */
    /* `marks` and `found` carry `bad` to the host, `rates` carries `table` to the GPU. */
    struct cmn_device_mail sent, fetched, marks, found, rates;
};

static void require(int result)
{
    if (result) {
        cmn_fail_in("gradients");
        cmn_fatal_reason();
    }
}

/* ---- blocks ---- */

static float *memory_gpu(size_t floats)
{
    float *memory;

    require(cmn_device_memory(&memory, floats));
    return memory;
}

static float *host_memory_gpu(size_t floats)
{
    float *memory;

    require(cmn_device_host_memory(&memory, floats));
    return memory;
}

static void send_gpu(struct cmn_gradients *g, float *to, const float *metrics)
{
    cmn_device_mail_send(&g->gpu->sent, to, metrics, CMN_METRICS);
}

static void fetch_gpu(struct cmn_gradients *g, float *metrics, const float *from)
{
    cmn_device_mail_ask(&g->gpu->fetched, g->gpu->stream, from, CMN_METRICS);
    memcpy(metrics, cmn_device_mail_answer(&g->gpu->fetched), CMN_METRICS * sizeof *metrics);
}

/* ---- the flat buffer ---- */

static void open_gpu(struct cmn_gradients *g, size_t floats, const struct cmn_block_memory *memory)
{
    require(memory->flat ? memory->flat(memory->self, floats, &g->flat) : 0);
    g->flat_is_ours = !g->flat;
    g->flat = g->flat ? g->flat : memory_gpu(floats);
    g->exchange.weights = memory_gpu(floats);
    g->host_weights = host_memory_gpu(floats);
    g->metrics = cmn_calloc(CMN_METRICS, sizeof *g->metrics);
}

static void move_device(float **tensor, float *to, size_t n)
{
    cmn_device_copy(to, *tensor, n);
    cmn_device_free(*tensor);
    *tensor = to;
}

static void move_gpu(struct cmn_gradients *g, const struct cmn_tensor *t, size_t at)
{
    float *host = g->host_weights + at;

    move_device(t->device, g->flat + at, t->n);
    move_device(t->device_weight, g->exchange.weights + at, t->n);
    memcpy(host, *t->weight, t->n * sizeof *host);
    free(*t->weight);
    *t->weight = host;
}

/* Returns a copy of `bytes` bytes, a multiple of 4, in the GPU's memory. */
static void *on_gpu(const void *host, size_t bytes)
{
    float *memory = memory_gpu(bytes / sizeof *memory);

    cmn_device_write(memory, host, bytes / sizeof *memory);
    return memory;
}

static void number_units(struct cmn_gradients *g)
{
    size_t units = (g->exchange.block.n + CMN_METRICS) / CMN_FLAT_ALIGN, next = 0;
    /* an even number, so that whole floats are copied */
    unsigned short *tensor = cmn_calloc(2 * units, sizeof *tensor);

    for (int i = 0; i < g->exchange.tensors; i++) {
        size_t end = next + cmn_flat_padded(g->span[i].n) / CMN_FLAT_ALIGN;
        while (next < end) {
            tensor[next++] = (unsigned short)i;
        }
    }
    g->gpu->of.tensor = on_gpu(tensor, (units + 1) / 2 * 2 * sizeof *tensor);
    free(tensor);
}

/* Moves a layer's moment into the block. Some layers have no moment on the GPU: they get one. */
static void move_moment(float **moment, float *to, size_t n)
{
    if (*moment) {
        move_device(moment, to, n);
    }
    *moment = to;
}

static void move_moments(struct cmn_gradients *g)
{
    struct cmn_flat_buffer_gpu *d = g->gpu;

    for (int i = 0; i < g->exchange.tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[g->tensor_of[i]];
        size_t at = (size_t)(g->span[i].data - g->flat);
        if (!t->device_m) {
            continue;
        }
        if (!d->m) {
            d->m = memory_gpu(g->exchange.block.n);
            d->v = memory_gpu(g->exchange.block.n);
        }
        move_moment(t->device_m, d->m + at, t->n);
        move_moment(t->device_v, d->v + at, t->n);
    }
}

static void ready_gpu(struct cmn_gradients *g)
{
    struct cmn_flat_buffer_gpu *d = g->gpu = cmn_calloc(1, sizeof *g->gpu);
    size_t tensors = (size_t)g->exchange.tensors, rates = 3 * (size_t)g->tensors;
    size_t *place = cmn_calloc(2 * tensors + 1, sizeof *place);
    float *table = cmn_calloc(rates + tensors + 1, sizeof *table);

    if (tensors > USHRT_MAX) {
        cmn_fatal("gradients: %zu tensors, and at most %d on a GPU", tensors, USHRT_MAX);
    }
    number_units(g);
    move_moments(g);
    for (size_t i = 0; i < tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[g->tensor_of[i]];
        place[i] = (size_t)(g->span[i].data - g->flat);
        place[tensors + i] = t->n;
        table[rates + i] = t->limit ? *t->limit : 0;
    }
    d->at = on_gpu(place, (2 * tensors + 1) * sizeof *place);
    d->n = d->at + tensors;
    d->table = on_gpu(table, (rates + tensors + 1) * sizeof *table);
    d->of.scale = d->table;
    d->of.rate = d->table + g->tensors;
    d->of.decay = d->of.rate + g->tensors;
    d->of.limit = d->table + rates;
    d->bad = memory_gpu(tensors + 1);
    d->sum = memory_gpu(2 * tensors * (1 + CMN_KERNEL_PARTS) + 1);
    d->stream = cmn_device_stream_open();
    cmn_device_mail_room(&d->sent, CMN_METRICS);
    cmn_device_mail_room(&d->fetched, CMN_METRICS);
    cmn_device_mail_room(&d->marks, tensors + 1);
    cmn_device_mail_room(&d->found, tensors + 1);
    cmn_device_mail_room(&d->rates, rates + 1);
    cmn_kernel_load();
    free(table);
    free(place);
}

static void close_gpu(struct cmn_gradients *g)
{
    struct cmn_flat_buffer_gpu *d = g->gpu;

    for (int i = 0; i < g->exchange.tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[g->tensor_of[i]];
        *t->device = *t->device_weight = *t->weight = NULL;
        if (t->device_m) {
            *t->device_m = *t->device_v = NULL;
        }
    }
    if (g->flat_is_ours) {
        cmn_device_free(g->flat);
    }
    cmn_device_free(g->exchange.weights);
    cmn_device_host_free(g->host_weights);
    free(g->metrics);
    if (d) {
        cmn_device_free((float *)d->of.tensor);
        cmn_device_free((float *)d->at);
        cmn_device_free(d->table);
        cmn_device_free(d->m);
        cmn_device_free(d->v);
        cmn_device_free(d->bad);
        cmn_device_free(d->sum);
        cmn_device_stream_close(d->stream);
        cmn_device_mail_close(&d->sent);
        cmn_device_mail_close(&d->fetched);
        cmn_device_mail_close(&d->marks);
        cmn_device_mail_close(&d->found);
        cmn_device_mail_close(&d->rates);
    }
    free(d);
}

/* ---- looking at all tensors ---- */

/* Asks which gradients a kernel marked, and removes the marks. */
static void ask_marks(const struct cmn_gradients *g, struct cmn_device_mail *mail)
{
    size_t n = (size_t)g->exchange.tensors;

    cmn_device_mail_ask(mail, cmn_device_stream(), g->gpu->bad, n);
    cmn_device_zero(g->gpu->bad, n);
}

/* Returns the tensor of the first gradient that was marked, or -1. */
static int first_marked(const struct cmn_gradients *g, struct cmn_device_mail *mail)
{
    const float *bad = cmn_device_mail_answer(mail);

    for (int i = 0; i < g->exchange.tensors; i++) {
        if (bad[i] != 0) {
            return g->tensor_of[i];
        }
    }
    return -1;
}

static int nonfinite_gpu(const struct cmn_gradients *g, const float *block)
{
    struct cmn_flat_buffer_gpu *d = g->gpu;

    cmn_kernel_nonfinite(d->bad, d->of.tensor, block, 0, g->exchange.block.n);
    ask_marks(g, &d->found);
    return first_marked(g, &d->found);
}

/* ---- an update ---- */

static void squares_gpu(struct cmn_gradients *g, const float *block, double *sum)
{
    struct cmn_flat_buffer_gpu *d = g->gpu;

    cmn_kernel_squares(d->sum, block, d->at, d->n, (size_t)g->exchange.tensors);
    cmn_device_read((float *)sum, d->sum, 2 * (size_t)g->exchange.tensors);
}

/* Sends the table to the GPU if it is not what was sent last. */
static void send_table(struct cmn_gradients *g)
{
    struct cmn_flat_buffer_gpu *d = g->gpu;
    size_t n = 3 * (size_t)g->tensors;

    if (memcmp(d->rates.locked, g->scale, n * sizeof *g->scale)) {
        cmn_device_mail_send(&d->rates, d->table, g->scale, n);
    }
}

static void sgd_gpu(struct cmn_gradients *g, float *velocity, float *sums, float momentum)
{
    struct cmn_kernel_sgd k = {
        .weights = g->exchange.weights,
        .velocity = velocity,
        .sums = sums,
        .of = g->gpu->of,
        .momentum = momentum,
        .n = g->exchange.block.n,
    };

    send_table(g);
    cmn_kernel_sgd(&k);
}

static void adam_gpu(struct cmn_gradients *g, float *sums)
{
    const struct cmn_flat_buffer_gpu *d = g->gpu;
    const struct cmn_adam *a = &g->adam;
    struct cmn_kernel_adam k = {
        .weights = g->exchange.weights,
        .m = d->m,
        .v = d->v,
        .sums = sums,
        .of = d->of,
        .b1 = a->b1,
        .b2 = a->b2,
        .eps = a->eps,
        .m_scale = (float)(1 / (1 - pow((double)a->b1, *a->t))),
        .v_scale = (float)(1 / (1 - pow((double)a->b2, *a->t))),
        .n = g->exchange.block.n,
    };

    send_table(g);
    cmn_kernel_adam(&k);
}

static void check_gpu(struct cmn_gradients *g, size_t upto)
{
    struct cmn_flat_buffer_gpu *d = g->gpu;

    if (upto > d->checked) {
        cmn_kernel_nonfinite(d->bad, d->of.tensor, g->flat, d->checked, upto);
        d->checked = upto;
    }
}

static void ask_gpu(struct cmn_gradients *g)
{
    g->gpu->checked = 0;
    ask_marks(g, &g->gpu->marks);
}

static int answer_gpu(struct cmn_gradients *g)
{
    return first_marked(g, &g->gpu->marks);
}

static int hash_gpu(const struct cmn_gradients *g, uint64_t *hash)
{
    struct cmn_flat_buffer_gpu *d = g->gpu;

    cmn_kernel_hash(d->sum, g->exchange.weights, d->at, d->n, (size_t)g->exchange.tensors);
    cmn_device_read((float *)hash, d->sum, 2 * (size_t)g->exchange.tensors);
    return nonfinite_gpu(g, g->exchange.weights);
}

const struct cmn_flat_buffer_ops cmn_flat_buffer_gpu = {
    .open = open_gpu,
    .move = move_gpu,
    .ready = ready_gpu,
    .close = close_gpu,
    .memory = memory_gpu,
    .release = cmn_device_free,
    .host_memory = host_memory_gpu,
    .host_release = cmn_device_host_free,
    .copy = cmn_device_copy,
    .zero = cmn_device_zero,
    .scale = cmn_kernel_scale,
    .write = cmn_device_write,
    .read = cmn_device_read,
    .send_metrics = send_gpu,
    .fetch_metrics = fetch_gpu,
    .combine = cmn_kernel_combine,
    .squares = squares_gpu,
    .nonfinite = nonfinite_gpu,
    .check = check_gpu,
    .ask = ask_gpu,
    .answer = answer_gpu,
    .hash = hash_gpu,
    .sgd = sgd_gpu,
    .adam = adam_gpu,
};

#else

const struct cmn_flat_buffer_ops cmn_flat_buffer_gpu; /* unused: nothing is on a GPU */

#endif
