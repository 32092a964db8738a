/* What layers do with images in NHWC, against plain loops in double precision or, where each step is
 * rounded once, to the bit; and with any number of threads. (Windows, copies and sums are in
 * unit/engine/nhwc_layers.c.) */
#include "engine/nhwc_images.h"

#include "check.h"

#include <math.h>

#include "base/float16.h"
#include "engine/channels.h"

/* Declared here because only gcc finds omp.h. */
void omp_set_num_threads(int threads) __attribute__((weak));

enum { MOST = 1500 * 130 };

static const struct cmn_nhwc_images *images; /* those that are tried */
static union {
    float number[MOST];
    uint16_t bits[MOST];
} x, delta, mapped;
static float factor[1000], term[1000], mean[1000];

static int in_bf16(void)
{
    return images == &cmn_nhwc_bf16;
}

static float rounded(float value)
{
    uint16_t bits;

    if (in_bf16()) {
        cmn_float16_encode(CMN_BF16, &bits, &value, 1);
        cmn_float16_decode(CMN_BF16, &value, &bits, 1);
    }
    return value;
}

static float number(const void *image, size_t i)
{
    float value;

    if (!in_bf16()) {
        return ((const float *)image)[i];
    }
    cmn_float16_decode(CMN_BF16, &value, (const uint16_t *)image + i, 1);
    return value;
}

static void put(void *image, size_t i, float value)
{
    if (in_bf16()) {
        cmn_float16_encode(CMN_BF16, (uint16_t *)image + i, &value, 1);
    } else {
        ((float *)image)[i] = value;
    }
}

static void fill(const struct cmn_pixels *p)
{
    for (size_t i = 0; i < p->pixels * (size_t)p->channels; i++) {
        put(&x, i, uniform(-1, 1) + 3);
        put(&delta, i, uniform(-1, 1));
    }
    for (int k = 0; k < p->channels; k++) {
        factor[k] = uniform(-1, 1);
        term[k] = uniform(-1, 1) - 3 * factor[k];
        mean[k] = 3;
    }
}

static void near(const struct cmn_pixels *p, const char *what, double is, double wanted,
                 double size)
{
    if (!(fabs(is - wanted) <= 1e-5 * size)) {
        fail_msg("%zu pixels of %d channels: %s is %g, not %g", p->pixels, p->channels, what, is,
                 wanted);
    }
}

static void check_statistics(const struct cmn_pixels *p)
{
    double all[1 + 2 * 1000];

    images->statistics(p, &x, all);
    assert_true(all[0] == (double)p->pixels);
    for (int k = 0; k < p->channels; k++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < p->pixels; i++) {
            sum += (double)number(&x, i * (size_t)p->channels + (size_t)k);
        }
        sum /= (double)p->pixels;
        for (size_t i = 0; i < p->pixels; i++) {
            squares += pow((double)number(&x, i * (size_t)p->channels + (size_t)k) - sum, 2);
        }
        near(p, "a mean", all[1 + k], sum, 3);
        near(p, "a sum of squares", all[1 + p->channels + k], squares, (double)p->pixels);
    }
}

static void check_map(const struct cmn_pixels *p, const struct cmn_map *m)
{
    static float floats[MOST];

    images->map(p, m, &x, &mapped, NULL);
    images->map(p, m, &x, NULL, floats);
    for (size_t i = 0; i < p->pixels * (size_t)p->channels; i++) {
        size_t k = i % (size_t)p->channels;
        volatile float product = number(&x, i) * factor[k];
        float y = product + term[k];
        y = y > 0 ? y : y * m->slope;
        assert_memory_equal(&floats[i], &y, sizeof y);
        assert_true(number(&mapped, i) == rounded(y));
    }
}

