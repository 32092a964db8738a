/* Variables CMN_DEBUG_…: what they may be, and what becomes of others. */
#include "check.h"

#include "base/debug.h"

static void unset_all(void)
{
    unsetenv("CMN_DEBUG_EXCHANGE");
    unsetenv("CMN_DEBUG_BUCKET_MB");
    unsetenv("CMN_DEBUG_NOTHING");
}

TEST(words)
{
    static const char *const wrong[] = {"pair", "pairwise,", "pairwise, halving", "Ring", " ring"};

    assert_int_equal(cmn_debug_word("EXCHANGE"), 0);
    setenv("CMN_DEBUG_EXCHANGE", "pairwise", 1);
    assert_int_equal(cmn_debug_word("EXCHANGE"), 1);
    setenv("CMN_DEBUG_EXCHANGE", "ring", 1);
    assert_int_equal(cmn_debug_word("EXCHANGE"), 3);
    assert_int_equal(cmn_debug_check(), 0);
    setenv("CMN_DEBUG_EXCHANGE", "", 1);
    assert_int_equal(cmn_debug_word("EXCHANGE"), 0);
    assert_int_equal(cmn_debug_check(), 0);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        setenv("CMN_DEBUG_EXCHANGE", wrong[i], 1);
        assert_int_equal(cmn_debug_word("EXCHANGE"), 0);
        assert_fails(cmn_debug_check() == -1, "the value must be one of: pairwise, halving, ring");
    }
}

TEST(numbers)
{
    static const char *const wrong[] = {"0", "-1", "1025", "nan", "inf", "1x", "x"};

    assert_true(cmn_debug_number("BUCKET_MB") == 0);
    setenv("CMN_DEBUG_BUCKET_MB", "0.5", 1);
    assert_true(cmn_debug_number("BUCKET_MB") == 0.5);
    assert_int_equal(cmn_debug_check(), 0);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        setenv("CMN_DEBUG_BUCKET_MB", wrong[i], 1);
        assert_true(cmn_debug_number("BUCKET_MB") == 0);
        assert_fails(cmn_debug_check() == -1, "the value must be a number, 0.0001 to 1024");
    }
}

TEST(unknown)
{
    setenv("CMN_DEBUG_NOTHING", "1", 1);
    assert_fails(cmn_debug_check() == -1, "unknown variable CMN_DEBUG_NOTHING: unset it");
}

TEST(compared)
{
    char text[1024], small[40];

    setenv("CMN_DEBUG_EXCHANGE", "ring", 1);
    assert_int_equal(cmn_debug_print(text, sizeof text), 0);
    check_contains(text, "CMN_DEBUG_EXCHANGE = ring\n");
    check_contains(text, "CMN_DEBUG_BUCKET_MB = unset\n");
    assert_int_equal(cmn_debug_print(small, sizeof small), -1);
}

TESTS(NULL, unset_all)
