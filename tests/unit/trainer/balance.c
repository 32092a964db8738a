/* cmn_balance: who computes which micro-batches, from what they take each rank. */
#include "check.h"

#include "trainer/balance.h"

enum { MOST = 64 };

static void deals(int ranks, int micro_batches, const double *seconds, const int *wanted)
{
    int count[MOST];

    cmn_balance_deal(seconds, ranks, micro_batches, count);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(count[rank], wanted[rank]);
    }
}

TEST(follows_the_speeds)
{
    deals(2, 8, (double[]){1, 1}, (int[]){4, 4});
    deals(2, 7, (double[]){1, 1}, (int[]){4, 3});
    deals(2, 12, (double[]){1, 2}, (int[]){8, 4});
    deals(3, 10, (double[]){1, 3, 3}, (int[]){6, 2, 2});
    deals(2, 11, (double[]){1, 10}, (int[]){10, 1});
    deals(3, 3, (double[]){1, 1, 100}, (int[]){1, 1, 1});
    deals(1, 5, (double[]){1}, (int[]){5});
}

/* Of many: all are dealt out, each rank has one, and no other deal ends earlier: whoever has fewer
 * would be later with one more than the last rank that could do with
 * less. */
TEST(nothing_ends_earlier)
{
    double seconds[MOST], takes;
    int count[MOST];

    for (int n = 0; n < 2000; n++) {
        int ranks = 1 + n % 9, micro_batches = ranks + n % 31, sum = 0;
        for (int rank = 0; rank < ranks; rank++) {
            seconds[rank] = (double)uniform(1, 1000);
        }
        cmn_balance_deal(seconds, ranks, micro_batches, count);
        takes = 0;
        for (int rank = 0; rank < ranks; rank++) {
            if (count[rank] > 1 && count[rank] * seconds[rank] > takes) {
                takes = count[rank] * seconds[rank];
            }
        }
        for (int rank = 0; rank < ranks; rank++) {
            assert_true(count[rank] >= 1);
            assert_true((count[rank] + 1) * seconds[rank] >= takes);
            sum += count[rank];
        }
        assert_int_equal(sum, micro_batches);
    }
}

static void begins(struct cmn_balance *b, long step, int first, int second, int end)
{
    int at[4] = {0, 0, 0, -1};

    cmn_balance_first(b, step, at);
    assert_int_equal(at[0], first);
    assert_int_equal(at[1], second);
    assert_int_equal(at[2], end);
    assert_int_equal(at[3], -1);
}

TEST(waits_for_two_steps)
{
    struct cmn_balance b;
    double part = 0;

    cmn_balance_open(&b, 2, 12, 1);
    assert_true(b.on);
    begins(&b, 0, 0, 6, 12);
    assert_false(cmn_balance_measured(&b, 7, (double[]){1, 1.04}, &part)); /* noise */
    begins(&b, 99, 0, 6, 12);
    assert_true(cmn_balance_measured(&b, 15, (double[]){1, 2.96}, &part)); /* now 1 to 2 */
    assert_true(part > .66 && part < .67);
    begins(&b, 16, 0, 6, 12);
    begins(&b, 17, 0, 8, 12);
    assert_true(cmn_balance_measured(&b, 23, (double[]){1, .1}, &part));
    begins(&b, 24, 0, 8, 12);
    begins(&b, 25, 0, 6, 12);
    assert_false(cmn_balance_measured(&b, 31, (double[]){1, 1}, &part));
    begins(&b, 99, 0, 6, 12);
    cmn_balance_close(&b);
}

TEST(has_something_to_deal)
{
    static const struct {
        int ranks, micro_batches, wanted;
    } of[] = {{2, 2, 1}, {1, 8, 1}, {2, 3, 0}};

    for (size_t i = 0; i < COUNT(of); i++) {
        struct cmn_balance b;
        cmn_balance_open(&b, of[i].ranks, of[i].micro_batches, of[i].wanted);
        assert_false(b.on);
        if (!of[i].wanted) {
            begins(&b, 0, 0, 1, 3);
        }
        cmn_balance_close(&b);
    }
}

TESTS(NULL, NULL)
