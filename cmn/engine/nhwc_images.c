#include "engine/nhwc_images.h"

#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/batch_norm.h"

/* This file is compiled for bf16 and, by nhwc_floats.c, for floats. Its loops run over the channels of
 * one or several pixels, and the compiler vectorises them, those for bf16 for the processors of
 * cmn_channels_fast(). (The Makefile has more flags for that.) */
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    !defined(__GNUC__) || defined(__clang__)
#define VECTORS static
#elif defined(OF_FLOATS)
#define VECTORS __attribute__((target_clones("avx512f", "avx2", "default"))) static
#else
#define VECTORS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static
#endif
/* What follows is a loop that the threads share, if it has so many values that waking them pays. */
enum { SHARED = 1 << 17 };
#ifdef _OPENMP
#define PRAGMA(text) _Pragma(#text)
#define SHARE(values) PRAGMA(omp parallel for if ((values) >= SHARED))
#else
#define SHARE(values)
#endif
#define INLINE __attribute__((always_inline)) static inline

/* Sums are made of blocks of so many pixels, in the order of the blocks. A row of the loops has at
 * least LANES values. */
enum { BLOCK = 1024, LANES = 64 };

#ifdef OF_FLOATS

typedef float value;
typedef uint32_t place; /* the number of a value in its window */
#define LEAST (-FLT_MAX)

INLINE float decode(value x)
{
    return x;
}

INLINE value encode(float x)
{
    return x;
}

INLINE int is_larger(value a, value b)
{
    return a > b;
}

INLINE value only_if(int condition, value x)
{
    return condition ? x : 0;
}

#else

typedef uint16_t value;
typedef uint16_t place;
#define LEAST 0xff7f /* the least finite one */

INLINE float decode(value x)
{
    uint32_t bits = (uint32_t)x << 16;
    float number;

    memcpy(&number, &bits, sizeof number);
    return number;
}

INLINE value encode(float x)
{
    uint32_t bits, rounded;

    memcpy(&bits, &x, sizeof bits);
    rounded = bits + 0x7fffU + (bits >> 16 & 1U);
    return (uint16_t)((bits & 0x7fffffffU) > 0x7f800000U ? (bits | 0x400000U) >> 16 /* NaN */
                                                         : rounded >> 16);
}

/* Returns an integer that is the larger, the larger the number is. */
INLINE int16_t rank_of(value x)
{
    return (int16_t)(x ^ ((uint16_t)((int16_t)x >> 15) & 0x7fffU));
}

INLINE int is_larger(value a, value b)
{
    return rank_of(a) > rank_of(b);
}

INLINE value only_if(int condition, value x)
{
    return x & (uint16_t)-condition;
}

#endif

/* ---- rows: the channels of as many pixels as fill LANES ---- */

struct rows {
    size_t width, rows, rest; /* `rest` values follow behind the rows */
};

static int pixels_of_row(int channels)
{
    return channels >= LANES ? 1 : LANES / channels;
}

static struct rows rows_of(size_t pixels, int channels)
{
    size_t width = (size_t)pixels_of_row(channels) * (size_t)channels;
    size_t all = pixels * (size_t)channels;

    return (struct rows){width, all / width, all % width};
}

/* Returns room for `n` vectors of a row's length. */
static float *open_vectors(int n, int channels)
{
    return cmn_alloc_floats((size_t)n * (size_t)pixels_of_row(channels) * (size_t)channels);
}

static float *vector(float *vectors, int i, int channels)
{
    return vectors + (size_t)i * (size_t)pixels_of_row(channels) * (size_t)channels;
}

/* Repeats the channels' numbers for each pixel of a row. */
static const float *repeat(float *to, const float *each, int channels)
{
    for (int i = 0; i < pixels_of_row(channels); i++) {
        memcpy(to + (size_t)i * (size_t)channels, each, (size_t)channels * sizeof *to);
    }
    return to;
}

/* Adds a row's sums up for each channel. */
static void fold(double *to, const float *row, int channels)
{
    for (int k = 0; k < channels; k++) {
        to[k] = 0;
        for (int i = 0; i < pixels_of_row(channels); i++) {
            to[k] += (double)row[i * channels + k];
        }
    }
}

