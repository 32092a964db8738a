#include "base/reduce.h"

#include <string.h>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "base/simd.h"

/* BLOCK floats are summed together: they stay in the first-level cache while the next buffer is
 * added. */
enum { BLOCK = 1024 };

CMN_VECTORS static void add_two(float *into, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        into[i] = a[i] + b[i];
    }
}

/* Copies with non-temporal stores if the processor has them. `to` is aligned to 16 bytes. */
static void stream(float *restrict to, const float *restrict from, size_t n)
{
    size_t i = 0;

#ifdef __SSE2__
    for (; i + 4 <= n; i += 4) {
        _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
    }
#endif
    for (; i < n; i++) {
        to[i] = from[i];
    }
}

/* Orders non-temporal stores before all later ones. */
static void end_of_stream(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* `a` is this rank's buffer. The order of two addends does not matter. */
CMN_VECTORS static void sum_of_two(float *restrict a, float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = a[i] + b[i];
        a[i] = s;
        b[i] = s;
    }
}

static void sum_of_two_non_temporal(float *restrict a, float *restrict b, size_t n)
{
    size_t i = 0;

#ifdef __SSE2__
    for (; i + 4 <= n; i += 4) {
        __m128 s = _mm_add_ps(_mm_load_ps(a + i), _mm_load_ps(b + i));
        _mm_store_ps(a + i, s);
        _mm_stream_ps(b + i, s);
    }
#endif
    sum_of_two(a + i, b + i, n - i);
}

CMN_VECTORS static void take_of_two(float *restrict a, float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i];
        b[i] = 0;
    }
}

static void take_of_two_non_temporal(float *restrict a, float *restrict b, size_t n)
{
    size_t i = 0;

#ifdef __SSE2__
    for (; i + 4 <= n; i += 4) {
        _mm_store_ps(a + i, _mm_add_ps(_mm_load_ps(a + i), _mm_load_ps(b + i)));
        _mm_stream_ps(b + i, _mm_setzero_ps());
    }
#endif
    take_of_two(a + i, b + i, n - i);
}

CMN_VECTORS static void step_one(float *restrict w, float *restrict g, float rate, float decay,
                                 float momentum, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float u = g[i] + decay * w[i];
        w[i] += rate * u;
        g[i] = momentum * u;
    }
}

CMN_VECTORS static void follow(float *restrict average, const float *restrict x, float part,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        average[i] += part * (x[i] - average[i]);
    }
}

CMN_VECTORS static void step_apart(float *restrict w, float *restrict v, float *restrict g,
                                   const struct cmn_sgd_slice *how, size_t n)
{
    const float scale = how->scale, rate = how->rate, decay = how->decay, momentum = how->momentum;

    for (size_t i = 0; i < n; i++) {
        float u = scale * g[i] + v[i] + decay * w[i];
        w[i] += rate * u;
        v[i] = momentum * u;
        g[i] = 0;
    }
}

/* Does the same as step_one() with a + b for g, and zeroes b. */
CMN_VECTORS static void step_two(float *restrict w, float *restrict a, float *restrict b,
                                 float rate, float decay, float momentum, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float u = a[i] + b[i] + decay * w[i];
        w[i] += rate * u;
        a[i] = momentum * u;
        b[i] = 0;
    }
}

static void step_two_non_temporal(float *restrict w, float *restrict a, float *restrict b,
                                  const struct cmn_sgd_slice *how, float *restrict average,
                                  size_t n)
{
    size_t i = 0;

#ifdef __SSE2__
    const __m128 r = _mm_set1_ps(how->rate), d = _mm_set1_ps(how->decay),
                 m = _mm_set1_ps(how->momentum), part = _mm_set1_ps(how->part);

    for (; i + 4 <= n; i += 4) {
        __m128 weight = _mm_load_ps(w + i);
        __m128 u =
            _mm_add_ps(_mm_add_ps(_mm_load_ps(a + i), _mm_load_ps(b + i)), _mm_mul_ps(d, weight));
        weight = _mm_add_ps(weight, _mm_mul_ps(r, u));
        _mm_stream_ps(w + i, weight);
        _mm_store_ps(a + i, _mm_mul_ps(m, u));
        _mm_stream_ps(b + i, _mm_setzero_ps());
        if (average) {
            __m128 e = _mm_load_ps(average + i);
            _mm_store_ps(average + i, _mm_add_ps(e, _mm_mul_ps(part, _mm_sub_ps(weight, e))));
        }
    }
#endif
    step_two(w + i, a + i, b + i, how->rate, how->decay, how->momentum, n - i);
    if (average) {
        follow(average + i, w + i, how->part, n - i);
    }
}