static void check_deltas(const struct cmn_pixels *p, const struct cmn_map *m)
{
    double sums[2 * 1000];
    static float ones[1000];

    for (int k = 0; k < p->channels; k++) {
        ones[k] = 1;
    }
    images->sum_deltas(p, m, mean, &x, &delta, sums);
    for (int k = 0; k < p->channels; k++) {
        double sum = 0, product = 0;
        for (size_t i = (size_t)k; i < p->pixels * (size_t)p->channels; i += (size_t)p->channels) {
            float d = number(&delta, i);
            volatile float above = number(&x, i) * factor[k];
            d = above + term[k] > 0 ? d : d * m->slope;
            sum += (double)d;
            product += (double)d * (double)(number(&x, i) - mean[k]);
        }
        near(p, "a sum of gradients", sums[k], sum, (double)p->pixels);
        near(p, "a sum of products", sums[p->channels + k], product, (double)p->pixels);
    }
    mapped = delta;
    images->map_deltas(p, m, term, ones, factor, &x, &mapped);
    for (size_t i = 0; i < p->pixels * (size_t)p->channels; i++) {
        size_t k = i % (size_t)p->channels;
        volatile float above = number(&x, i) * factor[k];
        float d = number(&delta, i), part;
        d = above + term[k] > 0 ? d : d * m->slope;
        part = term[k] * d;
        assert_true(number(&mapped, i) == rounded((part + number(&x, i)) + factor[k]));
    }
}

static void each_size(void)
{
    static const struct cmn_pixels sizes[] = {{1, 1},     {7, 3},    {1025, 16},
                                              {1500, 20}, {130, 64}, {90, 70},
                                              {19, 1000}, {2048, 1}, {1027, 130}};
    const struct cmn_map leaky = {factor, term, 0.1F};

    for (size_t i = 0; i < COUNT(sizes); i++) {
        fill(&sizes[i]);
        check_statistics(&sizes[i]);
        check_map(&sizes[i], &leaky);
        check_deltas(&sizes[i], &leaky);
    }
}

/* Ties go to even; what is too large becomes infinite, and what is no number stays none. */
static void rounding(void)
{
    static const float value[] = {
        1 + 1 / 256.F, 1 + 3 / 256.F, -1 - 3 / 256.F, 3.3961775e38F, INFINITY, -INFINITY, NAN, 0,
        -0.F};
    static const uint16_t bits[] = {0x3f80, 0x3f82, 0xbf82, 0x7f80, 0x7f80,
                                    0xff80, 0x7fc0, 0,      0x8000};
    const struct cmn_pixels one = {1, 1};
    const uint16_t unit = 0x3f80;
    uint16_t to[2]; /* as large as a float */

    for (size_t i = 0; i < COUNT(value); i++) {
        const float minus_zero = -0.F;
        const struct cmn_map map = {&value[i], &minus_zero, 1};
        images->map(&one, &map, &unit, to, NULL);
        assert_int_equal(to[0], bits[i]);
    }
    { /* all bits of its fraction are set: it must not become 0 */
        const uint32_t pattern = 0x7fffffffU;
        const float zero = 0;
        float nan;
        memcpy(&nan, &pattern, sizeof nan);
        const struct cmn_map map = {&zero, &nan, 1};
        images->map(&one, &map, &unit, to, NULL);
        assert_true(isnan(number(to, 0)));
    }
}

static void any_number_of_threads(void)
{
    const struct cmn_pixels p = {9000, 20};
    const struct cmn_map leaky = {factor, term, 0.1F};
    static double of[2][1 + 4 * 20];

    if (!omp_set_num_threads) {
        skip(); /* it has none */
    }
    fill(&p);
    for (int i = 0; i < 2; i++) {
        omp_set_num_threads(1 + 2 * i);
        images->statistics(&p, &x, of[i]);
        images->sum_deltas(&p, &leaky, mean, &x, &delta, of[i] + 1 + 2 * 20);
    }
    omp_set_num_threads(1);
    assert_memory_equal(of[0], of[1], sizeof of[0]);
}

TEST(floats)
{
    images = &cmn_nhwc_floats;
    each_size();
    any_number_of_threads();
}

TEST(bf16)
{
    images = &cmn_nhwc_bf16;
    if (!cmn_channels_fast(1)) {
        skip();
    }
    each_size();
    rounding();
    any_number_of_threads();
}

TESTS(NULL, NULL)
