/* Images in oneDNN's layouts against a loop, with the instructions of AVX-512 where the processor has
 * them, and without. */
static int is_used = 1;
#define __builtin_cpu_supports(what) (is_used && __builtin_cpu_supports(what))
#include "engine/channels.c"

#include "check.h"

#include "base/float16.h"

enum { MOST = 3 * 64 * 23 * 23, CANARY = 0x5a };

static float image[MOST], back[MOST + 1], packed[MOST + 1];
static uint16_t rounded[MOST + 1], wanted;

/* The place of a number in the layout, by the definition. */
static size_t place_of(const struct cmn_channels *c, int n, int channel, size_t pixel)
{
    size_t blocks = (size_t)(c->channels + 15) / 16;

    if (c->layout == CMN_CHANNELS_LAST) {
        return ((size_t)n * c->pixels + pixel) * (size_t)c->channels + (size_t)channel;
    }
    return (((size_t)n * blocks + (size_t)channel / 16) * c->pixels + pixel) * 16 +
           (size_t)channel % 16;
}

static void compare(const struct cmn_channels *c)
{
    size_t room = c->layout == CMN_CHANNELS_LAST ? (size_t)c->channels
                                                 : (size_t)(c->channels + 15) / 16 * 16,
           n = (size_t)c->images * room * c->pixels;
    size_t plain = (size_t)c->images * (size_t)c->channels * c->pixels;

    assert_true(n <= MOST);
    memset(packed, CANARY, sizeof packed);
    memset(rounded, CANARY, sizeof rounded);
    memset(back, CANARY, sizeof back);
    cmn_channels_pack(c, 0, packed, image);
    for (int i = 0; i < c->images; i++) {
        for (size_t k = 0; k < room; k++) {
            for (size_t p = 0; p < c->pixels; p++) {
                float x = k < (size_t)c->channels
                              ? image[((size_t)i * (size_t)c->channels + k) * c->pixels + p]
                              : 0;
                assert_true(packed[place_of(c, i, (int)k, p)] == x);
            }
        }
    }
    assert_int_equal(((unsigned char *)(packed + n))[0], CANARY); /* nothing behind the end */
    cmn_channels_unpack(c, 0, back, packed);
    assert_memory_equal(back, image, plain * sizeof *back);
    assert_int_equal(((unsigned char *)(back + plain))[0], CANARY);
    cmn_channels_unpack(c, 1, back, packed);
    for (size_t i = 0; i < plain; i++) {
        assert_true(back[i] == image[i] + image[i]);
    }
    if (!cmn_channels_fast(1)) {
        return;
    }
    cmn_channels_pack(c, 1, rounded, image);
    for (size_t i = 0; i < n; i++) {
        cmn_float16_encode(CMN_BF16, &wanted, &packed[i], 1);
        assert_int_equal(rounded[i], wanted);
    }
    assert_int_equal(((unsigned char *)(rounded + n))[0], CANARY);
}

static void compare_all(enum cmn_channels_layout layout)
{
    static const int channels[] = {1, 3, 15, 16, 17, 32, 45, 64};
    static const size_t pixels[] = {1, 2, 15, 16, 17, 31, 49, 64, 23 * 23};

    for (int i = 0; i < MOST; i++) {
        image[i] = (float)(i * 7919 % 20011 - 10000) / 1001;
    }
    for (size_t i = 0; i < COUNT(channels); i++) {
        for (size_t k = 0; k < COUNT(pixels); k++) {
            compare(&(struct cmn_channels){layout, 3, channels[i], pixels[k]});
        }
    }
}

TEST(without_instructions)
{
    is_used = 0;
    assert_false(cmn_channels_fast(0));
    compare_all(CMN_CHANNELS_LAST);
    is_used = 1;
}

TEST(each_layout)
{
    if (!cmn_channels_fast(0)) {
        skip();
    }
    compare_all(CMN_CHANNELS_LAST);
    compare_all(CMN_CHANNELS_BY_SIXTEEN);
}

TESTS(NULL, NULL)