static size_t blocks_of(size_t pixels)
{
    return (pixels + BLOCK - 1) / BLOCK;
}

static size_t block_pixels(size_t pixels, size_t block)
{
    return block * BLOCK + BLOCK <= pixels ? BLOCK : pixels - block * BLOCK;
}

/* ---- statistics ---- */

VECTORS void add_row(float *restrict sum, const value *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] += decode(x[i]);
    }
}

VECTORS void add_rows(float *restrict sum, const value *restrict x, size_t rows, size_t n)
{
    size_t r = 0;

    for (; r + 4 <= rows; r += 4, x += 4 * n) {
        for (size_t i = 0; i < n; i++) {
            sum[i] +=
                (decode(x[i]) + decode(x[n + i])) + (decode(x[2 * n + i]) + decode(x[3 * n + i]));
        }
    }
    for (; r < rows; r++, x += n) {
        for (size_t i = 0; i < n; i++) {
            sum[i] += decode(x[i]);
        }
    }
}

VECTORS void add_squares(float *restrict sum, const float *restrict mean, const value *restrict x,
                         size_t rows, size_t n)
{
    size_t r = 0;

    for (; r + 4 <= rows; r += 4, x += 4 * n) {
        for (size_t i = 0; i < n; i++) {
            float m = mean[i], a = decode(x[i]) - m, b = decode(x[n + i]) - m;
            float c = decode(x[2 * n + i]) - m, d = decode(x[3 * n + i]) - m;
            sum[i] += (a * a + b * b) + (c * c + d * d);
        }
    }
    for (; r < rows; r++, x += n) {
        for (size_t i = 0; i < n; i++) {
            float a = decode(x[i]) - mean[i];
            sum[i] += a * a;
        }
    }
}

static void block_statistics(size_t pixels, int channels, const value *x, double *to)
{
    struct rows r = rows_of(pixels, channels);
    float *vectors = open_vectors(2, channels), *sum = vector(vectors, 0, channels);
    float *mean = vector(vectors, 1, channels);

    add_rows(sum, x, r.rows, r.width);
    add_row(sum, x + r.rows * r.width, r.rest);
    fold(to + 1, sum, channels);
    to[0] = (double)pixels;
    for (int k = 0; k < channels; k++) {
        to[1 + k] /= (double)pixels;
        mean[k] = (float)to[1 + k];
        to[1 + k] = (double)mean[k];
    }
    for (size_t k = (size_t)channels; k < r.width; k++) {
        mean[k] = mean[k - (size_t)channels];
    }
    memset(sum, 0, r.width * sizeof *sum);
    add_squares(sum, mean, x, r.rows, r.width);
    add_squares(sum, mean, x + r.rows * r.width, 1, r.rest);
    fold(to + 1 + channels, sum, channels);
    free(vectors);
}

static void statistics(const struct cmn_pixels *p, const void *x_of, double *to)
{
    const value *x = x_of;
    size_t blocks = blocks_of(p->pixels), each = 1 + 2 * (size_t)p->channels;
    double *of = cmn_malloc(blocks * each, sizeof *of);
    const double **part = cmn_malloc(blocks, sizeof *part);

    SHARE(p->pixels * (size_t)p->channels)
    for (size_t b = 0; b < blocks; b++) {
        block_statistics(block_pixels(p->pixels, b), p->channels,
                         x + b * BLOCK * (size_t)p->channels, of + b * each);
        part[b] = of + b * each;
    }
    cmn_batch_norm_merge(to, part, (int)blocks, (size_t)p->channels);
    free(part);
    free(of);
}

/* ---- maps ---- */

VECTORS void map_rows(const float *restrict factor, const float *restrict term, float slope,
                      const value *x, value *to, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, x += n, to += n) {
#pragma GCC ivdep
        for (size_t i = 0; i < n; i++) {
            float y = decode(x[i]) * factor[i] + term[i];
            to[i] = encode(y > 0 ? y : y * slope);
        }
    }
}

