/* A stand-in for CUDA's header (see ../cuda_runtime.h): what AlexeyAB's Darknet asks for besides. */
#ifndef TESTS_FAKE_ALEXEYAB_CUDA_H
#define TESTS_FAKE_ALEXEYAB_CUDA_H

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <string.h>

#define cudaMemcpyDefault ((enum cudaMemcpyKind)4)
enum { cudaHostRegisterMapped = 2, cudaDeviceScheduleBlockingSync = 4 };

#ifdef __cplusplus
extern "C" {
#endif

/* It copies from and to memory that is not page-locked, too: CUDA reads such memory before it
 * returns, and waits where it writes it. */
cudaError_t fake_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                      cudaStream_t stream);
#define cudaMemcpyAsync fake_copy

#ifdef __cplusplus
}
#endif

static inline cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    return cudaSuccess;
}

static inline cudaError_t fake_version(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
#define cudaRuntimeGetVersion fake_version
#define cudaDriverGetVersion fake_version

/* All work is queued on one stream (patches/alexeyab/gpu/job.patch). */
static inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    return stream == cudaStreamLegacy ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* Graphs of launches are refused with -cmn. */
typedef int cudaGraph_t, cudaGraphExec_t;
enum { cudaStreamCaptureModeGlobal = 0 };
#define cudaStreamBeginCapture(...) cudaErrorUnknown
#define cudaStreamEndCapture(...) cudaErrorUnknown
#define cudaGraphInstantiate(...) cudaErrorUnknown
#define cudaGraphLaunch(...) cudaErrorUnknown

#define CUDA_SUCCESS cudaSuccess

#ifdef TESTS_FAKE_KERNEL_H
#include <cuda_fp16.h>

typedef __half half;
#define __expf expf

static inline float __fdividef(float x, float y)
{
    return x / y;
}

static inline int atomicMin(int *to, int x)
{
    int was = *to;

    *to = x < was ? x : was;
    return was;
}

static inline void atomicAdd(float *to, int x)
{
    *to += (float)x;
}

/* Threads of a warp do not run in step here: kernels of weighted shortcuts and of binary layers. */
template <class T> static inline T fake_shuffle(T)
{
    fake_die("there are no warps");
}
#define __shfl_xor(x, mask) fake_shuffle(x)
#define __shfl(x, lane) fake_shuffle(x)
#define __ballot(x) fake_shuffle(x)
#define __popc __builtin_popcount
#define __popcll __builtin_popcountll
#define __brev fake_shuffle<unsigned>
struct ulonglong4 {
    unsigned long long x, y, z, w;
};

/* An address that a kernel reads from the GPU's memory (tests.mk puts the call there). */
#define fake_pointer(p) ((float *)fake_device(p, 0, "a kernel"))
#endif

#endif
