#include "threads.h"

#include "base/random.h"

enum { N = 200 };

static void draw(int *number)
{
    for (int i = 0; i < N; i++) {
        number[i] = cmn_random_int();
    }
}

static int equal(const int *a, const int *b)
{
    return !memcmp(a, b, N * sizeof *a);
}

TEST(range)
{
    double sum = 0;

    cmn_random_open(7, 0, 0);
    for (int i = 0; i < 100000; i++) {
        int x = cmn_random_int();
        assert_true(x >= 0);
        sum += x / 2147483648.0;
    }
    assert_true(sum / 100000 > 0.49 && sum / 100000 < 0.51);
}

TEST(common_is_equal_and_own_differs)
{
    int other[N], common[N], theirs[N], again[N], own[2][N];

    cmn_random_open(8, 0, 0);
    draw(other);
    cmn_random_open(7, 1, 0);
    draw(common);
    cmn_random_own();
    draw(theirs);
    for (int i = 0; i < 2; i++) {
        cmn_random_open(7, 0, 0);
        draw(again);
        assert_true(equal(again, common));
        cmn_random_own();
        draw(own[i]);
    }
    assert_true(equal(own[0], own[1]));
    assert_false(equal(own[0], theirs) || equal(own[0], common) || equal(common, other));
}

/* What one rank draws for itself must not move the stream that all share. */
TEST(streams_keep_their_place)
{
    int straight[N], mixed[N];

    cmn_random_open(7, 0, 0);
    draw(straight);
    cmn_random_open(7, 2, 0);
    for (int i = 0; i < N; i++) {
        cmn_random_common();
        mixed[i] = cmn_random_int();
        cmn_random_own();
        for (int j = 0; j < i % 5; j++) {
            cmn_random_int();
        }
        cmn_random_named(CMN_RANDOM_IMAGE, (uint64_t)i);
        cmn_random_int();
    }
    assert_true(equal(straight, mixed));
}

static void draw_named(int *number)
{
    cmn_random_named(CMN_RANDOM_IMAGE, 42);
    draw(number);
}

static int there[N];

static void draw_named_there(int thread)
{
    (void)thread;
    draw_named(there);
}

TEST(named_is_the_same_anywhere)
{
    int here[N], later[N], other[N], purpose[N], seed[N];

    cmn_random_open(7, 0, 0);
    draw_named(here);
    cmn_random_named(CMN_RANDOM_IMAGE, 43);
    draw(other);
    cmn_random_named(CMN_RANDOM_EVALUATION, 42);
    draw(purpose);
    draw_named(later);
    in_threads(1, draw_named_there);
    assert_true(equal(here, later));
    assert_true(equal(here, there));
    assert_false(equal(here, other));
    assert_false(equal(here, purpose));
    /* Ranks that load the same image draw the same augmentation; other jobs do not. */
    cmn_random_open(7, 5, 0);
    draw_named(later);
    assert_true(equal(here, later));
    cmn_random_open(9, 0, 0);
    draw_named(seed);
    assert_false(equal(here, seed));
}

enum { THREADS = 3 };

static int want[THREADS][N], bad[THREADS];

static void draw_often(int thread)
{
    int got[N];

    for (int i = 0; i < 5000; i++) {
        cmn_random_named(CMN_RANDOM_IMAGE, (uint64_t)thread);
        draw(got);
        bad[thread] |= !equal(got, want[thread]);
    }
}

TEST(threads_do_not_disturb_each_other)
{
    cmn_random_open(7, 0, 0);
    for (int i = 0; i < THREADS; i++) {
        cmn_random_named(CMN_RANDOM_IMAGE, (uint64_t)i);
        draw(want[i]);
    }
    in_threads(THREADS, draw_often);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(bad[i], 0);
    }
}

static void draw_unnamed(int thread)
{
    (void)thread;
    draw(there);
}

TEST(new_thread_leaves_the_streams_alone)
{
    int straight[N], after[N];

    for (int with_thread = 0; with_thread < 2; with_thread++) {
        cmn_random_open(7, 0, 0);
        draw(after);
        if (with_thread) {
            in_threads(1, draw_unnamed);
        }
        draw(with_thread ? after : straight);
    }
    assert_true(equal(straight, after));
}

TEST(hash_tells_all_arguments_apart)
{
    uint64_t seen[5 * 5 * 5 * 5];

    for (uint64_t n = 0; n < COUNT(seen); n++) {
        seen[n] = cmn_random_hash(n % 5, n / 5 % 5, n / 25 % 5, n / 125);
        for (uint64_t i = 0; i < n; i++) {
            assert_true(seen[i] != seen[n]);
        }
    }
}

TESTS(NULL, NULL)