VECTORS void map_rows_to_floats(const float *restrict factor, const float *restrict term,
                                float slope, const value *restrict x, float *restrict to,
                                size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, x += n, to += n) {
        for (size_t i = 0; i < n; i++) {
            float y = decode(x[i]) * factor[i] + term[i];
            to[i] = y > 0 ? y : y * slope;
        }
    }
}

static void map(const struct cmn_pixels *p, const struct cmn_map *m, const void *x_of, void *to_of,
                float *floats)
{
    const value *x = x_of;
    value *to = to_of;
    float *vectors = open_vectors(2, p->channels);
    const float *factor = repeat(vector(vectors, 0, p->channels), m->factor, p->channels);
    const float *term = repeat(vector(vectors, 1, p->channels), m->term, p->channels);

    SHARE(p->pixels * (size_t)p->channels)
    for (size_t b = 0; b < blocks_of(p->pixels); b++) {
        struct rows r = rows_of(block_pixels(p->pixels, b), p->channels);
        size_t at = b * BLOCK * (size_t)p->channels, rest = at + r.rows * r.width;
        if (to) {
            map_rows(factor, term, m->slope, x + at, to + at, r.rows, r.width);
            map_rows(factor, term, m->slope, x + rest, to + rest, 1, r.rest);
        } else {
            map_rows_to_floats(factor, term, m->slope, x + at, floats + at, r.rows, r.width);
            map_rows_to_floats(factor, term, m->slope, x + rest, floats + rest, 1, r.rest);
        }
    }
    free(vectors);
}

/* The channels' numbers in rows. */
struct delta_rows {
    const float *factor, *term, *mean;
    float slope;
    float *sum, *product;
};

VECTORS void sum_delta_rows(const struct delta_rows *d, const value *restrict x,
                            const value *restrict delta, size_t rows, size_t n)
{
    const float *restrict factor = d->factor, *restrict term = d->term, *restrict mean = d->mean;
    float *restrict sum = d->sum, *restrict product = d->product, slope = d->slope;
    size_t r = 0;

    for (; r + 2 <= rows; r += 2, x += 2 * n, delta += 2 * n) {
        for (size_t i = 0; i < n; i++) {
            float a = decode(x[i]), b = decode(x[n + i]);
            float p = decode(delta[i]), q = decode(delta[n + i]);
            p = a * factor[i] + term[i] > 0 ? p : p * slope;
            q = b * factor[i] + term[i] > 0 ? q : q * slope;
            sum[i] += p + q;
            product[i] += p * (a - mean[i]) + q * (b - mean[i]);
        }
    }
    for (; r < rows; r++, x += n, delta += n) {
        for (size_t i = 0; i < n; i++) {
            float a = decode(x[i]), p = decode(delta[i]);
            p = a * factor[i] + term[i] > 0 ? p : p * slope;
            sum[i] += p;
            product[i] += p * (a - mean[i]);
        }
    }
}

static void sum_deltas(const struct cmn_pixels *p, const struct cmn_map *m, const float *mean,
                       const void *x_of, const void *delta_of, double *to)
{
    const value *x = x_of;
    const value *delta = delta_of;
    size_t blocks = blocks_of(p->pixels), each = 2 * (size_t)p->channels;
    double *of = cmn_malloc(blocks * each, sizeof *of);
    float *vectors = open_vectors(3, p->channels);
    const float *factor = repeat(vector(vectors, 0, p->channels), m->factor, p->channels);
    const float *term = repeat(vector(vectors, 1, p->channels), m->term, p->channels);
    const float *middle = repeat(vector(vectors, 2, p->channels), mean, p->channels);

    SHARE(p->pixels * (size_t)p->channels)
    for (size_t b = 0; b < blocks; b++) {
        struct rows r = rows_of(block_pixels(p->pixels, b), p->channels);
        size_t at = b * BLOCK * (size_t)p->channels, rest = at + r.rows * r.width;
        float *sums = open_vectors(2, p->channels);
        struct delta_rows d = {factor, term, middle, m->slope, sums, vector(sums, 1, p->channels)};
        sum_delta_rows(&d, x + at, delta + at, r.rows, r.width);
        sum_delta_rows(&d, x + rest, delta + rest, 1, r.rest);
        fold(of + b * each, d.sum, p->channels);
        fold(of + b * each + p->channels, d.product, p->channels);
        free(sums);
    }
    memset(to, 0, each * sizeof *to);
    for (size_t b = 0; b < blocks; b++) {
        for (size_t i = 0; i < each; i++) {
            to[i] += of[b * each + i];
        }
    }
    free(vectors);
    free(of);
}

