#include "mpi/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* Of mpi/device.h, which includes MPI's header: that is not for nvcc. */
extern "C" void cmn_device_need(int code, const char *what);

static const unsigned BLOCK = 256, BLOCKS_AT_MOST = 4096;

/* Grid-stride loops: a bounded number of blocks serves any n. */
#define EACH(i, from, end)                                                               \
    size_t i = (from) + (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (end);        \
    i += (size_t)gridDim.x * blockDim.x

template <typename To> static __device__ void put(To *to, float x, int add)
{
    *to = (To)(add ? (float)*to + x : x);
}

template <typename To, typename From>
static __global__ void cast_all(To *to, const From *from, size_t n, float factor, int add)
{
    for (EACH(i, 0, n)) {
        put(&to[i], (float)from[i] * factor, add);
    }
}

static const unsigned TILE = 32, TILE_ROWS = 8;

/* A block reads TILE x TILE numbers of one matrix along its rows, and writes them along its
 * columns: both times neighbours of a warp lie side by side. */
template <typename To, typename From>
static __global__ void transpose_all(To *to, const From *from, size_t rows, size_t columns, int add)
{
    __shared__ float tile[TILE][TILE + 1]; /* one more: the numbers of a column lie in as many banks */
    size_t across = (columns + TILE - 1) / TILE, at = blockIdx.y * rows * columns;
    size_t row = blockIdx.x / across * TILE, column = blockIdx.x % across * TILE;

    for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS) {
        if (row + i < rows && column + threadIdx.x < columns) {
            tile[i][threadIdx.x] = (float)from[at + (row + i) * columns + column + threadIdx.x];
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS) {
        if (column + i < columns && row + threadIdx.x < rows) {
            put(&to[at + (column + i) * rows + row + threadIdx.x], tile[threadIdx.x][i], add);
        }
    }
}

/* By the bits of the exponent. All threads that find one write the same value. */
static __global__ void find_nonfinite(float *found, const unsigned short *tensor, const float *x,
                                      size_t from, size_t to)
{
    for (EACH(i, from, to)) {
        if ((__float_as_uint(x[i]) & 0x7f800000u) == 0x7f800000u) {
            found[tensor[i / CMN_KERNEL_UNIT]] = 1;
        }
    }
}

static __global__ void update(struct cmn_kernel_sgd k)
{
    for (EACH(i, 0, k.n)) {
        unsigned t = k.of.tensor[i / CMN_KERNEL_UNIT];
        float w = k.weights[i], g = k.of.scale[t] * k.sums[i], limit = k.of.limit[t];
        float u = (k.velocity ? k.velocity[i] + g : g) + k.of.decay[t] * w;
        w += k.of.rate[t] * u;
        k.weights[i] = limit != 0 ? fminf(limit, fmaxf(-limit, w)) : w;
        if (k.velocity) {
            k.velocity[i] = k.momentum * u;
        }
        k.sums[i] = k.velocity ? 0 : k.momentum * u;
    }
}

/* In the order of Darknet's adam_cpu(). */
static __global__ void update_adam(struct cmn_kernel_adam k)
{
    for (EACH(i, 0, k.n)) {
        unsigned t = k.of.tensor[i / CMN_KERNEL_UNIT];
        float w = k.weights[i], limit = k.of.limit[t];
        float u = k.of.scale[t] * k.sums[i] + k.of.decay[t] * w;
        float m = k.b1 * k.m[i] + (1 - k.b1) * u, v = k.b2 * k.v[i] + (1 - k.b2) * u * u;
        k.m[i] = m;
        k.v[i] = v;
        w += k.of.rate[t] * m * k.m_scale / (sqrtf(v * k.v_scale) + k.eps);
        k.weights[i] = limit != 0 ? fminf(limit, fmaxf(-limit, w)) : w;
        k.sums[i] = 0;
    }
}

static __device__ double value_of(float x, size_t, double)
{
    return (double)x * (double)x;
}

/* The finalizer of splitmix64. Sums of such values do not depend on their order. */
static __device__ unsigned long long value_of(float x, size_t i, unsigned long long)
{
    unsigned long long z = (unsigned long long)i << 32 | __float_as_uint(x);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

/* One block for each part of each tensor. */
template <typename T>
static __global__ void sum_parts(T *part, const float *x, const size_t *at, const size_t *n)
{
    __shared__ T room[BLOCK];
    const float *mine = x + at[blockIdx.y];
    size_t first = (size_t)blockIdx.x * BLOCK, end = n[blockIdx.y];
    T sum = 0;

    if (first >= end) { /* a small tensor has fewer parts: the whole block ends here */
        if (threadIdx.x == 0) {
            part[(size_t)blockIdx.y * CMN_KERNEL_PARTS + blockIdx.x] = 0;
        }
        return;
    }
    for (size_t i = first + threadIdx.x; i < end; i += (size_t)CMN_KERNEL_PARTS * BLOCK) {
        sum += value_of(mine[i], i, T());
    }
    room[threadIdx.x] = sum;
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            room[threadIdx.x] += room[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        part[(size_t)blockIdx.y * CMN_KERNEL_PARTS + blockIdx.x] = room[0];
    }
}

template <typename T> static __global__ void add_parts(T *sum, const T *part, size_t tensors)
{
    for (EACH(i, 0, tensors)) {
        T all = 0;
        for (unsigned p = 0; p < CMN_KERNEL_PARTS; p++) {
            all += part[i * CMN_KERNEL_PARTS + p];
        }
        sum[i] = all;
    }
}

static __global__ void combine(float *to, const float *a, float by, const float *b, size_t n)
{
    for (EACH(i, 0, n)) {
        to[i] = a[i] + by * b[i];
    }
}

static __global__ void pack_statistics(float *to, const float *a, const float *b, size_t n,
                                       unsigned count)
{
    for (EACH(i, 0, n)) {
        to[i] = a[i];
        to[n + i] = b[i];
        if (i == 0) {
            to[2 * n] = __uint_as_float(count);
        }
    }
}

/* What rank r has sent. */
static __device__ const float *sent_by(const float *from, size_t n, int r)
{
    return from + (size_t)r * (2 * n + 1);
}

static __device__ double count_of(const float *from, size_t n, int r)
{
    return __float_as_uint(sent_by(from, n, r)[2 * n]);
}

static __global__ void merge_statistics(float *mean, float *variance, const float *from, size_t n,
                                        int ranks, double less)
{
    for (EACH(i, 0, n)) {
        double count = 0, shift = 0, squares = 0, middle;
        for (int r = 0; r < ranks; r++) {
            double own = count_of(from, n, r);
            count += own;
            shift += own * ((double)sent_by(from, n, r)[i] - (double)from[i]);
        }
        middle = (double)from[i] + shift / count;
        for (int r = 0; r < ranks; r++) {
            double own = count_of(from, n, r), distance = (double)sent_by(from, n, r)[i] - middle;
            /* The variance of one value is 0 / 0. */
            squares += own > less ? (double)sent_by(from, n, r)[n + i] * (own - less) : 0;
            squares += own * distance * distance;
        }
        mean[i] = (float)middle;
        variance[i] = (float)(squares / (count - less));
    }
}

static __global__ void merge_deltas(float *a, float *b, const float *from, size_t n, int ranks,
                                    unsigned count)
{
    for (EACH(i, 0, n)) {
        double all = 0, sum[2] = {0, 0};
        for (int r = 0; r < ranks; r++) {
            all += count_of(from, n, r);
            sum[0] += (double)sent_by(from, n, r)[i];
            sum[1] += (double)sent_by(from, n, r)[n + i];
        }
        a[i] = (float)(sum[0] * (count / all));
        b[i] = (float)(sum[1] * (count / all));
    }
}

/* ---- what the CPU calls, with the linkage that the header declares ---- */

static unsigned blocks(size_t n)
{
    size_t all = (n + BLOCK - 1) / BLOCK;

    return (unsigned)(all < BLOCKS_AT_MOST ? all : BLOCKS_AT_MOST);
}

/* Queues a kernel over n numbers; a grid of no blocks would be an error. */
#define LAUNCH_ON(stream, kernel, n, ...)                                         \
    do {                                                                          \
        if ((n) > 0) {                                                            \
            kernel<<<blocks(n), BLOCK, 0, (cudaStream_t)(stream)>>>(__VA_ARGS__); \
        }                                                                         \
        cmn_device_need(cudaGetLastError(), #kernel);                             \
    } while (0)
#define LAUNCH(...) LAUNCH_ON(cudaStreamLegacy, __VA_ARGS__)

/* Loads a kernel. */
#define LOAD(...) \
    cmn_device_need(cudaFuncGetAttributes(&unused, (const void *)__VA_ARGS__), "a kernel")

void cmn_kernel_load(void)
{
    struct cudaFuncAttributes unused;

    LOAD(cast_all<__half, float>);
    LOAD(cast_all<float, __half>);
    LOAD(cast_all<__nv_bfloat16, float>);
    LOAD(cast_all<float, __nv_bfloat16>);
    LOAD(cast_all<float, float>);
    LOAD(update);
    LOAD(update_adam);
    LOAD(combine);
    LOAD(sum_parts<unsigned long long>);
    LOAD(sum_parts<double>);
    LOAD(add_parts<unsigned long long>);
    LOAD(add_parts<double>);
    LOAD(pack_statistics);
    LOAD(merge_statistics);
    LOAD(merge_deltas);
}

void cmn_kernel_cast_to_16(void *to, const float *from, size_t n, float factor, enum cmn_dtype type,
                           void *stream)
{
    if (type == CMN_FP16) {
        LAUNCH_ON(stream, cast_all, n, (__half *)to, from, n, factor, 0);
    } else {
        LAUNCH_ON(stream, cast_all, n, (__nv_bfloat16 *)to, from, n, factor, 0);
    }
}

void cmn_kernel_cast_to_32(float *to, const void *from, size_t n, float factor, enum cmn_dtype type,
                           void *stream)
{
    if (type == CMN_FP16) {
        LAUNCH_ON(stream, cast_all, n, to, (const __half *)from, n, factor, 0);
    } else {
        LAUNCH_ON(stream, cast_all, n, to, (const __nv_bfloat16 *)from, n, factor, 0);
    }
}

void cmn_kernel_scale(float *x, float by, size_t n)
{
    LAUNCH(cast_all, n, x, (const float *)x, n, by, 0);
}

/* Transposes n matrices. */
template <typename To, typename From>
static void transpose(To *to, const From *from, size_t n, size_t rows, size_t columns, int add)
{
    const size_t most = 65535; /* of a grid, but in its first dimension */
    size_t tiles = (rows + TILE - 1) / TILE * ((columns + TILE - 1) / TILE);

    if (rows == 1 || columns == 1) {
        LAUNCH(cast_all, n * rows * columns, to, from, n * rows * columns, 1.f, add);
        return;
    }
    for (size_t first = 0; first < n; first += most) {
        size_t at = first * rows * columns;
        dim3 grid((unsigned)tiles, (unsigned)(n - first < most ? n - first : most));
        transpose_all<<<grid, dim3(TILE, TILE_ROWS), 0, cudaStreamLegacy>>>(to + at, from + at,
                                                                            rows, columns, add);
    }
    cmn_device_need(cudaGetLastError(), "transpose_all");
}

void cmn_kernel_channels_last(void *to, const float *from, size_t n, size_t channels, size_t pixels)
{
    transpose((__nv_bfloat16 *)to, from, n, channels, pixels, 0);
}

void cmn_kernel_channels_first(float *to, const void *from, size_t n, size_t channels,
                               size_t pixels, int add)
{
    transpose(to, (const __nv_bfloat16 *)from, n, pixels, channels, add);
}

void cmn_kernel_sgd(const struct cmn_kernel_sgd *k)
{
    LAUNCH(update, k->n, *k);
}

void cmn_kernel_adam(const struct cmn_kernel_adam *k)
{
    LAUNCH(update_adam, k->n, *k);
}

void cmn_kernel_nonfinite(float *found, const unsigned short *tensor, const float *x, size_t from,
                          size_t to)
{
    LAUNCH(find_nonfinite, from < to ? to - from : 0, found, tensor, x, from, to);
}

template <typename T>
static void launch_sums(T *sum, const float *x, const size_t *at, const size_t *n, size_t tensors)
{
    if (tensors > 0) {
        sum_parts<<<dim3(CMN_KERNEL_PARTS, (unsigned)tensors), BLOCK, 0, cudaStreamLegacy>>>(
            sum + tensors, x, at, n);
    }
    LAUNCH(add_parts, tensors, sum, (const T *)sum + tensors, tensors);
}

void cmn_kernel_squares(double *sum, const float *x, const size_t *at, const size_t *n,
                        size_t tensors)
{
    launch_sums(sum, x, at, n, tensors);
}

void cmn_kernel_hash(unsigned long long *sum, const float *x, const size_t *at, const size_t *n,
                     size_t tensors)
{
    launch_sums(sum, x, at, n, tensors);
}

void cmn_kernel_combine(float *to, const float *a, float by, const float *b, size_t n)
{
    LAUNCH(combine, n, to, a, by, b, n);
}

void cmn_kernel_pack_statistics(float *to, const float *a, const float *b, size_t n, unsigned count)
{
    LAUNCH(pack_statistics, n, to, a, b, n, count);
}

void cmn_kernel_merge_statistics(float *mean, float *variance, const float *from, size_t n,
                                 int ranks, double less)
{
    LAUNCH(merge_statistics, n, mean, variance, from, n, ranks, less);
}

void cmn_kernel_merge_deltas(float *a, float *b, const float *from, size_t n, int ranks,
                             unsigned count)
{
    LAUNCH(merge_deltas, n, a, b, from, n, ranks, count);
}
