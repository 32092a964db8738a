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
#include "mpi/group.h"

const char *cmn_candidate_name(int i)
{
    const struct cmn_communicator *c = i > 0 ? cmn_communicator_at(i - 1) : NULL;

    return i == 0                                 ? CMN_RAW
           : c                                    ? c->name
           : i == 1 || cmn_communicator_at(i - 2) ? CMN_MEMORY
                                                  : NULL;
}

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

/* ---- beginning and end ---- */

static void refuse(struct cmn_candidate *k, const char *why)
{
    snprintf(k->refusal, sizeof k->refusal, "%.250s", why ? why : "");
}

/* Collective. If a rank has failed, the reason of the lowest such rank becomes the refusal on all
 * ranks. */
static void agree(struct cmn_candidate *k, int result)
{
    const struct cmn_topology *t = &k->session->topology;

    if (result) {
        cmn_fail_in("rank %d@%s", t->rank, t->host);
    }
    if (cmn_mpi_all_succeeded(result, t->world)) {
        refuse(k, cmn_reason());
        k->failed = 1;
    }
}

static void open_communicator(struct cmn_candidate *k)
{
    const struct cmn_session *s = k->session;

    refuse(k, cmn_communicator_refuses(k->c, &s->topology, &s->options));
    if (k->refusal[0]) {
        return;
    }
    agree(k, k->c->open(&k->self, k->c, &s->topology, &s->options));
    if (k->refusal[0]) {
        k->self = NULL; /* closing is collective, but not all ranks have opened it */
    } else if (k->c->memory) {
        agree(k, k->c->memory(k->self, k->floats, &k->data));
        k->borrowed = k->data != NULL;
    }
}

/* Floats between two buffers. Buffers at a distance of a large power of two would compete for the
 * same cache sets. */
enum { APART = (4096 + 5 * 128) / sizeof(float) };

static void divide_memory(struct cmn_candidate *k)
{
    int ranks = k->session->topology.size;
    size_t each = (k->floats / (size_t)ranks / 16 + 2) * 16 + APART;

    k->part = cmn_calloc((size_t)ranks, sizeof *k->part);
    k->data = cmn_alloc_floats(each * (size_t)ranks);
    for (int i = 0; i < ranks; i++) {
        k->part[i] = k->data + (size_t)i * each;
    }
}

void cmn_candidate_open(struct cmn_candidate *k, const char *name, const struct cmn_session *s,
                        size_t floats)
{
    *k = (struct cmn_candidate){
        .name = name, .c = cmn_communicator_find(name), .session = s, .floats = floats};
    if (k->c) {
        open_communicator(k);
    } else {
        refuse(k, on_gpu(k) ? "it is a measure of the CPU's memory" : NULL);
    }
    if (k->refusal[0] || k->borrowed) {
        return;
    }
    if (on_gpu(k)) {
        require(cmn_device_memory(&k->data, k->floats));
    } else if (!strcmp(name, CMN_MEMORY)) {
        divide_memory(k);
    } else {
        k->data = cmn_alloc_floats(k->floats);
    }
}

void cmn_candidate_close(struct cmn_candidate *k)
{
    if (k->self) {
        k->c->close(k->self);
    }
    if (!k->borrowed && on_gpu(k)) {
        cmn_device_free(k->data);
    } else if (!k->borrowed) {
        free(k->data);
    }
    free(k->part);
    *k = (struct cmn_candidate){.name = k->name};
}

/* ---- a sum ---- */

/* Causes the memory traffic of a sum in place over ranks that share memory: each rank reads 1/size
 * of each rank's buffer and writes the sum to all of them. Here all buffers belong to this rank,
 * and no rank waits for another. */
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
    } else if (k->part) {
        sum_in_place(k, n);
    } else {
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, k->data, (int)n, MPI_FLOAT, MPI_SUM,
                               k->session->topology.world));
    }
}

/* ---- a sum that is known ---- */

/* Returns memory for the floats that the CPU can use: data itself, or for a GPU new memory for a
 * copy, which the caller frees. */
static float *view(const struct cmn_candidate *k, size_t n)
{
    return on_gpu(k) ? cmn_malloc(n + 1, sizeof *k->data) : k->data;
}

/* Fills the floats with `times` times a pattern. The pattern has different values in neighbouring
 * places and in places a power of two apart. Its sums are exact in any order of addition. */
static void fill(struct cmn_candidate *k, size_t n, int times)
{
    float *x = view(k, n);

    for (size_t i = 0; i < n; i++) {
        x[i] = (float)times * (float)(i % 61 + 1);
    }
    if (on_gpu(k)) {
        cmn_device_write(k->data, x, n);
        free(x);
    }
}

void cmn_candidate_clear(struct cmn_candidate *k, size_t n)
{
    fill(k, n, 0);
}

long cmn_candidate_verify(struct cmn_candidate *k, size_t n)
{
    const struct cmn_topology *t = &k->session->topology;
    const float ranks = (float)t->size * (float)(t->size + 1) / 2;
    const float allowed = cmn_wire_type(&k->session->options) == CMN_FP32 ? 0 : 0.02F;
    long wrong = 0;
    float *x;

    fill(k, n, t->rank + 1);
    cmn_candidate_run(k, n);
    if (k->part || (k->c && !k->c->sums)) {
        return -1;
    }
    x = view(k, n);
    if (on_gpu(k)) {
        cmn_device_read(x, k->data, n);
    }
    for (size_t i = 0; i < n; i++) {
        float right = ranks * (float)(i % 61 + 1);
        wrong += !(fabsf(x[i] - right) <= allowed * right);
    }
    if (on_gpu(k)) {
        free(x);
    }
    return wrong;
}
