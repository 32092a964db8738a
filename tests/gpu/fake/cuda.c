#include "fake.h"

#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/kernels.h"
#include "base/log.h"

struct fake fake;

/* Bit 62 set: no address of a process. */
static const uintptr_t tag = (uintptr_t)1 << 62;

struct fake_stream {
    struct fake_work *first, **end;
    long queued, done;
};
struct fake_event {
    struct fake_stream *stream;
    long at;
    int timed;
    double when; /* it was reached; 0: it is not yet */
};

static struct fake_stream legacy = {NULL, &legacy.first, 0, 0};

static struct fake_stream *known(cudaStream_t stream)
{
    return stream == cudaStreamLegacy ? &legacy : stream;
}

void *fake_address(const void *device)
{
    return (void *)((uintptr_t)device & ~tag);
}

static int is_device(const void *address)
{
    return fake.mpi_knows_gpus || ((uintptr_t)address & tag);
}

void fake_queue(cudaStream_t to, const struct fake_work *work)
{
    struct fake_stream *s = known(to);
    struct fake_work *mine = malloc(sizeof *mine);

    *mine = *work;
    mine->next = NULL;
    *s->end = mine;
    s->end = &mine->next;
    s->queued++;
}

/* Does what can be done of the first `until` things that were ever queued; stops at what is not
 * yet. */
static void progress(struct fake_stream *s, long until)
{
    while (s->first && s->done < until && s->first->run(s->first)) {
        struct fake_work *work = s->first;
        s->first = work->next;
        s->end = s->first ? s->end : &s->first;
        s->done++;
        free(work);
    }
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = fake.gpus;
    return fake.gpus ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    return device < fake.gpus ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    properties->uuid.bytes[15] = (char)(fake.hardware + device);
    return device < fake.gpus ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t code)
{
    static char text[32];

    snprintf(text, sizeof text, "fake CUDA error %d", (int)code);
    return text;
}

cudaError_t cudaDeviceSynchronize(void)
{
    progress(&legacy, LONG_MAX);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    if (fake.no_memory) {
        return cudaErrorMemoryAllocation;
    }
    fake.alive++;
    *memory = malloc(bytes + 1);
    memset(*memory, 0x5a, bytes + 1);
    *memory = fake.mpi_knows_gpus ? *memory : (void *)((uintptr_t)*memory | tag);
    return cudaSuccess;
}

/* Whoever still uses the memory meets rubbish. */
cudaError_t cudaFree(void *memory)
{
    progress(&legacy, LONG_MAX);
    fake.alive -= memory != NULL;
    if (memory) {
        memset(fake_address(memory), 0x5a, malloc_usable_size(fake_address(memory)));
    }
    free(fake_address(memory));
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    fake.alive++;
    *memory = malloc(bytes);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    fake.alive -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    progress(&legacy, LONG_MAX);
    memset(fake_address(memory), value, bytes);
    return is_device(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

static int right_kind(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    if (fake.mpi_knows_gpus) {
        return 1;
    }
    return is_device(to) == (kind != cudaMemcpyDeviceToHost) &&
           is_device(from) == (kind != cudaMemcpyHostToDevice);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    progress(&legacy, LONG_MAX);
    if (!right_kind(to, from, kind)) {
        return cudaErrorInvalidValue;
    }
    memcpy(fake_address(to), fake_address(from), bytes);
    return cudaSuccess;
}

static int run_copy(struct fake_work *w)
{
    memcpy(fake_address(w->to), fake_address(w->from), w->n);
    return 1;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct fake_work work = {.run = run_copy, .to = to, .from = (void *)from, .n = bytes};

    if (!right_kind(to, from, kind)) {
        return cudaErrorInvalidValue;
    }
    fake_queue(stream, &work);
    return cudaSuccess;
}

static int run_later(struct fake_work *w)
{
    memcpy(fake_address(w->to), w->room, w->n);
    free(w->room);
    return 1;
}

void fake_later(float *to, const float *from, size_t n)
{
    struct fake_work work = {.run = run_later, .to = to, .n = n * sizeof *to};

    work.room = malloc(work.n + 1);
    memcpy(work.room, from, work.n);
    fake_queue(cudaStreamLegacy, &work);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    *stream = calloc(1, sizeof **stream);
    (*stream)->end = &(*stream)->first;
    fake.alive++;
    return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    fake.alive--;
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    while (known(stream)->first) {
        progress(known(stream), LONG_MAX);
    }
    return cudaSuccess;
}

static int reached(struct fake_stream *stream, long at)
{
    if (stream) {
        progress(stream, at);
    }
    return !stream || stream->done >= at;
}

static int run_wait(struct fake_work *w)
{
    return reached(w->awaited, w->at);
}

/* For what the event was last recorded behind by now: what is recorded later does not count. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct fake_work work = {.run = run_wait, .awaited = event->stream, .at = event->at};

    (void)flags;
    fake_queue(stream, &work);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    (*event)->timed = !(flags & cudaEventDisableTiming);
    fake.alive++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    fake.alive--;
    free(event);
    return cudaSuccess;
}

static int run_stamp(struct fake_work *w)
{
    cudaEvent_t event = w->to;

    event->when = cmn_clock();
    return 1;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct fake_work work = {.run = run_stamp, .to = event};

    if (event->timed) {
        event->when = 0;
        fake_queue(stream, &work);
    }
    event->stream = known(stream);
    event->at = known(stream)->queued;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(1e3 * (to->when - from->when));
    return from->when > 0 && to->when > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (reached(event->stream, event->at)) {
        return cudaSuccess;
    }
    return fake.event ? fake.event : cudaErrorNotReady;
}

/* ---- kernels.h ---- */

float fake_widen(const void *from, size_t i, int type)
{
    uint32_t bits;
    float value;

    if (type == ncclFloat32) {
        return ((const float *)from)[i];
    }
    if (type == ncclFloat16) {
        return (float)((const _Float16 *)from)[i];
    }
    bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void fake_narrow(void *to, size_t i, float value, int type)
{
    uint32_t bits;

    if (type == ncclFloat32) {
        ((float *)to)[i] = value;
    } else if (type == ncclFloat16) {
        ((_Float16 *)to)[i] = (_Float16)value;
    } else {
        memcpy(&bits, &value, sizeof bits);
        ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* Narrow where type is set, widen where root is. */
static int run_cast(struct fake_work *w)
{
    for (size_t i = 0; i < w->n; i++) {
        fake_narrow(fake_address(w->to), i,
                    fake_widen(fake_address(w->from), i, w->root) * w->factor, w->type);
    }
    return 1;
}

static int half_of(enum cmn_dtype type)
{
    return type == CMN_FP16 ? ncclFloat16 : ncclBfloat16;
}

int cmn_kernel_cast_to_16(void *to, const float *from, size_t n, float factor, enum cmn_dtype type,
                          void *stream)
{
    struct fake_work work = {.run = run_cast, .to = to, .from = (void *)from, .n = n};

    work.factor = factor;
    work.type = half_of(type);
    work.root = ncclFloat32;
    fake_queue(stream, &work);
    return 0;
}

int cmn_kernel_cast_to_32(float *to, const void *from, size_t n, float factor, enum cmn_dtype type,
                          void *stream)
{
    struct fake_work work = {.run = run_cast, .to = to, .from = (void *)from, .n = n};

    work.factor = factor;
    work.type = ncclFloat32;
    work.root = half_of(type);
    fake_queue(stream, &work);
    return 0;
}
