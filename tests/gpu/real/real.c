/* What tests/gpu/fake/fake.h declares, on a real GPU and with the real NCCL: Darknet's work is late
 * because a kernel spins before it, and nothing goes wrong when it is told to, but for no_waits. */
#ifndef REAL_GPU
#error "tests over a real GPU are compiled with REAL_GPU (tests/gpu/gpu.h)"
#endif

#include "gpu/fake/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Queued on `stream`: a kernel that spins for so many cycles of the GPU, and behind it one that
 * copies n floats. `from` is page-locked memory, and stays as it is until then (late.cu). */
int late_copy(float *to, const float *from, size_t n, long long cycles, cudaStream_t stream);

/* Page-locked, for what is copied later; cycles are about half a nanosecond each. The first delay is
 * longer than a GPU that several ranks share gives to one of them at a time. */
enum { ROOM = 16 * 1024 * 1024, LEAST = 200000, MORE = 800000, FIRST = 100000000 };

struct fake fake;

static float *room;
static size_t used;

/* The linker puts the first before the second (--wrap), in cmn/ as well. */
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t __real_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return fake.no_waits ? cudaSuccess : __real_cudaStreamWaitEvent(stream, event, flags);
}

/* Ends this rank; one of them says why. */
static void need(int code, const char *what)
{
    int rank = 0;

    if (code == cudaSuccess) {
        return;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        fprintf(stderr, "tests/gpu/real: %s: %s\n", what, cudaGetErrorString((cudaError_t)code));
    }
    MPI_Finalize();
    exit(1);
}

static void copy_late(float *to, const float *from, size_t n, long long cycles)
{
    if (used + n > ROOM) {
        need(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
        used = 0;
    }
    memcpy(room + used, from, n * sizeof *from);
    need(late_copy(to, room + used, n, cycles, cudaStreamLegacy), "the kernel that is late");
    used += n;
}

void fake_later(float *to, const float *from, size_t n)
{
    static unsigned x = 1;

    x = x * 1664525U + 1013904223U;
    copy_late(to, from, n, LEAST + (long long)(x >> 8) % MORE);
}

/* Another stream must see the old value, or nothing here is late and every test would pass. */
static void be_late(void)
{
    const float old = 1, fresh = 2;
    float seen = 0, *device = NULL;
    cudaStream_t stream;

    need(cudaMalloc((void **)&device, sizeof *device), "cudaMalloc");
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    /* CUDA loads a kernel at its first launch, and waits for what runs on the GPU meanwhile. */
    need(late_copy(device, room, 1, 0, cudaStreamLegacy), "the first kernels");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    need(cudaMemcpy(device, &old, sizeof old, cudaMemcpyHostToDevice), "cudaMemcpy");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    copy_late(device, &fresh, 1, FIRST);
    need(cudaMemcpyAsync(&seen, device, sizeof seen, cudaMemcpyDeviceToHost, stream),
         "cudaMemcpyAsync");
    need(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (seen != old) {
        fprintf(stderr, "tests/gpu/real: a kernel that spins delays nothing here: %g, not %g\n",
                (double)seen, (double)old);
        need(cudaErrorUnknown, "a delay");
    }
    need(cudaMemcpy(&seen, device, sizeof seen, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (seen != fresh) {
        fprintf(stderr, "tests/gpu/real: what came late is %g, not %g\n", (double)seen,
                (double)fresh);
        need(cudaErrorUnknown, "a late copy");
    }
    cudaStreamDestroy(stream);
    cudaFree(device);
}

void fake_start(MPI_Comm world)
{
    (void)world;
    need(cudaSetDevice(0), "GPU 0");
    need(cudaHostAlloc((void **)&room, ROOM * sizeof *room, cudaHostAllocDefault), "cudaHostAlloc");
    be_late();
}

void fake_end(void)
{
    cudaDeviceSynchronize();
    cudaFreeHost(room);
}