/* Updates from one buffer (b is NULL) or two, in place. Works block by block if an average follows,
 * so that the weights are still in the first-level cache. */
static void step_in_place(float *w, float *a, float *b, const struct cmn_sgd_slice *how, size_t n)
{
    size_t block = how->average ? BLOCK : n;

    for (size_t at = 0; at < n; at += block) {
        size_t count = n - at < block ? n - at : block;
        if (b) {
            step_two(w + at, a + at, b + at, how->rate, how->decay, how->momentum, count);
        } else {
            step_one(w + at, a + at, how->rate, how->decay, how->momentum, count);
        }
        if (how->average) {
            follow(how->average + at, w + at, how->part, count);
        }
    }
}

static void sum_block(float *sum, float *const *buffer, int buffers, size_t at, size_t n)
{
    if (buffers == 1) {
        memcpy(sum, buffer[0] + at, n * sizeof *sum);
        return;
    }
    add_two(sum, buffer[0] + at, buffer[1] + at, n);
    for (int k = 2; k < buffers; k++) {
        add_two(sum, sum, buffer[k] + at, n);
    }
}

static size_t block_at(size_t n, size_t at)
{
    return n - at < BLOCK ? n - at : BLOCK;
}

static void put(float *to, const float *from, size_t n, int non_temporal)
{
    if (non_temporal) {
        stream(to, from, n);
    } else {
        memcpy(to, from, n * sizeof *to);
    }
}

void cmn_reduce(float *into, float *const *buffer, int buffers, int non_temporal, size_t n)
{
    float sum[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, buffer, buffers, at, count);
        put(into + at, sum, count, non_temporal);
    }
    end_of_stream();
}

void cmn_reduce_away(float *into, float *const *buffer, int buffers, size_t n)
{
    float sum[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, buffer, buffers, at, count);
        memcpy(into + at, sum, count * sizeof *sum);
        memset(buffer[0] + at, 0, count * sizeof *sum);
    }
}

void cmn_reduce_broadcast(float *const *buffer, int buffers, int mine, int non_temporal, size_t n)
{
    float sum[BLOCK];

    if (buffers == 2) {
        (non_temporal ? sum_of_two_non_temporal : sum_of_two)(buffer[mine], buffer[1 - mine], n);
    }
    for (size_t at = 0; at < n && buffers > 2; at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, buffer, buffers, at, count);
        for (int k = 0; k < buffers; k++) {
            put(buffer[k] + at, sum, count, non_temporal && k != mine);
        }
    }
    end_of_stream();
}

static const float zero[BLOCK];

void cmn_reduce_take(float *const *buffer, int buffers, int mine, int non_temporal, size_t n)
{
    float sum[BLOCK];

    if (buffers == 2) {
        (non_temporal ? take_of_two_non_temporal : take_of_two)(buffer[mine], buffer[1 - mine], n);
    }
    for (size_t at = 0; at < n && buffers > 2; at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, buffer, buffers, at, count);
        for (int k = 0; k < buffers; k++) {
            put(buffer[k] + at, k == mine ? sum : zero, count, non_temporal && k != mine);
        }
    }
    end_of_stream();
}

void cmn_reduce_sgd(float *weights, float *const *buffer, int buffers, int mine,
                    const struct cmn_sgd_slice *how, size_t n)
{
    float sum[BLOCK], updated[BLOCK];

    if (buffers == 2 && how->non_temporal) {
        step_two_non_temporal(weights, buffer[mine], buffer[1 - mine], how, how->average, n);
    } else if (buffers <= 2 && !how->non_temporal) {
        step_in_place(weights, buffer[mine], buffers == 2 ? buffer[1 - mine] : NULL, how, n);
    }
    for (size_t at = 0; at < n && (buffers > 2 || (buffers == 1 && how->non_temporal));
         at += BLOCK) {
        size_t count = block_at(n, at);
        sum_block(sum, buffer, buffers, at, count);
        memcpy(updated, weights + at, count * sizeof *sum);
        step_one(updated, sum, how->rate, how->decay, how->momentum, count);
        put(weights + at, updated, count, how->non_temporal);
        if (how->average) {
            follow(how->average + at, updated, how->part, count);
        }
        for (int k = 0; k < buffers; k++) {
            put(buffer[k] + at, k == mine ? sum : zero, count, how->non_temporal && k != mine);
        }
    }
    end_of_stream();
}

