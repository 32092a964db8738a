#include "engine/channels.h"

/* Threads share images of so many values: then waking them pays. */
enum { SIDE = 16, SHARED = 1 << 17 };

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#include <stdint.h>

#define FAST(call) call

/* Blocks of 16 channels by 16 pixels are transposed in registers; masks cut off what is not there. */
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) static inline
#define WIDE_16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define WIDE_32 __attribute__((target("avx512f,avx512bw,avx512vl")))

int cmn_channels_fast(int bf16)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && (!bf16 || __builtin_cpu_supports("avx512bf16"));
}

/* Each step pairs rows at twice the distance: singles, pairs, fours, eights. */
WIDE void transpose(__m512 r[SIDE])
{
    __m512 t[SIDE];
    __m512d a, b, c, d;

    for (int i = 0; i < SIDE; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4) {
        a = _mm512_castps_pd(t[i]);
        b = _mm512_castps_pd(t[i + 1]);
        c = _mm512_castps_pd(t[i + 2]);
        d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    }
}

static int least(size_t a, size_t b)
{
    return (int)(a < b ? a : b);
}

static __mmask16 first(int n)
{
    return (__mmask16)((1U << n) - 1);
}

/* Returns where the sixteen channels of a pixel that begin with `channel` are. */
static size_t place(const struct cmn_channels *c, int image, int channel, size_t pixel)
{
    size_t blocks = (size_t)(c->channels + SIDE - 1) / SIDE;

    if (c->layout == CMN_CHANNELS_LAST) {
        return ((size_t)image * c->pixels + pixel) * (size_t)c->channels + (size_t)channel;
    }
    return (((size_t)image * blocks + (size_t)channel / SIDE) * c->pixels + pixel) * SIDE;
}

/* Returns the distance of two pixels. */
static size_t step(const struct cmn_channels *c)
{
    return c->layout == CMN_CHANNELS_LAST ? (size_t)c->channels : SIDE;
}

/* Loads a block of Darknet's layout, whose rows are channels, and turns it. */
WIDE void load_turned(const struct cmn_channels *c, const float *from, int channels, int pixels,
                      __m512 r[SIDE])
{
    for (int i = 0; i < SIDE; i++) {
        r[i] = i < channels ? _mm512_maskz_loadu_ps(first(pixels), from + (size_t)i * c->pixels)
                            : _mm512_setzero_ps();
    }
    transpose(r);
}

/* Only `bf16` takes the instructions of BF16. */
WIDE_16 static void pack(const struct cmn_channels *c, int image, size_t p, int bf16, void *to,
                         const float *from)
{
    int pixels = least(SIDE, c->pixels - p);
    __m512 r[SIDE];

    for (int k = 0; k < c->channels; k += SIDE) {
        int channels = least(SIDE, (size_t)(c->channels - k));
        __mmask16 there = first(c->layout == CMN_CHANNELS_LAST ? channels : SIDE);
        size_t at = place(c, image, k, p);
        load_turned(c, from + ((size_t)image * (size_t)c->channels + (size_t)k) * c->pixels + p,
                    channels, pixels, r);
        for (int i = 0; i < pixels; i++, at += step(c)) {
            if (bf16) {
                _mm256_mask_storeu_epi16((uint16_t *)to + at, there,
                                         (__m256i)_mm512_cvtneps_pbh(r[i]));
            } else {
                _mm512_mask_storeu_ps((float *)to + at, there, r[i]);
            }
        }
    }
}

WIDE_32 static void unpack(const struct cmn_channels *c, int image, size_t p, int adds, float *to,
                           const float *from)
{
    int pixels = least(SIDE, c->pixels - p);
    __m512 r[SIDE];

    for (int k = 0; k < c->channels; k += SIDE) {
        int channels = least(SIDE, (size_t)(c->channels - k));
        const float *at = from + place(c, image, k, p);
        float *row = to + ((size_t)image * (size_t)c->channels + (size_t)k) * c->pixels + p;
        for (int i = 0; i < SIDE; i++) {
            r[i] = i < pixels ? _mm512_maskz_loadu_ps(first(channels), at + (size_t)i * step(c))
                              : _mm512_setzero_ps();
        }
        transpose(r);
        for (int i = 0; i < channels; i++, row += c->pixels) {
            if (adds) {
                r[i] = _mm512_add_ps(_mm512_maskz_loadu_ps(first(pixels), row), r[i]);
            }
            _mm512_mask_storeu_ps(row, first(pixels), r[i]);
        }
    }
}

#else

#define FAST(call) /* there is none */

int cmn_channels_fast(int bf16)
{
    (void)bf16;
    return 0;
}

#endif

/* The same without those instructions, for floats whose channels lie together: SIDE pixels. */
static void pack_plain(const struct cmn_channels *c, int image, size_t p, float *to,
                       const float *from)
{
    size_t channels = (size_t)c->channels, first = (size_t)image * channels * c->pixels;
    size_t end = p + SIDE < c->pixels ? p + SIDE : c->pixels;

    for (size_t k = 0; k < channels; k++) {
        for (size_t i = p; i < end; i++) {
            to[first + i * channels + k] = from[first + k * c->pixels + i];
        }
    }
}

static void unpack_plain(const struct cmn_channels *c, int image, size_t p, int adds, float *to,
                         const float *from)
{
    size_t channels = (size_t)c->channels, first = (size_t)image * channels * c->pixels;
    size_t end = p + SIDE < c->pixels ? p + SIDE : c->pixels;

    for (size_t k = 0; k < channels; k++) {
        for (size_t i = p; i < end; i++) {
            float *into = &to[first + k * c->pixels + i];
            *into = from[first + i * channels + k] + (adds ? *into : 0);
        }
    }
}

void cmn_channels_pack(const struct cmn_channels *c, int bf16, void *to, const float *from)
{
    int fast = cmn_channels_fast(bf16);

#ifdef _OPENMP
#pragma omp parallel for collapse(2) if (c->pixels * (size_t)c->channels * (size_t)c->images >= \
                                         SHARED)
#endif
    for (int i = 0; i < c->images; i++) {
        for (size_t p = 0; p < c->pixels; p += SIDE) {
            if (fast) {
                FAST(pack(c, i, p, bf16, to, from));
            } else {
                pack_plain(c, i, p, to, from);
            }
        }
    }
}

void cmn_channels_unpack(const struct cmn_channels *c, int adds, float *to, const float *from)
{
    int fast = cmn_channels_fast(0);

#ifdef _OPENMP
#pragma omp parallel for collapse(2) if (c->pixels * (size_t)c->channels * (size_t)c->images >= \
                                         SHARED)
#endif
    for (int i = 0; i < c->images; i++) {
        for (size_t p = 0; p < c->pixels; p += SIDE) {
            if (fast) {
                FAST(unpack(c, i, p, adds, to, from));
            } else {
                unpack_plain(c, i, p, adds, to, from);
            }
        }
    }
}