struct delta_maps {
    const float *factor, *term, *by_delta, *by_x, *constant;
    float slope;
};

VECTORS void map_delta_rows(const struct delta_maps *d, const value *restrict x,
                            value *restrict delta, size_t rows, size_t n)
{
    const float *restrict factor = d->factor, *restrict term = d->term;
    const float *restrict by_delta = d->by_delta, *restrict by_x = d->by_x;
    const float *restrict constant = d->constant;
    float slope = d->slope;

    for (size_t r = 0; r < rows; r++, x += n, delta += n) {
        for (size_t i = 0; i < n; i++) {
            float a = decode(x[i]), p = decode(delta[i]);
            p = a * factor[i] + term[i] > 0 ? p : p * slope;
            delta[i] = encode(by_delta[i] * p + by_x[i] * a + constant[i]);
        }
    }
}

static void map_deltas(const struct cmn_pixels *p, const struct cmn_map *m, const float *by_delta,
                       const float *by_x, const float *constant, const void *x_of, void *delta_of)
{
    const value *x = x_of;
    value *delta = delta_of;
    float *vectors = open_vectors(5, p->channels);
    const struct delta_maps d = {
        .factor = repeat(vector(vectors, 0, p->channels), m->factor, p->channels),
        .term = repeat(vector(vectors, 1, p->channels), m->term, p->channels),
        .by_delta = repeat(vector(vectors, 2, p->channels), by_delta, p->channels),
        .by_x = repeat(vector(vectors, 3, p->channels), by_x, p->channels),
        .constant = repeat(vector(vectors, 4, p->channels), constant, p->channels),
        .slope = m->slope,
    };

    SHARE(p->pixels * (size_t)p->channels)
    for (size_t b = 0; b < blocks_of(p->pixels); b++) {
        struct rows r = rows_of(block_pixels(p->pixels, b), p->channels);
        size_t at = b * BLOCK * (size_t)p->channels, rest = at + r.rows * r.width;
        map_delta_rows(&d, x + at, delta + at, r.rows, r.width);
        map_delta_rows(&d, x + rest, delta + rest, 1, r.rest);
    }
    free(vectors);
}

/* ---- without regard to channels ---- */

VECTORS void add_part(size_t n, float a, const value *x, float b, const value *y, float slope,
                      value *to)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        float sum = a * decode(x[i]) + b * decode(y[i]);
        to[i] = encode(sum > 0 ? sum : sum * slope);
    }
}

VECTORS void slope_part(size_t n, const value *restrict output, float slope, value *restrict delta)
{
    for (size_t i = 0; i < n; i++) {
        float d = decode(delta[i]);
        delta[i] = encode(decode(output[i]) > 0 ? d : d * slope);
    }
}

enum { PART = 1 << 14 };

static size_t part_of(size_t n, size_t at)
{
    return n - at < PART ? n - at : PART;
}

static void add(size_t n, float a, const void *x_of, float b, const void *y_of, float slope,
                void *to_of)
{
    const value *x = x_of;
    const value *y = y_of;
    value *to = to_of;
    SHARE(n)
    for (size_t i = 0; i < n; i += PART) {
        add_part(part_of(n, i), a, x + i, b, y + i, slope, to + i);
    }
}

static void activation_deltas(size_t n, const void *output_of, float slope, void *delta_of)
{
    const value *output = output_of;
    value *delta = delta_of;
    SHARE(n)
    for (size_t i = 0; i < n; i += PART) {
        slope_part(part_of(n, i), output + i, slope, delta + i);
    }
}

VECTORS void drop_part(size_t n, const float *restrict random, float probability, float scale,
                       value *restrict x)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = encode(random[i] < probability ? 0 : decode(x[i]) * scale);
    }
}

