#include "sums.h"

#include <string.h>

/* Floats summed at once: what a part gives stays in the first cache while the next is added. */
enum { BLOCK = 1024 };

/* Wider vectors where the processor has them. Not fused multiply-add: its other rounding would make
 * hosts of different kinds disagree in the last bit. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTORS __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define VECTORS
#endif

VECTORS static void add_two(float *into, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        into[i] = a[i] + b[i];
    }
}

VECTORS static void sum_of_two(float *restrict a, float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = a[i] + b[i];
        a[i] = s;
        b[i] = s;
    }
}

VECTORS static void step_one(float *restrict w, float *restrict g, float rate, float decay,
                             float momentum, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float u = g[i] + decay * w[i];
        w[i] += rate * u;
        g[i] = momentum * u;
    }
}

/* a is the part that is kept, whatever its number: two addends may change places. */
VECTORS static void step_two(float *restrict w, float *restrict a, float *restrict b, float rate,
                             float decay, float momentum, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float u = a[i] + b[i] + decay * w[i];
        w[i] += rate * u;
        a[i] = momentum * u;
        b[i] = 0;
    }
}

static void sum_block(float *sum, float *const *part, int parts, size_t at, size_t n)
{
    if (parts == 1) {
        memcpy(sum, part[0] + at, n * sizeof *sum);
        return;
    }
    add_two(sum, part[0] + at, part[1] + at, n);
    for (int k = 2; k < parts; k++) {
        add_two(sum, sum, part[k] + at, n);
    }
}

static size_t block_at(size_t n, size_t at)
{
    return n - at < BLOCK ? n - at : BLOCK;
}

void cmn_sum(float *into, float *const *part, int parts, size_t n)
{
    float sum[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, part, parts, at, count);
        memcpy(into + at, sum, count * sizeof *sum);
    }
}

void cmn_sum_everywhere(float *const *part, int parts, size_t n)
{
    float sum[BLOCK];

    if (parts == 1) {
        return;
    }
    if (parts == 2) {
        sum_of_two(part[0], part[1], n);
        return;
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, part, parts, at, count);
        for (int k = 0; k < parts; k++) {
            memcpy(part[k] + at, sum, count * sizeof *sum);
        }
    }
}

void cmn_sum_and_step(float *weights, float *const *part, int parts, int mine,
                      const struct cmn_sgd_slice *how, size_t n)
{
    float sum[BLOCK];

    if (parts == 1) {
        step_one(weights, part[0], how->rate, how->decay, how->momentum, n);
        return;
    }
    if (parts == 2) {
        step_two(weights, part[mine], part[1 - mine], how->rate, how->decay, how->momentum, n);
        return;
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, part, parts, at, count);
        step_one(weights + at, sum, how->rate, how->decay, how->momentum, count);
        for (int k = 0; k < parts; k++) {
            if (k == mine) {
                memcpy(part[k] + at, sum, count * sizeof *sum);
            } else {
                memset(part[k] + at, 0, count * sizeof *sum);
            }
        }
    }
}
