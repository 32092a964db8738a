#include "compression/select.h"

#include <string.h>

#include "base/simd.h"

/* Floats per block, which stays in the first cache, and per group, of which most hold nothing
 * that is wanted. */
enum { BLOCK = 4096, GROUP = 16 };

/* A sample gives a lower bound for the k largest, and the values above it are candidates: at most
 * CANDIDATES * k. The sample takes at most one of STRIDE values, and so many that at least
 * SAMPLES of it should be among the k largest. */
enum { CANDIDATES = 4, SAMPLES = 128, STRIDE = 64 };

enum { MAGNITUDE = 0x7fffffff };

static inline int32_t magnitude(float value)
{
    int32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits & MAGNITUDE;
}

size_t cmn_select_room(size_t n, size_t k)
{
    return CANDIDATES * k + BLOCK + n / 2;
}

CMN_VECTORS static void accumulate(float *restrict kept, float *restrict fresh, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        kept[i] += fresh[i];
        fresh[i] = 0;
    }
}

/* Compilers do not vectorise a loop that ends early, so this one is written in lanes. */
typedef int32_t lanes __attribute__((vector_size(8 * sizeof(int32_t))));
typedef int64_t pairs __attribute__((vector_size(4 * sizeof(int64_t))));
enum { LANES = 8 };

/* Writes the indexes, from `base` on, of those of a block that have at least the magnitude
 * `least`. Returns how many. */
CMN_VECTORS static size_t above(const float *value, size_t n, int32_t least, uint32_t base,
                                uint32_t *index)
{
    size_t count = 0, i = 0;

    for (; i + GROUP <= n; i += GROUP) {
        lanes any = {0}, some;
        pairs both;
        for (size_t j = 0; j < GROUP; j += LANES) {
            memcpy(&some, value + i + j, sizeof some);
            any |= least - 1 - (some & MAGNITUDE); /* negative where one is found */
        }
        both = (pairs)any;
        if (!((both[0] | both[1] | both[2] | both[3]) & (int64_t)0x8000000080000000)) {
            continue;
        }
        for (size_t j = i; j < i + GROUP; j++) {
            index[count] = base + (uint32_t)j;
            count += magnitude(value[j]) >= least;
        }
    }
    for (; i < n; i++) {
        index[count] = base + (uint32_t)i;
        count += magnitude(value[i]) >= least;
    }
    return count;
}

/* The entry of the histogram count[0…] that holds the k-th largest; *k becomes its number within
 * that entry. */
static int32_t bin_of(const uint32_t *count, int32_t entries, size_t *k)
{
    int32_t i = entries - 1;

    for (; i > 0 && count[i] < *k; i--) {
        *k -= count[i];
    }
    return i;
}

/* The k-th largest magnitude of n; *ties: how many that are equal to it belong to the k largest.
 * Radix selection: a histogram of the first 11 bits, then of the next 10 among those that share
 * them, then of the last 10. */
static int32_t kth(const float *value, size_t n, size_t k, size_t *ties)
{
    static const int shifts[] = {20, 10, 0}, entries[] = {2048, 1024, 1024};
    uint32_t count[2048];
    int32_t found = 0;

    for (int step = 0; step < 3; step++) {
        int shift = shifts[step];
        memset(count, 0, sizeof count);
        for (size_t i = 0; i < n; i++) {
            int32_t rest = magnitude(value[i]) - found;
            if (step == 0 || (rest >= 0 && rest >> shift < entries[step])) {
                count[rest >> shift]++;
            }
        }
        found += bin_of(count, entries[step], &k) << shift;
    }
    *ties = k;
    return found;
}

/* Accumulates, and takes one of each `stride` values, at random places, as a sample. Returns how
 * many. */
static size_t add_and_sample(float *kept, float *fresh, size_t n, size_t stride, float *sample)
{
    size_t samples = 0;
    uint32_t random = 1;

    for (size_t at = 0; at < n; at += BLOCK) {
        size_t end = n - at < BLOCK ? n : at + BLOCK;
        accumulate(kept + at, fresh + at, end - at);
        for (size_t i = at; i + stride <= end && stride > 1; i += stride) {
            random = random * 1664525U + 1013904223U;
            sample[samples++] = kept[i + (random >> 16) % stride];
        }
    }
    return samples;
}

/* Collects the indexes of those of at least the magnitude `least`. Returns how many; more than
 * `room` means that not all were collected. */
static size_t collect(const float *kept, size_t n, int32_t least, uint32_t *index, size_t room)
{
    size_t found = 0;

    for (size_t at = 0; at < n && found <= room; at += BLOCK) {
        size_t count = n - at < BLOCK ? n - at : BLOCK;
        found += above(kept + at, count, least, (uint32_t)at, index + found);
    }
    return found;
}

/* Keeps of the candidates, which are in order, those above `least`, and the first `ties` that are
 * equal. Returns how many. */
static size_t keep_largest(const float *kept, const uint32_t *candidate, size_t n, int32_t least,
                           size_t *ties, uint32_t *index)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t is = magnitude(kept[candidate[i]]);
        int take = is > least || (is == least && *ties);
        *ties -= is == least && take;
        index[count] = candidate[i];
        count += (size_t)take;
    }
    return count;
}

/* A magnitude that most likely somewhat more than k of n have, of which these are samples: four
 * standard deviations more. */
static int32_t estimate(const float *sample, size_t samples, size_t k, size_t stride)
{
    size_t wanted = k / stride, more = 1, ties;
    int32_t least;

    while (more * more < 16 * wanted) {
        more++;
    }
    wanted += more;
    least = samples ? kth(sample, samples, wanted < samples ? wanted : samples, &ties) : 0;
    return least > 1 ? least : 1;
}

void cmn_select(float *kept, float *fresh, size_t n, size_t k, uint32_t *index, float *value)
{
    size_t stride = k / SAMPLES < STRIDE ? k / SAMPLES : STRIDE, samples, found = 0, ties = 0;
    int32_t least;

    samples = add_and_sample(kept, fresh, n, stride, value);
    if (stride > 1) {
        found = collect(kept, n, estimate(value, samples, k, stride), index, CANDIDATES * k);
    }
    if (found >= k && found <= CANDIDATES * k) {
        for (size_t i = 0; i < found; i++) {
            value[i] = kept[index[i]];
        }
        least = kth(value, found, k, &ties);
        keep_largest(kept, index, found, least, &ties, index);
    } else {
        least = kth(kept, n, k, &ties);
        found = 0;
        for (size_t at = 0; at < n && found < k; at += BLOCK) {
            uint32_t candidate[BLOCK];
            size_t count = n - at < BLOCK ? n - at : BLOCK;
            count = above(kept + at, count, least, (uint32_t)at, candidate);
            found += keep_largest(kept, candidate, count, least, &ties, index + found);
        }
    }
    for (size_t i = 0; i < k; i++) {
        value[i] = kept[index[i]];
    }
}
