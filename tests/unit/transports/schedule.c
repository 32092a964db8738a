/* Algorithms of the exchange without an exchange: messages and blocks of a rank against closed
 * forms, every block's sum followed through the rounds, and what the model chooses. */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "mpi/group.h"
#include "transports/schedule.h"

enum { COUNTED = 1024, FOLLOWED = 257 }; /* most ranks counted; of which every block is followed */

/* Followed. */
static const int sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,   10,      11,
                            12, 13, 14, 15, 16, 17, 31, 64, 100, FOLLOWED};

static int log2_up(int ranks)
{
    int rounds = 0;

    while ((1 << rounds) < ranks) {
        rounds++;
    }
    return rounds;
}

static void counts(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= COUNTED; ranks++) {
        int others = ranks - 1;
        struct cmn_schedule_count is = cmn_schedule_count(CMN_EXCHANGE_PAIRWISE, ranks);
        assert_int_equal(is.peers, 2 * others);
        assert_int_equal(is.near + is.far, 2 * others);
        assert_int_equal(is.rounds, ranks > 1 ? 2 : 0);
        is = cmn_schedule_count(CMN_EXCHANGE_HALVING, ranks);
        assert_int_equal(is.peers, 2 * log2_up(ranks));
        assert_int_equal(is.near + is.far, 2 * others);
        assert_int_equal(is.rounds, is.peers);
        is = cmn_schedule_count(CMN_EXCHANGE_RING, ranks);
        assert_int_equal(is.peers, 2 * others);
        assert_int_equal(is.near, 2 * others);
        assert_int_equal(is.far, 0);
        assert_int_equal(is.rounds, is.peers);
    }
}

/* ---- each block through the rounds ---- */

struct world {
    int ranks;
    /* Of each rank and block: a number that each rank has drawn for itself, summed over the ranks
     * whose addend is in it. */
    uint64_t *has, *came;
    unsigned char *owned; /* the sum is complete there */
    size_t floats;        /* sent */
};

static int wrapped(const struct world *w, int rank)
{
    return (rank % w->ranks + w->ranks) % w->ranks;
}

static uint64_t drawn(int rank)
{
    return ((uint64_t)rank + 1) * 0x9E3779B97F4A7C15U ^ (uint64_t)rank << 40;
}

static size_t floats_of(const struct world *w, int block, size_t n)
{
    size_t at, count;

    cmn_slice(n, w->ranks, block, &at, &count);
    return count;
}

static void reduce_scatter(struct world *w, const struct cmn_schedule *s, size_t n)
{
    size_t m = (size_t)w->ranks;

    for (int i = 0; i < s->rounds(w->ranks); i++) {
        struct cmn_round is = s->round(w->ranks, i);
        memset(w->came, 0, m * m * sizeof *w->came);
        for (int from = 0; from < w->ranks; from++) {
            for (int b = 0; b < is.blocks; b++) {
                int to = wrapped(w, from + is.distance), block = wrapped(w, from + is.first + b);
                assert_int_equal(block, wrapped(w, to + is.first - is.distance + b));
                w->came[(size_t)to * m + (size_t)block] = w->has[(size_t)from * m + (size_t)block];
                w->has[(size_t)from * m + (size_t)block] = 0; /* whoever adds it again fails */
                w->floats += floats_of(w, block, n);
            }
        }
        for (size_t k = 0; k < m * m; k++) {
            w->has[k] += w->came[k];
        }
    }
}

static void allgather(struct world *w, const struct cmn_schedule *s, size_t n)
{
    size_t m = (size_t)w->ranks;

    for (int i = s->rounds(w->ranks) - 1; i >= 0; i--) {
        struct cmn_round is = s->round(w->ranks, i);
        for (int from = 0; from < w->ranks; from++) {
            for (int b = 0; b < is.blocks; b++) {
                int to = wrapped(w, from - is.distance),
                    block = wrapped(w, from + is.first - is.distance + b);
                /* What comes in this round does not leave in it. */
                assert_int_equal(w->owned[(size_t)from * m + (size_t)block], 1);
                assert_int_equal(w->owned[(size_t)to * m + (size_t)block], 0);
                w->owned[(size_t)to * m + (size_t)block] = 2;
                w->floats += floats_of(w, block, n);
            }
        }
        for (size_t k = 0; k < m * m; k++) {
            w->owned[k] = w->owned[k] != 0;
        }
    }
}