static void drop(size_t n, const float *random, float probability, float scale, void *x_of)
{
    value *x = x_of;
    SHARE(n)
    for (size_t i = 0; i < n; i += PART) {
        drop_part(part_of(n, i), random + i, probability, scale, x + i);
    }
}

static void copy(size_t n, const void *x_of, int from, void *y_of, int to, int adds)
{
    const value *x = x_of;
    value *y = y_of;
    size_t both = (size_t)(from < to ? from : to);

    SHARE(n * both)
    for (size_t i = 0; i < n; i++) {
        const value *a = x + i * (size_t)from;
        value *b = y + i * (size_t)to;
        if (adds) {
            add_part(both, 1, a, 1, b, 1, b);
        } else {
            memcpy(b, a, both * sizeof *b);
        }
    }
}

/* ---- windows ---- */

/* These loops run over the windows of a row, `n` channels each; the values that they look at are
 * `step` apart. */

/* Keeps the larger values, and the number of the window's value that they are. */
VECTORS void keep_larger(int windows, size_t n, place number, const value *restrict x, size_t step,
                         value *restrict to, place *restrict which)
{
    for (int k = 0; k < windows; k++, x += step, to += n, which += n) {
        for (size_t i = 0; i < n; i++) {
            int larger = is_larger(x[i], to[i]);
            to[i] = larger ? x[i] : to[i];
            which[i] = larger ? number : which[i];
        }
    }
}

VECTORS void put_where(int windows, size_t n, place number, const value *restrict delta,
                       const place *restrict which, value *restrict to, size_t step)
{
    for (int k = 0; k < windows; k++, to += step, delta += n, which += n) {
        for (size_t i = 0; i < n; i++) {
            to[i] = only_if(which[i] == number, delta[i]);
        }
    }
}

VECTORS void add_where(int windows, size_t n, place number, const value *restrict delta,
                       const place *restrict which, value *restrict to, size_t step)
{
    for (int k = 0; k < windows; k++, to += step, delta += n, which += n) {
        for (size_t i = 0; i < n; i++) {
            value added = only_if(which[i] == number, delta[i]);
            to[i] = encode(decode(to[i]) + decode(added));
        }
    }
}

VECTORS void spread_row(int windows, size_t n, float scale, const value *restrict x,
                        value *restrict to, size_t step)
{
    for (int k = 0; k < windows; k++, to += step, x += n) {
        for (size_t i = 0; i < n; i++) {
            to[i] = encode(decode(x[i]) * scale);
        }
    }
}

VECTORS void gather_row(int windows, size_t n, float scale, const value *restrict delta,
                        size_t step, float *restrict sum)
{
    for (int k = 0; k < windows; k++, delta += step, sum += n) {
        for (size_t i = 0; i < n; i++) {
            sum[i] += decode(delta[i]) * scale;
        }
    }
}

VECTORS void put_floats(size_t n, const float *restrict x, int adds, value *restrict to)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = encode(adds ? decode(to[i]) + x[i] : x[i]);
    }
}

/* This says where the values with one number are, of the windows of one row. */
struct taps {
    int first, windows; /* the windows that have this value */
    size_t at, step;    /* the place of the first one, and their distance */
};

static struct taps taps_of(const struct cmn_windows *w, int image, int row, int number)
{
    int y = w->top + row * w->stride_y + number / w->size, x = w->left + number % w->size;
    int first = x < 0 ? (-x + w->stride_x - 1) / w->stride_x : 0;
    int last = x < w->width ? (w->width - 1 - x) / w->stride_x : -1;
    struct taps t = {first, 0, 0, (size_t)w->stride_x * (size_t)w->channels};

    if (last >= w->out_width) {
        last = w->out_width - 1;
    }
    if (y >= 0 && y < w->height && last >= first) {
        t.windows = last - first + 1;
        t.at = (((size_t)image * (size_t)w->height + (size_t)y) * (size_t)w->width +
                (size_t)(x + first * w->stride_x)) *
               (size_t)w->channels;
    }
    return t;
}

/* Returns where a row of windows begins in the output. */
static size_t row_at(const struct cmn_windows *w, int image, int row)
{
    return ((size_t)image * (size_t)w->out_height + (size_t)row) * (size_t)w->out_width *
           (size_t)w->channels;
}

