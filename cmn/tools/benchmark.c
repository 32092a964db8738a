#include "tools/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/device.h"
#include "base/log.h"
#include "base/reduce.h"
#include "transports/transport.h"

static int on_gpu(const struct cmn_benchmark *k)
{
    return k->session->topology.device >= 0;
}

/* The reason of the lowest rank that has failed becomes everybody's. */
static int agree(struct cmn_benchmark *k, int result)
{
    const struct cmn_topology *t = &k->session->topology;
    int first = cmn_mpi_first_bad(result != 0, t->world);

    if (first < 0) {
        return 0;
    }
    if (t->rank == first) {
        snprintf(k->out, sizeof k->out, "rank %d@%s: %.180s", t->rank, t->host, cmn_reason());
    }
    return cmn_mpi_check(MPI_Bcast(k->out, sizeof k->out, MPI_CHAR, first, t->world), "MPI_Bcast");
}

static int open_communicator(struct cmn_benchmark *k)
{
    const struct cmn_session *s = k->session;
    const char *refusal = cmn_communicator_refuses(k->c, &s->topology, &s->options);
    int result;

    if (refusal) {
        snprintf(k->out, sizeof k->out, "%.250s", refusal);
        return 0;
    }
    result = k->c->open(&k->self, &s->topology, &s->options);
    if (agree(k, result)) {
        return -1;
    }
    if (k->out[0]) {
        k->self = NULL; /* where some ranks have it and others not, it cannot be closed */
        return 0;
    }
    /* As in training: gradients on a GPU lie in memory of this rank's own. */
    k->data_is_ours = !k->c->memory || on_gpu(k);
    return k->data_is_ours ? 0 : agree(k, k->c->memory(k->self, k->floats, &k->data));
}

/* Zeroed memory of this rank's own, where its gradients would lie. */
static int get_memory(struct cmn_benchmark *k)
{
    size_t bytes = (k->floats * sizeof *k->data + 63) / 64 * 64 + 64;

    if (on_gpu(k)) {
        return cmn_device_memory(&k->data, k->floats);
    }
    k->data = aligned_alloc(64, bytes);
    if (!k->data) {
        return cmn_fail("out of memory for %zu floats", k->floats);
    }
    memset(k->data, 0, bytes);
    return 0;
}

/* Buffers at a multiple of a large power of two would meet in the same lines of the caches. */
enum { APART = (4096 + 5 * 128) / sizeof(float) };

static int open_parts(struct cmn_benchmark *k)
{
    size_t ranks = (size_t)k->session->topology.size;
    size_t each = (k->floats / ranks / 16 + 2) * 16 + APART;

    k->floats = each * ranks;
    k->part = calloc(ranks, sizeof *k->part);
    if (!k->part) {
        return cmn_fail("out of memory");
    }
    if (get_memory(k)) {
        return -1;
    }
    for (size_t i = 0; i < ranks; i++) {
        k->part[i] = k->data + i * each;
    }
    return 0;
}

static int open_other(struct cmn_benchmark *k)
{
    const struct cmn_topology *t = &k->session->topology;
    const char *refusal;

    if (!strcmp(k->name, CMN_MEMORY)) {
        if (on_gpu(k)) {
            snprintf(k->out, sizeof k->out, "it is a measure of the CPU's memory");
            return 0;
        }
        return open_parts(k);
    }
    refusal = on_gpu(k) ? cmn_device_refuses_mpi(t) : NULL;
    if (refusal) {
        snprintf(k->out, sizeof k->out, "%.250s", refusal);
        return 0;
    }
    return get_memory(k);
}

int cmn_benchmark_open(struct cmn_benchmark *k, const char *name, const struct cmn_session *s,
                       size_t floats)
{
    *k = (struct cmn_benchmark){.name = name,
                                .c = cmn_communicator_find(name),
                                .session = s,
                                .floats = floats,
                                .data_is_ours = 1};
    if (!k->c) {
        return open_other(k);
    }
    if (open_communicator(k)) {
        return -1;
    }
    return k->data_is_ours && !k->out[0] ? get_memory(k) : 0;
}

