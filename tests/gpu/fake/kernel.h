/* What nvcc knows by itself, for kernels that a C++ compiler compiles for the CPU: `name<<<grid,
 * block>>>(arguments)` has become FAKE_LAUNCH(name, grid, block)(arguments). launch.c runs them. */
#ifndef TESTS_FAKE_KERNEL_H
#define TESTS_FAKE_KERNEL_H

#include "fake.h"

#ifdef __cplusplus
extern "C" {
#endif
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
#ifdef __cplusplus
}

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __shared__ static /* one block runs at a time */
#define __syncthreads fake_barrier

using std::max;
using std::min;

struct float3 {
    float x, y, z;
};

static inline float3 make_float3(float x, float y, float z)
{
    float3 all = {x, y, z};
    return all;
}

template <class T> static inline T atomicAdd(T *to, T x)
{
    T was = *to;

    *to += x;
    return was;
}

static inline unsigned __float_as_uint(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What cuda_fp16.h and cuda_bf16.h have; `type` is NCCL's. */
template <int type> struct fake_16_bits {
    uint16_t bits;
    fake_16_bits() = default;
    fake_16_bits(float x)
    {
        fake_narrow(this, 0, x, type);
    }
    operator float() const
    {
        return fake_widen(this, 0, type);
    }
};
typedef fake_16_bits<6> __half;
typedef fake_16_bits<9> __nv_bfloat16;
#define __float2half(x) __half(x)
#define __half2float(x) float(x)

/* Nobody knows how much of it a kernel touches: the pages around a block do. */
template <class T> static inline T fake_argument(const char *kernel, T value)
{
    if constexpr (std::is_pointer<T>::value) {
        return (T)fake_device((const void *)value, 0, kernel);
    } else {
        if constexpr (std::is_class<T>::value) {
            fake_members(&value, sizeof value, kernel);
        }
        return value;
    }
}

template <class Body, class... A> struct fake_arguments {
    Body body;
    std::tuple<A...> all;

    static void threads(void *self)
    {
        fake_arguments *mine = (fake_arguments *)self;

        while (fake_next_thread()) {
            std::apply(mine->body, mine->all);
        }
    }
    static void release(void *self)
    {
        delete (fake_arguments *)self;
    }
};

template <class Body> struct fake_kernel {
    const char *name;
    Body body;
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;

    template <class... A> void operator()(A... a) const
    {
        typedef fake_arguments<Body, A...> arguments;
        arguments *mine = new arguments{body, std::tuple<A...>(fake_argument(name, a)...)};
        struct fake_launch launch = {
            name, grid, block, stream, arguments::threads, arguments::release, mine};

        fake_launch(&launch);
    }
};

template <class Body>
static inline fake_kernel<Body> fake_kernel_of(const char *name, Body body, dim3 grid, dim3 block,
                                               size_t shared = 0, cudaStream_t stream = NULL)
{
    return fake_kernel<Body>{name, body, grid, block, shared, stream};
}

struct cudaFuncAttributes {
    int none;
};
#define cudaFuncGetAttributes(attributes, ...) ((void)(attributes), fake_load(#__VA_ARGS__), 0)

#define FAKE_LAUNCH(name, ...) \
    fake_kernel_of(            \
        #name, [](auto... a) { name(a...); }, __VA_ARGS__)
#endif

#endif
