/* The k values of largest magnitude, against sorting all of them. */
#include "check.h"

#include <float.h>
#include <math.h>

#include "compression/select.h"

enum { MOST = 120000 };

static float kept[MOST + 1], fresh[MOST], want_kept[MOST], *value;
static uint32_t want[MOST], *index_of;
static uint64_t seed = 88172645463325252U;

static double uniform(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static uint32_t magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

static int larger(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint32_t x = magnitude(want_kept[i]), y = magnitude(want_kept[j]);

    return x == y ? (i > j) - (i < j) : x < y ? 1 : -1;
}

static int rising(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    return (i > j) - (i < j);
}

/* Picks k of the n in kept[] + fresh[]. */
static void check_pick(size_t n, size_t k, const char *what)
{
    size_t room = cmn_select_room(n, k);

    value = malloc((room + 1) * sizeof *value);
    index_of = malloc((room + 1) * sizeof *index_of);
    value[room] = kept[n] = -5;
    index_of[room] = 5;
    for (size_t i = 0; i < n; i++) {
        want_kept[i] = kept[i] + fresh[i];
        want[i] = (uint32_t)i;
    }
    qsort(want, n, sizeof *want, larger);
    qsort(want, k, sizeof *want, rising);
    cmn_select(kept, fresh, n, k, index_of, value);
    for (size_t i = 0; i < k; i++) {
        if (index_of[i] != want[i] || magnitude(value[i]) != magnitude(want_kept[want[i]])) {
            fail_msg("%s, %zu of %zu: number %zu is that at %u, %g, not that at %u, %g", what, k, n,
                     i, index_of[i], (double)value[i], want[i], (double)want_kept[want[i]]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (fresh[i] != 0 || memcmp(&kept[i], &want_kept[i], sizeof *kept)) {
            fail_msg("%s, %zu of %zu: at %zu stays %g, and is kept %g, not %g", what, k, n, i,
                     (double)fresh[i], (double)kept[i], (double)want_kept[i]);
        }
    }
    assert_true(value[room] == -5 && kept[n] == -5 && index_of[room] == 5);
    free(value);
    free(index_of);
}

static float of_many_sizes(size_t i)
{
    (void)i;
    return (float)((uniform() - 0.5) * exp(20 * uniform() - 10));
}

static float small_numbers(size_t i)
{
    (void)i;
    return (float)((int)(uniform() * 9) - 4);
}

static float few_not_zero(size_t i)
{
    return i % 1000 == 7 ? (float)uniform() : 0;
}

static float all_equal(size_t i)
{
    return i % 2 ? 0.25F : -0.25F;
}

static float growing(size_t i)
{
    return (float)i;
}

/* What a sample at equal distances would never see. */
static float columns(size_t i)
{
    return i % 64 == 0 ? (float)uniform() * 100 : (float)uniform();
}

/* Far more than are wanted are of one size, and a few larger ones lie behind them. */
static float two_sizes(size_t i)
{
    (void)i;
    return uniform() < 0.002 ? 2 : 1;
}

static float not_finite(size_t i)
{
    return i % 300 == 0   ? NAN
           : i % 200 == 0 ? -INFINITY
           : i % 100 == 0 ? FLT_MAX
                          : (float)uniform();
}

static const struct {
    const char *name;
    float (*value)(size_t i);
} kinds[] = {
    {"of many sizes", of_many_sizes},
    {"small numbers", small_numbers},
    {"few not zero", few_not_zero},
    {"all equal", all_equal},
    {"growing", growing},
    {"columns", columns},
    {"two sizes", two_sizes},
    {"not finite", not_finite},
};

static void picks_the_largest(void **state)
{
    static const size_t lengths[] = {1, 2, 15, 16, 17, 1000, 4095, 4096, 4097, 30001, MOST};
    static const double ratios[] = {0, 0.001, 0.01, 0.1, 0.5, 1};

    (void)state;
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        for (size_t l = 0; l < COUNT(lengths); l++) {
            for (size_t r = 0; r < COUNT(ratios); r++) {
                size_t n = lengths[l], k = (size_t)(ratios[r] * (double)n);
                for (size_t i = 0; i < n; i++) {
                    kept[i] = kinds[kind].value(i);
                    fresh[i] = kinds[kind].value(i);
                }
                check_pick(n, k ? k : 1, kinds[kind].name);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_the_largest),
    };

    return cmocka_run_group_tests_name("pick", tests, NULL, NULL);
}