/* Different in neighbouring places, and in places that lie a power of two apart. */
static float pattern(size_t i)
{
    return (float)(i % 61 + 1);
}

/* The CPU's view of the floats: themselves, or room for a copy. NULL with a reason. */
static float *view(const struct cmn_benchmark *k, size_t n)
{
    float *x = on_gpu(k) ? malloc((n + 1) * sizeof *x) : k->data;

    if (!x) {
        cmn_fail("out of memory for %zu floats", n);
    }
    return x;
}

static int put_back(struct cmn_benchmark *k, float *x, size_t n)
{
    int result = 0;

    if (x != k->data) {
        result = cmn_device_write(k->data, x, n);
        free(x);
    }
    return result;
}

int cmn_benchmark_fill(struct cmn_benchmark *k, size_t n)
{
    float mine = (float)(k->session->topology.rank + 1);
    float *x = view(k, n);

    for (size_t i = 0; i < n && x; i++) {
        x[i] = mine * pattern(i);
    }
    return x ? put_back(k, x, n) : -1;
}

int cmn_benchmark_clear(struct cmn_benchmark *k, size_t n)
{
    float *x = view(k, n);

    if (!x) {
        return -1;
    }
    memset(x, 0, n * sizeof *x);
    return put_back(k, x, n);
}

static long count_wrong(const struct cmn_benchmark *k, const float *x, size_t n)
{
    const int size = k->session->topology.size;
    const float ranks = (float)size * (float)(size + 1) / 2;
    const float allowed = k->session->options.dtype == CMN_FP32 ? 0 : 0.02F;
    long wrong = 0;

    for (size_t i = 0; i < n; i++) {
        float right = ranks * pattern(i);
        wrong += !(fabsf(x[i] - right) <= allowed * right);
    }
    return wrong;
}

int cmn_benchmark_wrong(const struct cmn_benchmark *k, size_t n, long *wrong)
{
    float *x;
    int result = 0;

    *wrong = -1;
    if (k->c ? !k->c->sums : strcmp(k->name, CMN_RAW) != 0) {
        return 0;
    }
    x = view(k, n);
    if (!x) {
        return -1;
    }
    if (x != k->data) {
        result = cmn_device_read(x, k->data, n);
    }
    *wrong = result ? -1 : count_wrong(k, x, n);
    if (x != k->data) {
        free(x);
    }
    return result;
}

/* What an in-place sum over ranks that share memory does: of 1/size of every rank's buffer it reads all and writes the
 * sum to all. Here the buffers are this rank's own, and nobody waits for anybody. */
static void sum_in_place(struct cmn_benchmark *k, size_t n)
{
    const struct cmn_topology *t = &k->session->topology;
    size_t at, count;

    cmn_slice(n, t->size, t->rank, &at, &count);
    cmn_reduce_broadcast(k->part, t->size, 0, 0, count);
}

int cmn_benchmark_run(struct cmn_benchmark *k, size_t n)
{
    struct cmn_span span = {.data = k->data, .n = n};
    struct cmn_exchange x = {
        .tensor = &span, .tensors = 1, .block = span, .metrics = {k->data + n, 0}};

    if (k->c) {
        return k->c->allreduce(k->self, &x) ? cmn_fail_in("%s", k->name) : 0;
    }
    if (!strcmp(k->name, CMN_MEMORY)) {
        sum_in_place(k, n);
        return 0;
    }
    return cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, k->data, (int)n, MPI_FLOAT, MPI_SUM,
                                       k->session->topology.world),
                         CMN_RAW);
}

void cmn_benchmark_close(struct cmn_benchmark *k)
{
    if (k->c && k->self) {
        k->c->close(k->self);
    }
    if (k->data_is_ours && on_gpu(k)) {
        cmn_device_free(k->data);
    } else if (k->data_is_ours) {
        free(k->data);
    }
    free(k->part);
    k->self = NULL;
    k->data = NULL;
    k->part = NULL;
}
