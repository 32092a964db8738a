#include "compression/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/device.h"

#ifdef GPU
#include <cuda_runtime.h>

#include "compression/gpu_kernels.h"
#endif

struct memory {
    void *is;
    int on_gpu;
    struct memory *next;
};

struct cmn_place {
    int on_gpu, shards;
    void *stream;          /* a cudaStream_t */
    struct memory *memory; /* all that was given */
    void **event;          /* of each shard, a cudaEvent_t: its copy out */
};

static void require(int result)
{
    if (result) {
        cmn_fail_in("compressor");
        cmn_fatal_reason();
    }
}

#ifdef GPU
static void queued(int code, const char *what)
{
    require(cmn_device_check(code, what));
}

static void load_kernels(void)
{
    queued(cmn_kernel_load_compressors(), "cudaFuncGetAttributes");
}
#else
static void load_kernels(void)
{
}
#endif

struct cmn_place *cmn_place_open(int on_gpu, void *stream, int shards)
{
    struct cmn_place *p = cmn_calloc(1, sizeof *p);

    p->on_gpu = on_gpu;
    p->stream = stream;
    p->shards = shards;
    p->event = cmn_calloc((size_t)shards + 1, sizeof *p->event);
    if (on_gpu) {
        load_kernels();
    }
    return p;
}

int cmn_place_on_gpu(const struct cmn_place *p)
{
    return p->on_gpu;
}

/* Either kind, in whole floats. */
static void *memory_of(struct cmn_place *p, size_t bytes, int of_gpu)
{
    size_t floats = bytes / sizeof(float) + 1;
    struct memory *m = cmn_calloc(1, sizeof *m);
    float *is;

    if (!p->on_gpu) {
        is = cmn_calloc(floats, sizeof *is);
    } else {
        require(of_gpu ? cmn_device_memory(&is, floats) : cmn_device_host_memory(&is, floats));
    }
    *m = (struct memory){is, of_gpu, p->memory};
    p->memory = m;
    return is;
}

void *cmn_place_memory(struct cmn_place *p, size_t bytes)
{
    return memory_of(p, bytes, 1);
}

void *cmn_place_host(struct cmn_place *p, size_t bytes)
{
    return memory_of(p, bytes, 0);
}

static void release(const struct cmn_place *p, const struct memory *m)
{
    if (!p->on_gpu) {
        free(m->is);
    } else if (m->on_gpu) {
        cmn_device_free(m->is);
    } else {
        cmn_device_host_free(m->is);
    }
}

static void free_memory(struct cmn_place *p)
{
    while (p->memory) {
        struct memory *m = p->memory;
        p->memory = m->next;
        release(p, m);
        free(m);
    }
}

#ifdef GPU

static void close_events(struct cmn_place *p)
{
    for (int i = 0; i < p->shards; i++) {
        if (p->event[i]) {
            cudaEventDestroy(p->event[i]);
        }
    }
}

void cmn_place_out(struct cmn_place *p, int shard, void *host, const void *from, size_t bytes)
{
    if (!p->on_gpu) {
        if (host != from) {
            memcpy(host, from, bytes);
        }
        return;
    }
    if (!p->event[shard]) {
        queued(cudaEventCreateWithFlags((cudaEvent_t *)&p->event[shard], cudaEventDisableTiming),
               "cudaEventCreate");
    }
    queued(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)p->stream),
           "cudaMemcpyAsync");
    queued(cudaEventRecord(p->event[shard], (cudaStream_t)p->stream), "cudaEventRecord");
}

int cmn_place_is_out(const struct cmn_place *p, int shard)
{
    int is = p->on_gpu ? cmn_device_reached(p->event[shard]) : 1;

    require(is < 0);
    return is;
}

void cmn_place_back(struct cmn_place *p, void *to, const void *host, size_t bytes)
{
    if (p->on_gpu) {
        queued(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, (cudaStream_t)p->stream),
               "cudaMemcpyAsync");
    } else if (to != host) {
        memcpy(to, host, bytes);
    }
}

void cmn_place_left(struct cmn_place *p, const struct cmn_lowrank *s, float *m, const float *fresh,
                    const float *q, float *to)
{
    if (p->on_gpu) {
        queued(cmn_kernel_left(s, m, fresh, q, to, p->stream), "a kernel");
    } else {
        cmn_lowrank_left(s, m, fresh, q, to);
    }
}

void cmn_place_right(struct cmn_place *p, const struct cmn_lowrank *s, const float *m,
                     const float *from, float *q)
{
    if (p->on_gpu) {
        queued(cmn_kernel_right(s, m, from, q, p->stream), "a kernel");
    } else {
        cmn_lowrank_right(s, m, from, q);
    }
}

void cmn_place_take(struct cmn_place *p, const struct cmn_lowrank *s, float *m, float *sum,
                    const float *from, const float *own, const float *q)
{
    if (p->on_gpu) {
        queued(cmn_kernel_take(s, m, sum, from, own, q, p->stream), "a kernel");
    } else {
        cmn_lowrank_take(s, m, sum, from, own, q);
    }
}

#else

static void close_events(struct cmn_place *p)
{
    (void)p;
}

void cmn_place_out(struct cmn_place *p, int shard, void *host, const void *from, size_t bytes)
{
    (void)p;
    (void)shard;
    if (host != from) {
        memcpy(host, from, bytes);
    }
}

int cmn_place_is_out(const struct cmn_place *p, int shard)
{
    (void)p;
    (void)shard;
    return 1;
}

void cmn_place_back(struct cmn_place *p, void *to, const void *host, size_t bytes)
{
    (void)p;
    if (to != host) {
        memcpy(to, host, bytes);
    }
}

void cmn_place_left(struct cmn_place *p, const struct cmn_lowrank *s, float *m, const float *fresh,
                    const float *q, float *to)
{
    (void)p;
    cmn_lowrank_left(s, m, fresh, q, to);
}

void cmn_place_right(struct cmn_place *p, const struct cmn_lowrank *s, const float *m,
                     const float *from, float *q)
{
    (void)p;
    cmn_lowrank_right(s, m, from, q);
}

void cmn_place_take(struct cmn_place *p, const struct cmn_lowrank *s, float *m, float *sum,
                    const float *from, const float *own, const float *q)
{
    (void)p;
    cmn_lowrank_take(s, m, sum, from, own, q);
}

#endif

void cmn_place_close(struct cmn_place *p)
{
    close_events(p);
    free_memory(p);
    free(p->event);
    free(p);
}
