/* Selections summed by the owners of their slices: the bits of adding all of them in the order of
 * the ranks, by each algorithm, and the bytes that owners.h says. */
#include "ranks/ranks.h"

#include <math.h>

#include "base/float16.h"
#include "compression/owners.h"
#include "mpi/group.h"
#include "transports/schedule.h"

enum { STEPS = 4, MOST = 140000 };

/* Which values a rank selects; the last ones lie in the first slice alone. */
enum pick { RANDOM, ALIKE, FIRST, PICKS };

static unsigned char selected[4 * 5 + 4 * MOST];
static float sum[MOST], want[MOST];
static uint16_t value[MOST];
static uint32_t chosen[MOST];

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed >> 16;
}

/* What `rank` sends in a step: chosen[], rising, and value[]. */
static void choose(int rank, int step, size_t n, size_t k, enum pick pick)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 1e-40F, -0.0F, 3e38F};
    uint64_t seed = 88172645463325252U + (uint64_t)(step * 64 + (pick == RANDOM ? rank : 0));
    uint64_t own = 977U + (uint64_t)(step * 64 + rank);
    size_t left = k;

    for (size_t i = 0; i < n && left; i++) {
        if (pick == FIRST || next(&seed) % (n - i) < left) {
            /* Of many magnitudes: sums depend on the order. */
            float x = ldexpf((float)(next(&own) % 2001) / 777 - 1, (int)(next(&own) % 60) - 30);
            x = next(&own) % 997 ? x : odd[next(&own) % COUNT(odd)];
            cmn_float16_encode(CMN_BF16, &value[k - left], &x, 1);
            chosen[k - left] = (uint32_t)i;
            left--;
        }
    }
}

static void write_selected(size_t n, size_t k)
{
    uint32_t *count = (uint32_t *)(void *)selected;
    size_t blocks = (n + CMN_SELECTED_BLOCK - 1) / CMN_SELECTED_BLOCK;
    uint16_t *place = (uint16_t *)(void *)(count + blocks);

    memset(count, 0, blocks * sizeof *count);
    for (size_t i = 0; i < k; i++) {
        count[chosen[i] / CMN_SELECTED_BLOCK]++;
        place[i] = (uint16_t)(chosen[i] % CMN_SELECTED_BLOCK);
    }
    memcpy(place + k, value, k * sizeof *value);
}

/* Bytes that this rank sends of its selection to the others. */
static size_t to_owners(size_t n, size_t k)
{
    size_t bytes = 0, at, own;

    for (int r = 0; r < top.size; r++) {
        size_t in = 0;
        cmn_slice(n, top.size, r, &at, &own);
        for (size_t i = 0; i < k; i++) {
            in += chosen[i] >= at && chosen[i] < at + own;
        }
        bytes += r == top.rank ? 0 : cmn_selected_bytes(own, in);
    }
    return bytes;
}

static void sum_by(enum cmn_exchange_by by, size_t n, size_t k, enum pick pick)
{
    static unsigned char wire[4 * MOST + 8];
    struct cmn_traffic traffic = {0, 0};
    struct cmn_owners *o = cmn_owners_open(top.world, 100, n, k, by, &traffic);
    unsigned long long expected = 0, moved = 0;

    for (int step = 0; step < STEPS; step++) {
        size_t now = step % 2 ? k : (k + 1) / 2, at, own;
        memset(want, 0, sizeof want);
        for (int r = 0; r < top.size; r++) {
            choose(r, step, n, now, pick);
            for (size_t i = 0; i < now; i++) {
                float x;
                cmn_float16_decode(CMN_BF16, &x, &value[i], 1);
                want[chosen[i]] += x;
            }
        }
        choose(top.rank, step, n, now, pick);
        write_selected(n, now);
        expected += to_owners(n, now);
        memset(sum, 0, sizeof sum);
        if (step == 3) {
            usleep((unsigned)(top.rank * 3000));
        }
        cmn_owners_begin(o);
        CHECK((cmn_owners_wait_for(o) >= 0) == (top.size > 1));
        CHECK(!cmn_owners_advance(o, sum));
        cmn_owners_give(o, selected, now);
        while (!cmn_owners_advance(o, sum)) {
            usleep(10);
        }
        moved = traffic.moved;
        CHECK(cmn_owners_advance(o, sum) && cmn_owners_wait_for(o) < 0 && traffic.moved == moved);
        CHECK_SAYING(!memcmp(sum, want, n * sizeof *sum), "by %d, %zu of %zu, pick %d, step %d",
                     (int)by, now, n, (int)pick, step);
        cmn_slice(n, top.size, top.rank, &at, &own);
        expected += (size_t)(top.size - 1) * cmn_merged_write(want + at, own, wire);
    }
    /* In rounds others pass on what this rank has summed. */
    MPI_Allreduce(MPI_IN_PLACE, &expected, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, top.world);
    MPI_Allreduce(MPI_IN_PLACE, &traffic.sent, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, top.world);
    CHECK_SAYING(traffic.sent == expected, "by %d, %zu of %zu, pick %d: %llu bytes, not %llu",
                 (int)by, k, n, (int)pick, traffic.sent, expected);
    cmn_owners_close(o);
}

/* Slices that are empty, that are no whole block, that have several, and messages of whole chunks. */
static void sums_of_each_size(void **state)
{
    static const size_t n[] = {10, 40, 5000, 70001, MOST}, part[] = {1, 3, 100};

    (void)state;
    for (int by = CMN_EXCHANGE_PAIRWISE; by <= CMN_EXCHANGE_RING; by++) {
        for (size_t i = 0; i < COUNT(n) * COUNT(part) * PICKS; i++) {
            size_t of = n[i % COUNT(n)], k = of / part[i / COUNT(n) % COUNT(part)];
            if (of == MOST && top.size > 2) {
                continue; /* no slice has two blocks */
            }
            sum_by((enum cmn_exchange_by)by, of, k ? k : 1,
                   (enum pick)(i / COUNT(n) / COUNT(part)));
        }
    }
    fail_on_all_ranks();
}

/* A transfer that ends with a whole message, of 61440 bytes, is followed by an empty one. Of two ranks
 * the last one sends 15359 values of the first slice; then its own slice, of 15359 floats. */
static void a_message_may_be_full(void **state)
{
    (void)state;
    for (int by = CMN_EXCHANGE_PAIRWISE; by <= CMN_EXCHANGE_RING && top.size == 2; by++) {
        sum_by((enum cmn_exchange_by)by, 61440, 15359, FIRST);
        sum_by((enum cmn_exchange_by)by, 30719, 30719, ALIKE);
    }
    fail_on_all_ranks();
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_each_size),
        cmocka_unit_test(a_message_may_be_full),
    };

    return cmocka_run_group_tests_name("owners", tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(run);
}
