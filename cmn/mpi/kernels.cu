#include "mpi/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* Grid-stride loops: a bounded number of blocks serves any n. */
static const unsigned BLOCK = 256, BLOCKS_AT_MOST = 4096;

static __device__ __half cast_to_16(float x, __half)
{
    return __float2half_rn(x);
}

static __device__ __nv_bfloat16 cast_to_16(float x, __nv_bfloat16)
{
    return __float2bfloat16(x);
}

static __device__ float cast_to_32(__half x)
{
    return __half2float(x);
}

static __device__ float cast_to_32(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T>
static __global__ void cast_all_to_16(T *to, const float *from, size_t n, float factor)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        to[i] = cast_to_16(from[i] * factor, T());
    }
}

template <typename T>
static __global__ void cast_all_to_32(float *to, const T *from, size_t n, float factor)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        to[i] = cast_to_32(from[i]) * factor;
    }
}

/* By the bits of the exponent. All threads that find one write the same value. */
static __global__ void find_nonfinite(float *found, const float *x, size_t n)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        if ((__float_as_uint(x[i]) & 0x7f800000u) == 0x7f800000u) {
            *found = 1;
        }
    }
}

static unsigned blocks(size_t n)
{
    size_t all = (n + BLOCK - 1) / BLOCK;

    return (unsigned)(all < BLOCKS_AT_MOST ? all : BLOCKS_AT_MOST);
}

extern "C" int cmn_kernel_cast_to_16(void *to, const float *from, size_t n, float factor,
                                 enum cmn_dtype type, void *stream)
{
    if (n == 0) {
        return 0; /* a grid of no blocks is an error */
    }
    if (type == CMN_FP16) {
        cast_all_to_16<<<blocks(n), BLOCK, 0, (cudaStream_t)stream>>>((__half *)to, from, n,
                                                                  factor);
    } else {
        cast_all_to_16<<<blocks(n), BLOCK, 0, (cudaStream_t)stream>>>((__nv_bfloat16 *)to, from, n,
                                                                  factor);
    }
    return cudaGetLastError();
}

extern "C" int cmn_kernel_cast_to_32(float *to, const void *from, size_t n, float factor,
                                enum cmn_dtype type, void *stream)
{
    if (n == 0) {
        return 0;
    }
    if (type == CMN_FP16) {
        cast_all_to_32<<<blocks(n), BLOCK, 0, (cudaStream_t)stream>>>(to, (const __half *)from, n,
                                                                 factor);
    } else {
        cast_all_to_32<<<blocks(n), BLOCK, 0, (cudaStream_t)stream>>>(
            to, (const __nv_bfloat16 *)from, n, factor);
    }
    return cudaGetLastError();
}

extern "C" int cmn_kernel_nonfinite(float *found, const float *x, size_t n, void *stream)
{
    if (n == 0) {
        return 0;
    }
    find_nonfinite<<<blocks(n), BLOCK, 0, (cudaStream_t)stream>>>(found, x, n);
    return cudaGetLastError();
}
