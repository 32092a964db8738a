/* Algorithms of the exchange without an exchange: messages and blocks of a rank against closed
 * forms, every block's sum followed through the rounds, and which one is chosen. */
#include "check.h"

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

/* What a rank sends in a reduce-scatter; an allgather is the same backwards. */
TEST(counts)
{
    for (int ranks = 1; ranks <= COUNTED; ranks++) {
        for (int by = CMN_EXCHANGE_PAIRWISE; by <= CMN_EXCHANGE_RING; by++) {
            const struct cmn_schedule *s = cmn_schedule_of((enum cmn_exchange_by)by);
            int rounds = s->rounds(ranks), blocks = 0;
            for (int i = 0; i < rounds; i++) {
                struct cmn_round round = s->round(ranks, i);
                blocks += round.blocks;
                assert_true(by != CMN_EXCHANGE_RING || round.distance == 1);
            }
            assert_int_equal(rounds, by == CMN_EXCHANGE_HALVING ? log2_up(ranks) : ranks - 1);
            assert_int_equal(blocks, ranks - 1);
        }
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

TEST(sums)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (int by = CMN_EXCHANGE_PAIRWISE; by <= CMN_EXCHANGE_RING; by++) {
            follow(cmn_schedule_of((enum cmn_exchange_by)by), sizes[i], 1003);
            follow(cmn_schedule_of((enum cmn_exchange_by)by), sizes[i], 65536);
        }
    }
}

/* ---- the choice ---- */

TEST(choice)
{
    static const double bytes[] = {0, 1e3, 1e6, 1e9};

    for (size_t i = 0; i < COUNT(bytes); i++) {
        for (int ranks = 1; ranks <= CMN_SCHEDULE_FEW; ranks++) {
            assert_int_equal(cmn_schedule_for(ranks, bytes[i]), CMN_EXCHANGE_PAIRWISE);
        }
    }
    for (int ranks = CMN_SCHEDULE_FEW + 1; ranks <= COUNTED; ranks++) {
        assert_int_equal(cmn_schedule_for(ranks, 0), CMN_EXCHANGE_HALVING);
        assert_int_equal(cmn_schedule_for(ranks, ranks * 524288.0 - 1), CMN_EXCHANGE_HALVING);
        assert_int_equal(cmn_schedule_for(ranks, ranks * 524288.0), CMN_EXCHANGE_RING);
    }
}

TEST(only_schedules)
{
    assert_fatal(cmn_schedule_of(CMN_EXCHANGE_AUTO), "has no rounds");
    for (int by = CMN_EXCHANGE_PAIRWISE; by <= CMN_EXCHANGE_RING; by++) {
        assert_true(strlen(cmn_schedule_of((enum cmn_exchange_by)by)->source) > 20);
    }
}

TESTS(NULL, NULL)
