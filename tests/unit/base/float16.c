/* 16-bit floats against a definition of their own, in double arithmetic. Every test also runs as
 * Darknet's -Ofast lets the processor: with subnormals flushed to zero. */
#include "check.h"

#include <float.h>
#include <math.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "base/float16.h"

/* More than any vector, and odd: whole vectors and what is left over. */
enum { MANY = 4099, ALL_HALVES = 65536 };

struct format {
    enum cmn_dtype dtype;
    int digits, least; /* of the significand; exponent of the smallest subnormal */
    uint16_t infinite, largest, quiet;
};

static const struct format formats[] = {
    {CMN_FP16, 11, -24, 0x7c00, 0x7bff, 0x0200},
    {CMN_BF16, 8, -133, 0x7f80, 0x7f7f, 0x0040},
};

static void flush(int on)
{
#ifdef __SSE2__
    _mm_setcsr(on ? _mm_getcsr() | 0x8040U : _mm_getcsr() & ~0x8040U);
#else
    (void)on;
#endif
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static int is_nan(const struct format *f, uint16_t half)
{
    return (half & 0x7fff) > f->infinite;
}

/* A finite half as a number. */
static double value_of(const struct format *f, uint16_t half)
{
    int exponent = (half & 0x7fff) >> (f->digits - 1),
        fraction = half & ((1 << (f->digits - 1)) - 1);
    double size = exponent ? ldexp(fraction + (1 << (f->digits - 1)), f->least + exponent - 1)
                           : ldexp(fraction, f->least);

    return half & 0x8000 ? -size : size;
}

/* The number that 32 bits stand for, without the processor's help, which may flush it. */
static double number_of(uint32_t bits)
{
    int exponent = (int)(bits >> 23 & 0xff);
    double fraction = bits & 0x7fffff;
    double size = exponent ? ldexp(fraction + 0x800000, exponent - 150) : ldexp(fraction, -149);

    return bits >> 31 ? -size : size;
}

/* What 32 bits must become: of all finite halves the nearest, of two the even one, found by
 * bisection. */
static uint16_t expected(const struct format *f, uint32_t bits)
{
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000), low = 0, high = f->largest;
    double size = fabs(number_of(bits));

    if ((bits & 0x7fffffff) == 0x7f800000) {
        return sign | f->infinite;
    }
    if (size >= value_of(f, f->largest)) {
        return sign | f->largest;
    }
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        *(value_of(f, middle) <= size ? &low : &high) = middle;
    }
    double below = size - value_of(f, low), above = value_of(f, high) - size;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

static void check_encode(const struct format *f, const uint32_t *bits, size_t n)
{
    static float from[MANY];
    static uint16_t to[MANY + 1];
    uint16_t alone;

    assert_true(n <= MANY);
    memcpy(from, bits, n * sizeof *from);
    to[n] = 0xabcd;
    cmn_float16_encode(f->dtype, to, from, n);
    assert_int_equal(to[n], 0xabcd);
    for (size_t i = 0; i < n; i++) {
        if ((bits[i] & 0x7fffffff) > 0x7f800000) {
            if (!is_nan(f, to[i]) || !(to[i] & f->quiet) || to[i] >> 15 != bits[i] >> 31) {
                fail_msg("dtype %d: NaN %08x became %04x", f->dtype, bits[i], to[i]);
            }
        } else if (to[i] != expected(f, bits[i])) {
            fail_msg("dtype %d: %08x became %04x, not %04x", f->dtype, bits[i], to[i],
                     expected(f, bits[i]));
        }
        cmn_float16_encode(f->dtype, &alone, from + i, 1);
        if (alone != to[i]) {
            fail_msg("dtype %d: %08x alone became %04x, among others %04x", f->dtype, bits[i],
                     alone, to[i]);
        }
    }
}

/* OF_EACH(name) { … } is a test of each format `f`, with and without subnormals. */
#define OF_EACH(test)                                     \
    static void test##_of(const struct format *f);        \
    TEST(test)                                            \
    {                                                     \
        for (size_t i = 0; i < 2 * COUNT(formats); i++) { \
            flush(i % 2);                                 \
            test##_of(&formats[i / 2]);                   \
        }                                                 \
        flush(0);                                         \
    }                                                     \
    static void test##_of(const struct format *f)

OF_EACH(all_halves)
{
    static uint16_t from[ALL_HALVES], back[ALL_HALVES];
    static float to[ALL_HALVES];

    for (int i = 0; i < ALL_HALVES; i++) {
        from[i] = (uint16_t)i;
    }
    cmn_float16_decode(f->dtype, to, from, ALL_HALVES);
    cmn_float16_encode(f->dtype, back, to, ALL_HALVES);
    for (int i = 0; i < ALL_HALVES; i++) {
        uint32_t bits = bits_of(to[i]);
        uint16_t half = (uint16_t)i;
        float alone;
        if (is_nan(f, half)) {
            assert_true((bits & 0x7fffffff) > 0x7f800000 && bits & 0x400000);
            half |= f->quiet;
        } else if ((half & 0x7fff) == f->infinite) {
            assert_true(bits == (half & 0x8000 ? 0xff800000 : 0x7f800000));
        } else {
            assert_true(number_of(bits) == value_of(f, half));
            assert_true(bits >> 31 == half >> 15);
        }
        assert_int_equal(back[i], half);
        cmn_float16_decode(f->dtype, &alone, from + i, 1);
        assert_int_equal(bits_of(alone), bits);
    }
}

/* Around each half, and in the middle between two: there rounding decides. */
OF_EACH(neighbours)
{
    static uint32_t bits[MANY];
    static float value[ALL_HALVES];
    static uint16_t half[ALL_HALVES];
    size_t n = 0;

    for (int i = 0; i < ALL_HALVES; i++) {
        half[i] = (uint16_t)i;
    }
    cmn_float16_decode(f->dtype, value, half, ALL_HALVES);
    for (int i = 0; i < ALL_HALVES; i++) {
        double middle = 0;
        if ((i & 0x7fff) < f->largest) {
            middle = value_of(f, half[i]) / 2 + value_of(f, (uint16_t)(i + 1)) / 2;
        }
        for (int by = -1; by <= 1 && (i & 0x7fff) <= f->infinite; by++) {
            bits[n++] = bits_of(value[i]) + (uint32_t)by;
            bits[n++] =
                (f->dtype == CMN_BF16 ? bits_of(value[i]) + 0x8000 : bits_of((float)middle)) +
                (uint32_t)by;
        }
        if (n + 6 > MANY || i == ALL_HALVES - 1) {
            check_encode(f, bits, n);
            n = 0;
        }
    }
}

OF_EACH(random_bits)
{
    static uint32_t bits[MANY];
    uint64_t state = 88172645463325252U;

    for (int round = 0; round < 40; round++) {
        for (size_t i = 0; i < MANY; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            bits[i] = (uint32_t)(state >> 32);
        }
        check_encode(f, bits, (size_t)(MANY - round));
    }
}

TESTS(NULL, NULL)
