#include "tools/candidate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "transports/transport.h"

static int on_gpu(const struct cmn_candidate *k)
{
    return k->session->topology.device >= 0;
}

static void require(int result)
{
    if (result) {
        cmn_fatal_reason();
    }
}

/* Collective. Where a rank has failed, the lowest one's reason becomes the refusal on all ranks. */
static void agree(struct cmn_candidate *k, int result)
{
    const struct cmn_topology *t = &k->session->topology;
    int first = cmn_mpi_first_bad(result != 0, t->world);

    if (first < 0) {
        return;
    }
    if (t->rank == first) {
        snprintf(k->refusal, sizeof k->refusal, "rank %d@%s: %.180s", t->rank, t->host,
                 cmn_reason());
    }
    MPI_CALL(MPI_Bcast(k->refusal, sizeof k->refusal, MPI_CHAR, first, t->world));
}

/* Zeroed memory of this rank, where its gradients would lie. */
static void get_memory(struct cmn_candidate *k)
{
    if (on_gpu(k)) {
        require(cmn_device_memory(&k->data, k->floats));
    } else {
        k->data = cmn_alloc_floats(k->floats);
    }
}

static void open_communicator(struct cmn_candidate *k)
{
    const struct cmn_session *s = k->session;
    const char *refusal = cmn_communicator_refuses(k->c, &s->topology, &s->options);

    if (refusal) {
        snprintf(k->refusal, sizeof k->refusal, "%.250s", refusal);
        return;
    }
    agree(k, k->c->open(&k->self, &s->topology, &s->options));
    if (k->refusal[0]) {
        k->self = NULL; /* where some ranks have it and others not, it cannot be closed */
        return;
    }
    if (k->c->memory) {
        agree(k, k->c->memory(k->self, k->floats, &k->data));
        k->owns_data = !k->data;
    }
    if (!k->data && !k->refusal[0]) {
        get_memory(k);
    }
}

/* Buffers that lie a large power of two apart would share cache lines. */
enum { APART = (4096 + 5 * 128) / sizeof(float) };

static void open_memory(struct cmn_candidate *k)
{
    size_t ranks = (size_t)k->session->topology.size;
    size_t each = (k->floats / ranks / 16 + 2) * 16 + APART;

    if (on_gpu(k)) {
        snprintf(k->refusal, sizeof k->refusal, "it is a measure of the CPU's memory");
        return;
    }
    k->floats = each * ranks;
    get_memory(k);
    k->part = cmn_calloc(ranks, sizeof *k->part);
    for (size_t i = 0; i < ranks; i++) {
        k->part[i] = k->data + i * each;
    }
}

static void open_raw(struct cmn_candidate *k)
{
    const char *refusal = on_gpu(k) ? cmn_device_refuses_mpi(&k->session->topology) : NULL;

    if (refusal) {
        snprintf(k->refusal, sizeof k->refusal, "%.250s", refusal);
    } else {
        get_memory(k);
    }
}

void cmn_candidate_open(struct cmn_candidate *k, const char *name, const struct cmn_session *s,
                        size_t floats)
{
    *k = (struct cmn_candidate){.name = name,
                                .c = cmn_communicator_find(name),
                                .session = s,
                                .floats = floats,
                                .owns_data = 1};
    if (k->c) {
        open_communicator(k);
    } else if (!strcmp(name, CMN_MEMORY)) {
        open_memory(k);
    } else {
        open_raw(k);
    }
}

/* Different in neighbouring places, and in places that lie a power of two apart. */
static float pattern(size_t i)
{
    return (float)(i % 61 + 1);
}

/* The floats as the CPU sees them: themselves, or room for a copy. */
static float *view(const struct cmn_candidate *k, size_t n)
{
    return on_gpu(k) ? cmn_malloc(n + 1, sizeof *k->data) : k->data;
}

/* Writes a view back and frees it. */
static void put_back(struct cmn_candidate *k, float *x, size_t n)
{
    if (x != k->data) {
        require(cmn_device_write(k->data, x, n));
        free(x);
    }
}

void cmn_candidate_fill(struct cmn_candidate *k, size_t n)
{
    float mine = (float)(k->session->topology.rank + 1);
    float *x = view(k, n);

    for (size_t i = 0; i < n; i++) {
        x[i] = mine * pattern(i);
    }
    put_back(k, x, n);
}

void cmn_candidate_clear(struct cmn_candidate *k, size_t n)
{
    float *x = view(k, n);

    memset(x, 0, n * sizeof *x);
    put_back(k, x, n);
}

long cmn_candidate_wrong(const struct cmn_candidate *k, size_t n)
{
    const int size = k->session->topology.size;
    const float ranks = (float)size * (float)(size + 1) / 2;
    const float allowed = cmn_wire_type(&k->session->options) == CMN_FP32 ? 0 : 0.02F;
    long wrong = 0;
    float *x;

    if (k->c ? !k->c->sums : strcmp(k->name, CMN_RAW) != 0) {
        return -1;
    }
    x = view(k, n);
    if (x != k->data) {
        require(cmn_device_read(x, k->data, n));
    }
    for (size_t i = 0; i < n; i++) {
        float right = ranks * pattern(i);
        wrong += !(fabsf(x[i] - right) <= allowed * right);
    }
    if (x != k->data) {
        free(x);
    }
    return wrong;
}

/* The memory traffic of an in-place sum over ranks that share memory: reads 1/size of every rank's
 * buffer and writes the sum to all. The buffers are this rank's own here, and nobody waits for
 * anybody. */
static void sum_in_place(struct cmn_candidate *k, size_t n)
{
    const struct cmn_topology *t = &k->session->topology;
    size_t at, count;

    cmn_slice(n, t->size, t->rank, &at, &count);
    cmn_reduce_broadcast(k->part, t->size, 0, 0, count);
}

void cmn_candidate_run(struct cmn_candidate *k, size_t n)
{
    struct cmn_span span = {.data = k->data, .n = n};
    struct cmn_exchange x = {
        .tensor = &span, .tensors = 1, .block = span, .metrics = {k->data + n, 0}};

    if (k->c) {
        k->c->allreduce(k->self, &x);
    } else if (!strcmp(k->name, CMN_MEMORY)) {
        sum_in_place(k, n);
    } else {
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, k->data, (int)n, MPI_FLOAT, MPI_SUM,
                               k->session->topology.world));
    }
}

void cmn_candidate_close(struct cmn_candidate *k)
{
    if (k->self) {
        k->c->close(k->self);
    }
    if (k->owns_data && on_gpu(k)) {
        cmn_device_free(k->data);
    } else if (k->owns_data) {
        free(k->data);
    }
    free(k->part);
    k->self = NULL;
    k->data = NULL;
    k->part = NULL;
}
