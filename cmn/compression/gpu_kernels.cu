#include "compression/gpu_kernels.h"

#include <cuda_runtime.h>

/* Threads of a block; factors' columns in a pass of left(); columns and rows that a block of right()
 * takes side by side. */
enum { THREADS = 256, TOGETHER = 4, ACROSS = 64, DOWN = THREADS / ACROSS };
static const unsigned BLOCKS_AT_MOST = 4096;

static unsigned blocks(size_t n)
{
    size_t all = (n + THREADS - 1) / THREADS;

    return (unsigned)(all < BLOCKS_AT_MOST ? all : BLOCKS_AT_MOST);
}

/* A block of threads for each row of m: adds to it, then its products with q. */
static __global__ void left(struct cmn_lowrank s, float *m, const float *fresh, const float *q,
                            float *p)
{
    __shared__ float room[TOGETHER][THREADS];
    size_t row = blockIdx.x;
    float *mine = m + row * s.columns;

    for (size_t c = threadIdx.x; c < s.columns; c += THREADS) {
        mine[c] += fresh[row * s.columns + c];
    }
    for (size_t j = 0; j < s.rank; j += TOGETHER) {
        float sum[TOGETHER] = {0};
        unsigned columns = (unsigned)(s.rank - j < TOGETHER ? s.rank - j : TOGETHER);
        for (size_t c = threadIdx.x; c < s.columns; c += THREADS) {
            for (unsigned k = 0; k < columns; k++) {
                sum[k] += mine[c] * q[(j + k) * s.columns + c];
            }
        }
        __syncthreads(); /* the pass before has been read */
        for (unsigned k = 0; k < TOGETHER; k++) {
            room[k][threadIdx.x] = sum[k];
        }
        for (unsigned half = THREADS / 2; half > 0; half /= 2) {
            __syncthreads();
            for (unsigned k = 0; k < TOGETHER && threadIdx.x < half; k++) {
                room[k][threadIdx.x] += room[k][threadIdx.x + half];
            }
        }
        if (threadIdx.x == 0) {
            for (unsigned k = 0; k < columns; k++) {
                p[(j + k) * s.rows + row] = room[k][0];
            }
        }
    }
}

/* A block of threads for ACROSS columns of m; DOWN threads share the rows of each. */
static __global__ void right(struct cmn_lowrank s, const float *m, const float *p, float *q)
{
    __shared__ float room[DOWN][ACROSS];
    unsigned across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    size_t c = (size_t)blockIdx.x * ACROSS + across;

    for (size_t j = 0; j < s.rank; j++) {
        float sum = 0;
        for (size_t i = down; i < s.rows && c < s.columns; i += DOWN) {
            sum += m[i * s.columns + c] * p[j * s.rows + i];
        }
        __syncthreads();
        room[down][across] = sum;
        __syncthreads();
        if (down == 0 && c < s.columns) {
            q[j * s.columns + c] =
                (room[0][across] + room[1][across]) + (room[2][across] + room[3][across]);
        }
    }
}

static __global__ void take(struct cmn_lowrank s, float *m, float *sum, const float *p,
                            const float *own, const float *q)
{
    size_t step = (size_t)gridDim.x * THREADS;

    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < s.rows * s.columns; i += step) {
        size_t row = i / s.columns, c = i % s.columns;
        float mine = 0, all = 0;
        for (size_t j = 0; j < s.rank; j++) {
            mine += p[j * s.rows + row] * own[j * s.columns + c];
            all += p[j * s.rows + row] * q[j * s.columns + c];
        }
        m[i] -= mine;
        sum[i] = all;
    }
}

extern "C" int cmn_kernel_left(const struct cmn_lowrank *s, float *m, const float *fresh,
                               const float *q, float *p, void *stream)
{
    left<<<(unsigned)s->rows, THREADS, 0, (cudaStream_t)stream>>>(*s, m, fresh, q, p);
    return cudaGetLastError();
}

extern "C" int cmn_kernel_right(const struct cmn_lowrank *s, const float *m, const float *p,
                                float *q, void *stream)
{
    right<<<(unsigned)((s->columns + ACROSS - 1) / ACROSS), THREADS, 0, (cudaStream_t)stream>>>(
        *s, m, p, q);
    return cudaGetLastError();
}

extern "C" int cmn_kernel_take(const struct cmn_lowrank *s, float *m, float *sum, const float *p,
                               const float *own, const float *q, void *stream)
{
    take<<<blocks(s->rows * s->columns), THREADS, 0, (cudaStream_t)stream>>>(*s, m, sum, p, own, q);
    return cudaGetLastError();
}

#define LOAD(kernel) (code = code ? code : cudaFuncGetAttributes(&unused, (const void *)kernel))

extern "C" int cmn_kernel_load_compressors(void)
{
    struct cudaFuncAttributes unused;
    int code = 0;

    LOAD(left);
    LOAD(right);
    LOAD(take);
    return code;
}
