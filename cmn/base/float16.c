#include "base/float16.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/simd.h"

/* The casts use integer arithmetic, except for two float operations whose operands and results are
 * never subnormal. So neither the instruction set nor flushing subnormals to zero changes a bit. */

/* LANES floats are cast together. The vectors are explicit because compilers do not vectorise a
 * float addition in a branch. A comparison of vectors sets all bits of a lane or none. */
enum { LANES = 8 };
typedef uint32_t lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

/* These are bit patterns of 32-bit floats. */
#define SIGN 0x80000000U
#define INFINITE 0x7f800000U
#define QUIET 0x00400000U
/* These are the largest fp16, 65504; the smallest normal fp16, 2^-14; and 0.5. Floats from 0.5 to 1
 * are 2^-24 apart, as are the subnormals of fp16, so adding 0.5 rounds to one of them. */
#define LARGEST_FP16 0x477fe000U
#define NORMAL_FP16 0x38800000U
#define HALF 0x3f000000U
/* BIAS is the difference between the biases of the exponents of fp32 and fp16, and ONE an exponent
 * of one. */
#define BIAS (112U << 23)
#define ONE (1U << 23)
#define LARGEST_BF16 0x7f7fffffU

/* These are macros because the calling convention of vectors depends on the instruction set. */
#define PICK(condition, yes, no) (((lanes)(condition) & (yes)) | (~(lanes)(condition) & (no)))
#define ALL(value) ((lanes){} + (value))

#define TO_FP16(to, from)                                                                     \
    do {                                                                                      \
        lanes size = (from) & ~SIGN;                                                          \
        lanes finite = PICK(size < LARGEST_FP16, size, ALL(LARGEST_FP16));                    \
        lanes normal = (finite - BIAS + 0xfffU + (finite >> 13 & 1U)) >> 13;                  \
        lanes small = (lanes)((floats)PICK(size < NORMAL_FP16, size, ALL(0U)) + 0.5F) - HALF; \
        lanes other = PICK(size > INFINITE, 0x7e00U | (size >> 13 & 0x1ffU), ALL(0x7c00U));   \
        lanes value = PICK(size < NORMAL_FP16, small, normal);                                \
        (to) = ((from) >> 16 & 0x8000U) | PICK(size < INFINITE, value, other);                \
    } while (0)

#define FROM_FP16(to, from)                                                           \
    do {                                                                              \
        lanes size = ((from)&0x7fffU) << 13;                                          \
        lanes low = PICK(size < ONE, size, ALL(0U));                                  \
        lanes small = (lanes)((floats)(low + BIAS + ONE) - (floats)ALL(NORMAL_FP16)); \
        lanes other = size | INFINITE | ((lanes)(size > (0x7c00U << 13)) & QUIET);    \
        lanes value = PICK(size < ONE, small, size + BIAS);                           \
        (to) = ((from)&0x8000U) << 16 | PICK(size < (0x7c00U << 13), value, other);   \
    } while (0)

#define TO_BF16(to, from)                                                          \
    do {                                                                           \
        lanes size = (from) & ~SIGN, rounded = size + 0x7fffU + (size >> 16 & 1U); \
        lanes value = PICK(rounded < LARGEST_BF16, rounded, ALL(LARGEST_BF16));    \
        lanes other = size | ((lanes)(size > INFINITE) & QUIET);                   \
        (to) = (((from)&SIGN) | PICK(size < INFINITE, value, other)) >> 16;        \
    } while (0)

#define FROM_BF16(to, from)                                         \
    do {                                                            \
        lanes size = (from) << 16;                                  \
        (to) = size | ((lanes)((size & ~SIGN) > INFINITE) & QUIET); \
    } while (0)

#define CONVERT(name, one_to, type_to, one_from, type_from, OPERATION)                         \
    CMN_VECTORS static void name(one_to *restrict to, const one_from *restrict from, size_t n) \
    {                                                                                          \
        for (size_t i = 0; i < n; i += LANES) {                                                \
            size_t count = n - i < LANES ? n - i : LANES;                                      \
            type_from in = {0};                                                                \
            type_to out;                                                                       \
            lanes bits;                                                                        \
            if (count == LANES) {                                                              \
                memcpy(&in, from + i, sizeof in);                                              \
            } else {                                                                           \
                memcpy(&in, from + i, count * sizeof *from);                                   \
            }                                                                                  \
            bits = __builtin_convertvector(in, lanes);                                         \
            OPERATION(bits, bits);                                                             \
            out = __builtin_convertvector(bits, type_to);                                      \
            if (count == LANES) {                                                              \
                memcpy(to + i, &out, sizeof out);                                              \
            } else {                                                                           \
                memcpy(to + i, &out, count * sizeof *to);                                      \
            }                                                                                  \
        }                                                                                      \
    }

CONVERT(encode_fp16, uint16_t, halves, float, lanes, TO_FP16)
CONVERT(encode_bf16, uint16_t, halves, float, lanes, TO_BF16)
CONVERT(decode_fp16, float, lanes, uint16_t, halves, FROM_FP16)
CONVERT(decode_bf16, float, lanes, uint16_t, halves, FROM_BF16)

/* These functions cast with the processor's own instructions and return how many of the n floats
 * they cast. The loops above cast the rest. */
#ifdef __x86_64__
#define F16C __attribute__((target("avx2,f16c")))

F16C static size_t encode_fast(uint16_t *to, const float *from, size_t n)
{
    const __m256i sign = _mm256_set1_epi32((int)SIGN), largest = _mm256_set1_epi32(LARGEST_FP16);
    const __m256i infinite = _mm256_set1_epi32(INFINITE);
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        __m256i size = _mm256_andnot_si256(sign, bits);
        __m256i finite = _mm256_cmpgt_epi32(infinite, size);
        __m256i value = _mm256_blendv_epi8(size, _mm256_min_epi32(size, largest), finite);
        value = _mm256_or_si256(value, _mm256_and_si256(sign, bits));
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_castsi256_ps(value), _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

F16C static size_t decode_fast(float *to, const uint16_t *from, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        __m128i in = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(in));
    }
    return i;
}

static int is_fast(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}
#endif

void cmn_float16_encode(enum cmn_dtype dtype, uint16_t *to, const float *from, size_t n)
{
    size_t done = 0;

#ifdef __x86_64__
    done = dtype == CMN_FP16 && is_fast() ? encode_fast(to, from, n) : 0;
#endif
    (dtype == CMN_FP16 ? encode_fp16 : encode_bf16)(to + done, from + done, n - done);
}

void cmn_float16_decode(enum cmn_dtype dtype, float *to, const uint16_t *from, size_t n)
{
    size_t done = 0;

#ifdef __x86_64__
    done = dtype == CMN_FP16 && is_fast() ? decode_fast(to, from, n) : 0;
#endif
    (dtype == CMN_FP16 ? decode_fp16 : decode_bf16)(to + done, from + done, n - done);
}

void cmn_float16_feedback(enum cmn_dtype dtype, uint16_t *to, float *back, float *x, float *error,
                          size_t n)
{
    for (size_t i = 0; error && i < n; i++) {
        x[i] += error[i];
    }
    cmn_float16_encode(dtype, to, x, n);
    cmn_float16_decode(dtype, back, to, n);
    for (size_t i = 0; error && i < n; i++) {
        float rest = x[i] - back[i];
        error[i] = isfinite(rest) ? rest : 0;
    }
}