static size_t values_of(const struct cmn_windows *w)
{
    return (size_t)w->images * (size_t)w->height * (size_t)w->width * (size_t)w->channels;
}

static void max(const struct cmn_windows *w, const void *x_of, void *to_of, void *which_of)
{
    const value *x = x_of;
    value *to = to_of;
    place *which = which_of;
    size_t n = (size_t)w->channels, width = (size_t)w->out_width * n;

    SHARE(values_of(w))
    for (int image = 0; image < w->images; image++) {
        for (int row = 0; row < w->out_height; row++) {
            size_t at = row_at(w, image, row);
            for (size_t i = at; i < at + width; i++) {
                to[i] = LEAST;
                which[i] = (place)-1;
            }
            for (int k = 0; k < w->size * w->size; k++) {
                struct taps t = taps_of(w, image, row, k);
                size_t into = at + (size_t)t.first * n;
                keep_larger(t.windows, n, (place)k, x + t.at, t.step, to + into, which + into);
            }
        }
    }
}

/* Returns whether each value of the image is in at most one window. */
static int windows_lie_apart(const struct cmn_windows *w)
{
    return w->size <= w->stride_y && w->size <= w->stride_x;
}

static void max_deltas(const struct cmn_windows *w, const void *delta_of, const void *which_of,
                       int adds, void *to_of)
{
    const value *delta = delta_of;
    const place *which = which_of;
    value *to = to_of;
    size_t n = (size_t)w->channels;
    int puts = !adds && windows_lie_apart(w);

    if (!adds) {
        memset(to, 0, values_of(w) * sizeof *to);
    }
    SHARE(values_of(w))
    for (int image = 0; image < w->images; image++) {
        for (int row = 0; row < w->out_height; row++) {
            for (int k = 0; k < w->size * w->size; k++) {
                struct taps t = taps_of(w, image, row, k);
                size_t from = row_at(w, image, row) + (size_t)t.first * n;
                if (puts) {
                    put_where(t.windows, n, (place)k, delta + from, which + from, to + t.at,
                              t.step);
                } else {
                    add_where(t.windows, n, (place)k, delta + from, which + from, to + t.at,
                              t.step);
                }
            }
        }
    }
}

static void spread(const struct cmn_windows *w, float scale, const void *x_of, void *to_of)
{
    const value *x = x_of;
    value *to = to_of;
    SHARE(values_of(w))
    for (int image = 0; image < w->images; image++) {
        for (int row = 0; row < w->out_height; row++) {
            for (int k = 0; k < w->size * w->size; k++) {
                struct taps t = taps_of(w, image, row, k);
                spread_row(t.windows, (size_t)w->channels, scale, x + row_at(w, image, row),
                           to + t.at, t.step);
            }
        }
    }
}

static void spread_deltas(const struct cmn_windows *w, float scale, const void *delta_of, int adds,
                          void *to_of)
{
    const value *delta = delta_of;
    value *to = to_of;
    size_t n = (size_t)w->channels, width = (size_t)w->out_width * n;

    SHARE(values_of(w))
    for (int image = 0; image < w->images; image++) {
        for (int row = 0; row < w->out_height; row++) {
            float *sum = cmn_alloc_floats(width);
            for (int k = 0; k < w->size * w->size; k++) {
                struct taps t = taps_of(w, image, row, k);
                gather_row(t.windows, n, scale, delta + t.at, t.step, sum);
            }
            put_floats(width, sum, adds, to + row_at(w, image, row));
            free(sum);
        }
    }
}

const struct cmn_nhwc_images
#ifdef OF_FLOATS
    cmn_nhwc_floats
#else
    cmn_nhwc_bf16
#endif
    = {
        .bytes = sizeof(value),
        .statistics = statistics,
        .map = map,
        .sum_deltas = sum_deltas,
        .map_deltas = map_deltas,
        .add = add,
        .activation_deltas = activation_deltas,
        .drop = drop,
        .copy = copy,
        .max = max,
        .max_deltas = max_deltas,
        .spread = spread,
        .spread_deltas = spread_deltas,
};
