#include "compression/gpu_kernels.h"

#include <cuda_runtime.h>

/* Threads of a block; floats of a tile, which one block of threads looks at; floats of a block of
 * topk's format; entries of a histogram. */
enum { THREADS = 256, EACH = 8, TILE = THREADS * EACH, BLOCK = 65536, BINS = 2048 };
static const unsigned BLOCKS_AT_MOST = 4096, MAGNITUDE = 0x7fffffffu, INFINITE = 0x7f800000u;

static unsigned blocks(size_t n)
{
    size_t all = (n + THREADS - 1) / THREADS;

    return (unsigned)(all < BLOCKS_AT_MOST ? all : BLOCKS_AT_MOST);
}

static size_t tiles_of(size_t n)
{
    return (n + TILE - 1) / TILE;
}

/* ---- topk: radix selection, as in select.c ---- */

/* The work space: a histogram; the state; of each tile how many are larger than the k-th largest
 * and how many equal, then how many of these come before it, and where its selection begins. */
enum state { LEAST, RANK, STATE }; /* the magnitude so far; the k-th's number within the bin */

struct work {
    unsigned *bin, *state, *larger, *equal, *before, *at;
};

static __device__ struct work work_of(unsigned *room, size_t tiles)
{
    struct work w = {room,
                     room + BINS,
                     room + BINS + STATE,
                     room + BINS + STATE + tiles,
                     room + BINS + STATE + 2 * tiles,
                     room + BINS + STATE + 3 * tiles};
    return w;
}

extern "C" size_t cmn_kernel_select_work(size_t n)
{
    return BINS + STATE + 4 * tiles_of(n) + 1;
}

static __device__ unsigned magnitude(float x)
{
    return __float_as_uint(x) & MAGNITUDE;
}

static __global__ void begin_selection(unsigned *room, size_t k)
{
    for (unsigned i = threadIdx.x; i < BINS; i += THREADS) {
        room[i] = 0;
    }
    if (threadIdx.x == 0) {
        room[BINS + LEAST] = 0;
        room[BINS + RANK] = (unsigned)k;
    }
}

/* Counts those that share the magnitude so far, by their next bits; the first time it also adds. */
static __global__ void count_bins(unsigned *room, float *kept, float *fresh, size_t n, int shift)
{
    __shared__ unsigned bin[BINS];
    size_t step = (size_t)gridDim.x * THREADS;
    unsigned least = room[BINS + LEAST], entries = shift == 20 ? 2048 : 1024;

    for (unsigned i = threadIdx.x; i < BINS; i += THREADS) {
        bin[i] = 0;
    }
    __syncthreads();
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        unsigned is;
        if (shift == 20) {
            kept[i] += fresh[i];
            fresh[i] = 0;
        }
        is = magnitude(kept[i]);
        if (is >= least && (is - least) >> shift < entries) {
            atomicAdd(&bin[(is - least) >> shift], 1u);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < BINS; i += THREADS) {
        if (bin[i]) {
            atomicAdd(&room[i], bin[i]);
        }
    }
}

/* One block: the bin that holds the k-th largest. The bins are empty then. */
static __global__ void pick_bin(unsigned *room, int shift)
{
    __shared__ unsigned sum[THREADS];
    unsigned *mine = room + threadIdx.x * (BINS / THREADS), above = 0, k = room[BINS + RANK];

    sum[threadIdx.x] = 0;
    for (int i = 0; i < BINS / THREADS; i++) {
        sum[threadIdx.x] += mine[i];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x + 1; i < THREADS; i++) {
        above += sum[i];
    }
    if (above < k && above + sum[threadIdx.x] >= k) {
        int i = BINS / THREADS - 1;
        for (; above + mine[i] < k; i--) {
            above += mine[i];
        }
        room[BINS + LEAST] += (threadIdx.x * (BINS / THREADS) + (unsigned)i) << shift;
        room[BINS + RANK] = k - above;
    }
    for (int i = 0; i < BINS / THREADS; i++) {
        mine[i] = 0;
    }
}

/* This thread's floats of a tile: how many are larger than the k-th, and how many equal. */
static __device__ void count_own(const float *kept, size_t n, unsigned least, unsigned *larger,
                                 unsigned *equal)
{
    size_t at = (size_t)blockIdx.x * TILE + threadIdx.x * EACH;

    *larger = *equal = 0;
    for (size_t i = at; i < at + EACH && i < n; i++) {
        *larger += magnitude(kept[i]) > least;
        *equal += magnitude(kept[i]) == least;
    }
}

static __global__ void count_tiles(unsigned *room, const float *kept, size_t n, size_t tiles)
{
    __shared__ unsigned sum[2];
    struct work w = work_of(room, tiles);
    unsigned larger, equal;

    if (threadIdx.x < 2) {
        sum[threadIdx.x] = 0;
    }
    __syncthreads();
    count_own(kept, n, w.state[LEAST], &larger, &equal);
    atomicAdd(&sum[0], larger);
    atomicAdd(&sum[1], equal);
    __syncthreads();
    if (threadIdx.x == 0) {
        w.larger[blockIdx.x] = sum[0];
        w.equal[blockIdx.x] = sum[1];
    }
}

