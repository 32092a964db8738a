/* How a step is divided over the ranks: of each cfg and each number of ranks. */
#include "check.h"

#include "config/commands.h"
#include "trainer/feed.h"

#include <math.h>

enum { MOST = 9 };

static struct cmn_session session;
static const struct cmn_command trains = {.does = CMN_TRAINS};

static struct cmn_share share_of(int rank, int ranks, int batch, int micro_batches)
{
    session.command = &trains;
    session.topology.rank = rank;
    session.topology.size = ranks;
    return cmn_feed_share(&session, batch, micro_batches);
}

static double factor_of(struct cmn_rolling_factor f, double k)
{
    double sum = 0;

    for (int i = 0; i < abs(f.terms); i++) {
        sum += pow(k, i);
    }
    return f.scale * pow(k, f.power) * (f.terms < 0 ? 1 / sum : sum);
}

/* Each image of a step belongs to one micro-batch of one rank, and in this order all ranks have seen
 * those before it. */
static void check_step(int ranks, int batch, int n)
{
    int next = 0, all = batch * n;

    for (int rank = 0; rank < ranks; rank++) {
        struct cmn_share s = share_of(rank, ranks, batch, n);
        struct cmn_feed f = {.session = &session, .share = s};
        assert_int_equal(s.step, all);
        assert_int_equal(s.dealt, s.micro_batches == n && session.options.sync_bn ? batch : all);
        assert_int_equal(s.offset, session.options.sync_bn ? batch * rank / ranks : next);
        assert_int_equal(cmn_feed_own_images(&f), (size_t)(s.local * s.micro_batches));
        assert_int_equal(cmn_feed_step_images(&f), (size_t)all);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(cmn_feed_begin_step(&f), 0);
            assert_int_equal(f.step_first, (size_t)i * cmn_feed_own_images(&f));
        }
        assert_in_range(s.local * s.micro_batches, 1, all);
        for (int m = 0; m < s.micro_batches; m++) {
            assert_int_equal(cmn_feed_seen(&f, m), s.whole ? next + (m + 1) * batch
                                                   : ranks > n && !session.options.sync_bn
                                                       ? (next / batch + 1) * batch
                                                       : (m + 1) * batch);
        }
        next += s.local * s.micro_batches;
        assert_int_equal(s.whole, !session.options.sync_bn && ranks <= n);
    }
    assert_int_equal(next, all);
}

static void try_step(int divided, int ranks, int batch, int n, const char *why)
{
    if (divided >= ranks) {
        check_step(ranks, batch, n);
    } else {
        assert_fatal(share_of(0, ranks, batch, n), why);
    }
}

TEST(a_step_is_divided)
{
    for (int ranks = 1; ranks <= MOST; ranks++) {
        for (int batch = 1; batch <= MOST; batch++) {
            for (int n = 1; n <= MOST; n++) {
                session.options.sync_bn = 0;
                try_step(batch * n, ranks, batch, n, "a step (batch in the cfg) cannot");
                session.options.sync_bn = 1;
                try_step(batch, ranks, batch, n, "as cmn_sync_bn=on needs it");
            }
        }
    }
    session.options.sync_bn = 0;
}

/* The mean of what the ranks have after a step is what one process would have, which updates a rolling
 * statistic in each micro-batch: R = k R + (1 - k) x. Where ranks share a micro-batch, x is theirs. */
TEST(rolling_statistics_are_those_of_one_process)
{
    const double k = 0.9;

    for (int ranks = 1; ranks <= MOST; ranks++) {
        for (int n = 1; n <= MOST; n++) {
            double mean = 0, one = 7;
            for (int i = 0; i < n; i++) {
                one = k * one + (1 - k) * (ranks <= n ? i + 1 : (ranks + 1) / 2.);
            }
            for (int rank = 0; rank < ranks; rank++) {
                struct cmn_share s = share_of(rank, ranks, ranks, n);
                double r = 7 * factor_of(s.before, k);
                for (int m = 0; m < s.micro_batches; m++) {
                    r = k * r + (1 - k) * (ranks <= n ? s.offset / ranks + m + 1 : rank + 1);
                }
                mean += r * factor_of(s.after, k) / ranks;
            }
            assert_true(fabs(mean - one) < 1e-12);
        }
    }
}

TEST(batches_of_each_rank)
{
    session.options.batch = CMN_BATCH_PER_RANK;
    for (int rank = 0; rank < 3; rank++) {
        struct cmn_share s = share_of(rank, 3, 4, 5);
        assert_true(s.micro_batches == 5 && s.local == 4 && s.step == 60 && s.dealt == 12);
        assert_true(s.offset == 4 * rank && s.seen_before == 0 && s.seen_each == 12 && !s.whole);
    }
    session.options.batch = CMN_BATCH_GLOBAL;
}

/* cmn_exact: ranks without a micro-batch load that of another one. */
TEST(exact_shares)
{
    session.options.exact = 1;
    for (int rank = 0; rank < 5; rank++) {
        struct cmn_share s = share_of(rank, 5, 4, 3), whole = share_of(rank, 2, 4, 3);
        assert_true(s.spare == (rank >= 3) && s.first == rank % 3 && s.micro_batches == 1);
        assert_true(s.offset == 4 * (rank % 3) && factor_of(s.before, .5) == 1 &&
                    factor_of(s.after, .5) == 1);
        assert_true(rank > 1 || (!whole.spare && whole.first == rank));
        assert_true(rank > 1 || whole.micro_batches == 1 + rank);
    }
    session.options.exact = 0;
}

TESTS(NULL, NULL)
