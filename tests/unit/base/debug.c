/* Variables CMN_DEBUG_…: what they may be, and what becomes of others. */
#include "check.h"

#include <stdlib.h>

#include "base/debug.h"
#include "base/log.h"

static int unset_all(void **state)
{
    (void)state;
    unsetenv("CMN_DEBUG_EXCHANGE");
    unsetenv("CMN_DEBUG_BUCKET_MB");
    unsetenv("CMN_DEBUG_NOTHING");
    return 0;
}

static void words(void **state)
{
    (void)state;
    assert_int_equal(cmn_debug_word("EXCHANGE"), 0);
    setenv("CMN_DEBUG_EXCHANGE", "pairwise", 1);
    assert_int_equal(cmn_debug_word("EXCHANGE"), 1);
    setenv("CMN_DEBUG_EXCHANGE", "ring", 1);
    assert_int_equal(cmn_debug_word("EXCHANGE"), 3);
    assert_int_equal(cmn_debug_check(), 0);
    setenv("CMN_DEBUG_EXCHANGE", "", 1);
    assert_int_equal(cmn_debug_word("EXCHANGE"), 0);
    assert_int_equal(cmn_debug_check(), 0);
}

static void wrong_words(void **state)
{
    static const char *const wrong[] = {"pair", "pairwise,", "pairwise, halving", "Ring", " ring"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("CMN_DEBUG_EXCHANGE", wrong[i], 1);
        assert_int_equal(cmn_debug_word("EXCHANGE"), 0);
        assert_int_equal(cmn_debug_check(), -1);
        assert_non_null(strstr(cmn_reason(), "the value must be one of: pairwise, halving, ring"));
    }
}

static void numbers(void **state)
{
    static const char *const wrong[] = {"0", "-1", "1025", "nan", "inf", "1x", "x"};

    (void)state;
    assert_true(cmn_debug_number("BUCKET_MB") == 0);
    setenv("CMN_DEBUG_BUCKET_MB", "0.5", 1);
    assert_true(cmn_debug_number("BUCKET_MB") == 0.5);
    assert_int_equal(cmn_debug_check(), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("CMN_DEBUG_BUCKET_MB", wrong[i], 1);
        assert_true(cmn_debug_number("BUCKET_MB") == 0);
        assert_int_equal(cmn_debug_check(), -1);
        assert_non_null(strstr(cmn_reason(), "the value must be a number, 0.0001 to 1024"));
    }
}

static void unknown(void **state)
{
    (void)state;
    setenv("CMN_DEBUG_NOTHING", "1", 1);
    assert_int_equal(cmn_debug_check(), -1);
    assert_non_null(strstr(cmn_reason(), "unknown variable CMN_DEBUG_NOTHING: unset it"));
}

static void compared(void **state)
{
    char text[1024], small[40];

    (void)state;
    setenv("CMN_DEBUG_EXCHANGE", "ring", 1);
    assert_int_equal(cmn_debug_print(text, sizeof text), 0);
    assert_non_null(strstr(text, "CMN_DEBUG_EXCHANGE = ring\n"));
    assert_non_null(strstr(text, "CMN_DEBUG_BUCKET_MB = unset\n"));
    assert_int_equal(cmn_debug_print(small, sizeof small), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(words, unset_all),
        cmocka_unit_test_teardown(wrong_words, unset_all),
        cmocka_unit_test_teardown(numbers, unset_all),
        cmocka_unit_test_teardown(unknown, unset_all),
        cmocka_unit_test_teardown(compared, unset_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