static __device__ unsigned least_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* One block: where each tile's selection begins. Of equal ones the first count. */
static __global__ void place_tiles(unsigned *room, size_t tiles, size_t k)
{
    __shared__ unsigned larger[THREADS], equal[THREADS];
    struct work w = work_of(room, tiles);
    size_t each = (tiles + THREADS - 1) / THREADS, from = threadIdx.x * each;
    size_t to = from + each < tiles ? from + each : tiles;
    unsigned ties = w.state[RANK], before = 0, at = 0;

    larger[threadIdx.x] = equal[threadIdx.x] = 0;
    for (size_t i = from; i < to; i++) {
        larger[threadIdx.x] += w.larger[i];
        equal[threadIdx.x] += w.equal[i];
    }
    __syncthreads();
    for (unsigned i = 0; i < threadIdx.x; i++) {
        at += larger[i];
        before += equal[i];
    }
    for (size_t i = from; i < to; i++) {
        w.before[i] = before;
        w.at[i] = at + least_of(before, ties);
        before += w.equal[i];
        at += w.larger[i];
    }
    if (threadIdx.x == 0) {
        w.at[tiles] = (unsigned)k;
    }
}

/* To bf16, rounded to nearest, ties to even; what is out of range becomes the largest (float16.h). */
static __device__ unsigned short to_bf16(float x)
{
    unsigned bits = __float_as_uint(x), size = bits & MAGNITUDE;

    if (size > INFINITE) {
        return (unsigned short)(bits >> 16 | 0x40u);
    }
    if (size < INFINITE) {
        size += 0x7fffu + (size >> 16 & 1u);
        size = size < INFINITE ? size : 0x7f7f0000u;
    }
    return (unsigned short)(((bits & ~MAGNITUDE) | size) >> 16);
}

static __device__ float of_bf16(unsigned short x)
{
    return __uint_as_float((unsigned)x << 16);
}

static __global__ void write_selection(struct cmn_kernel_select s, size_t tiles)
{
    __shared__ unsigned larger[THREADS], equal[THREADS];
    struct work w = work_of(s.work, tiles);
    size_t count = (s.n + BLOCK - 1) / BLOCK, in_block = BLOCK / TILE, tile = blockIdx.x;
    unsigned *counts = (unsigned *)s.wire, least = w.state[LEAST], ties = w.state[RANK];
    unsigned short *place = (unsigned short *)(counts + count), *value = place + s.k;
    size_t first = tile * TILE + threadIdx.x * EACH;
    unsigned at = w.at[tile], before = w.before[tile], own, tied;

    count_own(s.kept, s.n, least, &own, &tied);
    larger[threadIdx.x] = own;
    equal[threadIdx.x] = tied;
    __syncthreads();
    at -= least_of(before, ties);
    for (unsigned i = 0; i < threadIdx.x; i++) {
        at += larger[i];
        before += equal[i];
    }
    at += least_of(before, ties);
    for (size_t i = first; i < first + EACH && i < s.n; i++) {
        float x = s.kept[i];
        unsigned is = magnitude(x);
        if (is > least || (is == least && before < ties)) {
            unsigned short rounded = to_bf16(x);
            place[at] = (unsigned short)(i % BLOCK);
            value[at++] = rounded;
            s.kept[i] = is < INFINITE ? x - of_bf16(rounded) : 0;
        } else if (is >= INFINITE) {
            s.kept[i] = 0; /* there were more than k */
        }
        before += is == least;
    }
    if (tile % in_block == 0 && threadIdx.x == 0) {
        size_t end = tile + in_block < tiles ? tile + in_block : tiles;
        counts[tile / in_block] = w.at[end] - w.at[tile];
    }
}

extern "C" int cmn_kernel_select(const struct cmn_kernel_select *s, void *stream)
{
    size_t tiles = tiles_of(s->n);
    cudaStream_t to = (cudaStream_t)stream;

    begin_selection<<<1, THREADS, 0, to>>>(s->work, s->k);
    for (int shift = 20; shift >= 0; shift -= 10) {
        count_bins<<<blocks(s->n), THREADS, 0, to>>>(s->work, s->kept, s->fresh, s->n, shift);
        pick_bin<<<1, THREADS, 0, to>>>(s->work, shift);
    }
    count_tiles<<<(unsigned)tiles, THREADS, 0, to>>>(s->work, s->kept, s->n, tiles);
    place_tiles<<<1, THREADS, 0, to>>>(s->work, tiles, s->k);
    write_selection<<<(unsigned)tiles, THREADS, 0, to>>>(*s, tiles);
    return cudaGetLastError();
}

/* One block of threads for each block of the format. */
static __global__ void add_selected(float *sum, const unsigned *counts, size_t count, size_t k)
{
    __shared__ unsigned begin;
    const unsigned short *place = (const unsigned short *)(counts + count), *value = place + k;
    float *block = sum + (size_t)blockIdx.x * BLOCK;

    if (threadIdx.x == 0) {
        begin = 0;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < blockIdx.x; i += THREADS) {
        atomicAdd(&begin, counts[i]);
    }
    __syncthreads();
    for (size_t i = begin + threadIdx.x; i < (size_t)begin + counts[blockIdx.x]; i += THREADS) {
        block[place[i]] += of_bf16(value[i]);
    }
}

extern "C" int cmn_kernel_add_selected(float *sum, size_t n, const void *wire, size_t k,
                                       void *stream)
{
    size_t count = (n + BLOCK - 1) / BLOCK;

    add_selected<<<(unsigned)count, THREADS, 0, (cudaStream_t)stream>>>(
        sum, (const unsigned *)wire, count, k);
    return cudaGetLastError();
}

/* ---- powersgd ---- */

enum { TOGETHER = 4, ACROSS = 64, DOWN = THREADS / ACROSS }; /* factors' columns in a pass */

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

    LOAD(begin_selection);
    LOAD(count_bins);
    LOAD(pick_bin);
    LOAD(count_tiles);
    LOAD(place_tiles);
    LOAD(write_selection);
    LOAD(add_selected);
    LOAD(left);
    LOAD(right);
    LOAD(take);
    return code;
}
