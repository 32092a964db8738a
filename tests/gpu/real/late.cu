/* Work that is late, on a GPU. */
#include <cuda_runtime.h>

static __global__ void spin(long long cycles)
{
    long long begin = clock64();

    while (clock64() - begin < cycles) {
    }
}

/* By a kernel, as Darknet writes gradients: a copy engine would be no such work. */
static __global__ void copy(float *to, const float *from, size_t n)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        to[i] = from[i];
    }
}

extern "C" int late_copy(float *to, const float *from, size_t n, long long cycles,
                         cudaStream_t stream)
{
    spin<<<1, 1, 0, stream>>>(cycles);
    if (n) {
        copy<<<(unsigned)(n < 65536 ? n / 256 + 1 : 256), 256, 0, stream>>>(to, from, n);
    }
    return cudaGetLastError();
}