static void follow(const struct cmn_schedule *s, int ranks, size_t n)
{
    size_t m = (size_t)ranks;
    struct world w = {ranks, calloc(m * m, sizeof *w.has), calloc(m * m, sizeof *w.came),
                      calloc(m * m, 1), 0};
    uint64_t all = 0;

    for (int rank = 0; rank < ranks; rank++) {
        all += drawn(rank);
        for (size_t block = 0; block < m; block++) {
            w.has[(size_t)rank * m + block] = drawn(rank);
        }
    }
    reduce_scatter(&w, s, n);
    for (size_t rank = 0; rank < m; rank++) {
        assert_true(w.has[rank * m + rank] == all);
        w.owned[rank * m + rank] = 1;
    }
    allgather(&w, s, n);
    for (size_t k = 0; k < m * m; k++) {
        assert_int_equal(w.owned[k], 1);
    }
    /* Each float goes to and comes from all but its owner, however uneven the blocks are. */
    assert_true(w.floats == 2 * (m - 1) * n);
    free(w.has);
    free(w.came);
    free(w.owned);
}

static void sums(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (int by = CMN_EXCHANGE_PAIRWISE; by <= CMN_EXCHANGE_RING; by++) {
            follow(cmn_schedule_of((enum cmn_exchange_by)by), sizes[i], 1003);
            follow(cmn_schedule_of((enum cmn_exchange_by)by), sizes[i], 65536);
        }
    }
}

/* ---- the choice ---- */

static void choice(void **state)
{
    const struct cmn_link even = {50e-6, 5e-6, 1e-9, 1e-9}, far_is_slow = {50e-6, 5e-6, 1e-9, 4e-9},
                          free_messages = {50e-6, 0, 1e-9, 1e-9};

    (void)state;
    for (int ranks = 1; ranks <= CMN_SCHEDULE_FEW; ranks++) {
        assert_int_equal(cmn_schedule_best(ranks, 1e3, &even), CMN_EXCHANGE_PAIRWISE);
        assert_int_equal(cmn_schedule_best(ranks, 1e9, &far_is_slow), CMN_EXCHANGE_PAIRWISE);
    }
    assert_int_equal(cmn_schedule_best(1024, 1e4, &even), CMN_EXCHANGE_HALVING);
    assert_int_equal(cmn_schedule_best(100, 1e4, &even), CMN_EXCHANGE_HALVING);
    assert_int_equal(cmn_schedule_best(100, 1e9, &far_is_slow), CMN_EXCHANGE_RING);
    assert_int_equal(cmn_schedule_best(100, 1e9, &even), CMN_EXCHANGE_PAIRWISE);
    assert_int_equal(cmn_schedule_best(100, 1e4, &free_messages), CMN_EXCHANGE_PAIRWISE);
}

static void near_to(double is, double want)
{
    assert_true(fabs(is - want) < 1e-6);
}

/* By hand: 9 ranks, 9 blocks of 61440 bytes, each a message. */
static void seconds(void **state)
{
    const struct cmn_link link = {1, 100, 1.0 / 64, 1.0 / 16};
    double bytes = 9.0 * CMN_SCHEDULE_MESSAGE;

    (void)state;
    near_to(cmn_schedule_seconds(CMN_EXCHANGE_RING, 9, bytes, &link), 16 * 1 + 32 * 100 + 16 * 960);
    /* Four rounds each way, of 4, 2, 1 and 1 blocks; the last to the next rank. */
    near_to(cmn_schedule_seconds(CMN_EXCHANGE_HALVING, 9, bytes, &link),
            8 * 1 + 24 * 100 + 2 * 960 + 14 * 3840);
    near_to(cmn_schedule_seconds(CMN_EXCHANGE_PAIRWISE, 9, bytes, &link),
            2 * 1 + 32 * 100 + 2 * 960 + 14 * 3840);
}

static void only_schedules(void **state)
{
    (void)state;
    assert_fatal(cmn_schedule_of(CMN_EXCHANGE_AUTO), "has no rounds");
    assert_fatal(cmn_schedule_of(CMN_EXCHANGE_MPI), "has no rounds");
    for (int by = CMN_EXCHANGE_PAIRWISE; by <= CMN_EXCHANGE_RING; by++) {
        assert_true(strlen(cmn_schedule_of((enum cmn_exchange_by)by)->source) > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),  cmocka_unit_test(sums),           cmocka_unit_test(choice),
        cmocka_unit_test(seconds), cmocka_unit_test(only_schedules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
