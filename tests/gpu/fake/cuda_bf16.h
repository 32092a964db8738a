/* A stand-in for CUDA's header (see cuda_runtime.h): what cmn/mpi/kernels.cu asks for. */
#ifndef TESTS_FAKE_CUDA_BF16_H
#define TESTS_FAKE_CUDA_BF16_H

#include "kernel.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    __nv_bfloat16 y;

    fake_narrow(&y, 0, x, 9);
    return y;
}

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return fake_widen(&x, 0, 9);
}

#endif
