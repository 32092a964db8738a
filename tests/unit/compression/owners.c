/* Sums of selections by owners: what a slice becomes on its way, bit by bit, and bytes for more ranks
 * than a test can start. */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "compression/owners.h"
#include "mpi/group.h"

enum { MOST = 200000 };

static float sum[MOST], got[MOST + 1];
static unsigned char wire[4 * MOST + 8];
static uint64_t seed = 88172645463325252U;

static double uniform(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* `share` of n floats are not 0, and `wide` of these are not those of bf16. */
static void fill(size_t n, double share, double wide)
{
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x00010000,
                                   0x00000001, 0x80000000, 0x7fc00001, 0x3f800001};

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(uniform() * 4294967296.0);
        bits = uniform() < 0.01 ? odd[bits % COUNT(odd)] : bits | 1;
        bits = uniform() < wide ? bits : bits & 0xffff0000;
        bits = uniform() < share ? bits : 0;
        memcpy(&sum[i], &bits, sizeof bits);
    }
}

/* As owners.c says it. */
static size_t expected_bytes(const float *x, size_t n)
{
    size_t blocks = (n + CMN_SELECTED_BLOCK - 1) / CMN_SELECTED_BLOCK, sparse = 8 * blocks;

    for (size_t i = 0; i < n; i++) {
        sparse += bits_of(x[i]) & 0xffff ? 6 : bits_of(x[i]) ? 4 : 0;
    }
    sparse = (sparse + 3) / 4 * 4;
    return sparse < 4 + 4 * n ? sparse : 4 + 4 * n;
}

static void a_slice_arrives_bit_by_bit(void **state)
{
    static const size_t sizes[] = {0, 1, 16, 4096, 65535, 65536, 65537, MOST};
    static const double shares[] = {0, 0.001, 0.3, 0.9, 1};

    (void)state;
    for (size_t i = 0; i < COUNT(sizes) * COUNT(shares) * 3; i++) {
        size_t n = sizes[i % COUNT(sizes)], values = 0, bytes;
        fill(n, shares[i / COUNT(sizes) % COUNT(shares)], (double)(i % 3) / 2);
        for (size_t k = 0; k < n; k++) {
            values += bits_of(sum[k]) != 0;
        }
        bytes = expected_bytes(sum, n);
        memset(wire, 0xaa, bytes + 4);
        assert_int_equal(cmn_merged_write(sum, n, wire), bytes);
        assert_int_equal(wire[bytes], 0xaa);
        assert_true(bytes <= cmn_merged_most(n, values));
        assert_int_equal(cmn_merged_bytes(n, wire), bytes);
        memset(got, 0, sizeof got);
        assert_int_equal(cmn_merged_read(got, n, wire), bytes);
        assert_memory_equal(got, sum, n * sizeof *got);
        assert_int_equal(bits_of(got[n]), 0);
    }
}

/* ---- bytes among many ranks ---- */

enum overlap { ALIKE, APART, RANDOM, OVERLAPS };

static size_t taken[1 << 16]; /* how many of a rank's values each slice has */

/* Rank r's k of n values, as far apart as may be; adds them to sum[]. They take no number twice. */
static void add_selection(int r, size_t n, size_t k, int ranks, enum overlap how)
{
    size_t step = n / k, shift = how == ALIKE ? 0 : how == APART ? (size_t)r : 0;

    for (size_t i = 0; i < k; i++) {
        size_t at = (i * step + shift % step) % n, begin, own, slice;
        at = how == RANDOM ? i * step + (size_t)(uniform() * (double)step) : at;
        sum[at] += 1.0F + (float)(int)(uniform() * 128) / 128; /* as bf16 has them */
        for (slice = at * (size_t)ranks / n;
             cmn_slice(n, ranks, (int)slice, &begin, &own), at < begin;) {
            slice--;
        }
        while (at >= begin + own) {
            cmn_slice(n, ranks, (int)++slice, &begin, &own);
        }
        taken[slice]++;
    }
}

/* Bytes that the ranks receive on the average. */
static double received(int ranks, size_t n, size_t k, enum overlap how)
{
    size_t total = 0, at, own;

    memset(sum, 0, n * sizeof *sum);
    for (int r = 0; r < ranks; r++) {
        memset(taken, 0, (size_t)ranks * sizeof *taken);
        add_selection(r, n, k, ranks, how);
        for (int owner = 0; owner < ranks; owner++) {
            cmn_slice(n, ranks, owner, &at, &own);
            total += owner == r ? 0 : cmn_selected_bytes(own, taken[owner]);
        }
    }
    for (int owner = 0; owner < ranks; owner++) {
        cmn_slice(n, ranks, owner, &at, &own);
        total += (size_t)(ranks - 1) * cmn_merged_write(sum + at, own, wire);
    }
    return (double)total / ranks;
}

static void bytes_do_not_grow_with_the_ranks(void **state)
{
    static const int worlds[] = {2, 3, 5, 8, 9, 16, 31, 100, 1024};
    enum { N = 160000, K = N / 100 };

    (void)state;
    for (size_t w = 0; w < COUNT(worlds); w++) {
        int ranks = worlds[w];
        double others = ranks - 1, heads = 4.0 * ranks + 8.0 * ranks + 4.0 * ranks;
        double straight = others * (double)cmn_selected_bytes(N, K);
        for (enum overlap how = ALIKE; how < OVERLAPS; how++) {
            double is = received(ranks, N, K, how);
            assert_true(is <= 4.0 * K + 4.0 * N + heads);
            /* Two values of 4 bytes become one of 6. */
            assert_true(is <= straight + 4.0 * K + heads);
            if (how == ALIKE) {
                assert_true(is <= (4 + 6) * (double)K + heads);
            } else if (how == APART && ranks <= 100) {
                assert_true(is >= straight);
            }
        }
    }
}

static void owners_where_they_pay(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 1024; ranks++) {
        for (size_t k = 1; k <= 10000; k = k * 5 / 4 + 1) {
            size_t n = 10000, straight = 4 * k * (size_t)(ranks - 1), most = 4 * k + 4 * n;
            assert_int_equal(cmn_owners_pay(ranks, n, k), ranks > 8 || most <= straight);
        }
    }
    assert_false(cmn_owners_pay(8, 1 << 20, 1 << 10));
    assert_true(cmn_owners_pay(9, 1 << 20, 1 << 10));
    assert_true(cmn_owners_pay(4, 1 << 20, 1 << 19));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slice_arrives_bit_by_bit),
        cmocka_unit_test(bytes_do_not_grow_with_the_ranks),
        cmocka_unit_test(owners_where_they_pay),
    };

    return cmocka_run_group_tests_name("owners", tests, NULL, NULL);
}