void cmn_sgd_apart(float *weights, float *velocity, float *sums, const struct cmn_sgd_slice *how,
                   size_t n)
{
    float updated[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = block_at(n, at);
        float *w = how->non_temporal ? updated : weights + at;
        if (how->non_temporal) {
            memcpy(updated, weights + at, count * sizeof *updated);
        }
        step_apart(w, velocity + at, sums + at, how, count);
        if (how->non_temporal) {
            stream(weights + at, updated, count);
        }
        if (how->average) {
            follow(how->average + at, w, how->part, count);
        }
    }
    end_of_stream();
}

/* LANES sums are computed in parallel, because a single one would wait for each addition. A product
 * of two floats is exact in double, so it makes no difference whether a processor fuses it with the
 * addition. */
enum { LANES = 8 };

CMN_VECTORS static double sum_of_squares(const float *x, size_t n)
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            lane[k] += (double)x[i + k] * (double)x[i + k];
        }
    }
    for (; i < n; i++) {
        lane[0] += (double)x[i] * (double)x[i];
    }
    for (size_t k = 0; k < LANES; k++) {
        sum += lane[k];
    }
    return sum;
}

double cmn_sum_of_squares(const float *x, size_t n)
{
    return sum_of_squares(x, n);
}

/* Products, and sums of ADDED products, are computed in float: a vector holds twice as many of
 * them. */
enum { WIDE = 32, ADDED = 16 };

CMN_VECTORS static double sum_short_sums(const float *x, size_t n)
{
    double sum = 0, wide[WIDE] = {0};

    for (size_t i = 0; i < n; i += (size_t)WIDE * ADDED) {
        float part[WIDE] = {0};
        for (size_t j = i; j < i + (size_t)WIDE * ADDED; j += WIDE) {
            for (size_t k = 0; k < WIDE; k++) {
                part[k] += x[j + k] * x[j + k];
            }
        }
        for (size_t k = 0; k < WIDE; k++) {
            wide[k] += (double)part[k];
        }
    }
    for (size_t k = 0; k < WIDE; k++) {
        sum += wide[k];
    }
    return sum;
}

double cmn_sum_of_squares_near(const float *x, size_t n)
{
    size_t whole = n - n % ((size_t)WIDE * ADDED);
    double sum = sum_short_sums(x, whole);
    int in_range = sum > 1e-25 && sum < 1e38; /* NaN is not in range. */

    return sum_of_squares(in_range ? x + whole : x, in_range ? n - whole : n) +
           (in_range ? sum : 0);
}

void cmn_follow(float *average, const float *x, float part, size_t n)
{
    follow(average, x, part, n);
}

CMN_VECTORS static void scale(float *x, float by, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= by;
    }
}

void cmn_scale(float *x, float by, size_t n)
{
    scale(x, by, n);
}

/* ---- which stores ---- */

/* A trial comes every PERIOD calls and takes TRIALS calls: it uses each kind of store twice, and
 * the better time counts. */
enum { PERIOD = 256, TRIALS = 4 };

int cmn_stores_non_temporal(struct cmn_stores *s)
{
    unsigned turn = s->calls % PERIOD;

    s->non_temporal = turn < TRIALS ? turn % 2 : s->best[1] < s->best[0];
    return s->non_temporal;
}

void cmn_stores_took(struct cmn_stores *s, double seconds, size_t n)
{
    unsigned turn = s->calls++ % PERIOD;
    double each = n ? seconds / (double)n : 0;

    if (turn < TRIALS && (turn < 2 || each < s->best[s->non_temporal])) {
        s->best[s->non_temporal] = each;
    }
}
