/* cmn_outlier: which steps are outliers (optimizers/outlier.h). */
#include "check.h"

#include <math.h>

#include "optimizers/outlier.h"

static struct cmn_outlier o;
static int which;

static enum cmn_outlier_answer check(double loss, double norm)
{
    const double value[] = {loss, norm};

    return cmn_outlier_check(&o, 3, value, &which);
}

/* Loss 9, 11, 9 … with a mean of 10 and a deviation of 1; the norm is a tenth of it. */
static void warm_up(void)
{
    o = (struct cmn_outlier){.steps = 0};
    for (int i = 0; i < 2 * CMN_OUTLIER_WINDOW; i++) {
        assert_int_equal(check(i % 2 ? 11 : 9, i % 2 ? 1.1 : 0.9), CMN_OUTLIER_USED);
    }
}

static void by_loss_or_norm(void **state)
{
    (void)state;
    warm_up();
    assert_true(fabs(o.mean[0] - 10) < 0.02 && fabs(cmn_outlier_deviation(&o, 0) - 1) < 0.02);
    assert_int_equal(check(12.9, 1.29), CMN_OUTLIER_USED);
    warm_up();
    assert_int_equal(check(13.1, 1), CMN_OUTLIER_LEFT_OUT);
    assert_int_equal(which, CMN_OUTLIER_LOSS);
    assert_int_equal(check(10, 1.31), CMN_OUTLIER_LEFT_OUT);
    assert_int_equal(which, CMN_OUTLIER_NORM);
    assert_int_equal(check(-1e9, 0), CMN_OUTLIER_USED); /* less is no outlier */
}

/* Mean and variance of the first steps are those of all of them; then the newest counts 1/100. */
static void means(void **state)
{
    double sum = 0, squares = 0, mean, variance;

    (void)state;
    o = (struct cmn_outlier){.steps = 0};
    for (int i = 0; i < CMN_OUTLIER_WINDOW; i++) {
        double x = (i * 7 % 11) / 11.;
        sum += x;
        squares += x * x;
        assert_int_equal(check(x, 2 * x), CMN_OUTLIER_USED);
    }
    mean = sum / CMN_OUTLIER_WINDOW;
    variance = squares / CMN_OUTLIER_WINDOW - mean * mean;
    assert_true(fabs(o.mean[0] - mean) < 1e-12 && fabs(o.variance[0] - variance) < 1e-12);
    assert_true(fabs(o.mean[1] - 2 * mean) < 1e-12 && fabs(o.variance[1] - 4 * variance) < 1e-12);
    check(0.5, 1);
    assert_true(fabs(o.mean[0] - (0.99 * mean + 0.005)) < 1e-12);
}

/* What is left out is forgotten. */
static void learns_nothing_of_them(void **state)
{
    struct cmn_outlier before;

    (void)state;
    warm_up();
    before = o;
    for (int i = 1; i < CMN_OUTLIER_IN_A_ROW; i++) {
        assert_int_equal(check(1e30, 1), CMN_OUTLIER_LEFT_OUT);
        assert_int_equal(o.in_row, i);
    }
    assert_memory_equal(o.mean, before.mean, sizeof o.mean);
    assert_memory_equal(o.variance, before.variance, sizeof o.variance);
    assert_int_equal(check(10, 1), CMN_OUTLIER_USED);
    assert_int_equal(o.in_row, 0);
}

static void another_level(void **state)
{
    (void)state;
    warm_up();
    for (int i = 1; i < CMN_OUTLIER_IN_A_ROW; i++) {
        assert_int_equal(check(1000, 1), CMN_OUTLIER_LEFT_OUT);
    }
    assert_int_equal(check(1000, 1), CMN_OUTLIER_ANEW);
    assert_true(o.steps == 1 && o.mean[0] > 999 && o.variance[0] < 1e-9);
    assert_int_equal(check(5000, 1), CMN_OUTLIER_USED); /* warm-up */
}

static void first_steps(void **state)
{
    (void)state;
    o = (struct cmn_outlier){.steps = 0};
    for (int i = 0; i < CMN_OUTLIER_WARMUP; i++) {
        assert_int_equal(check(i == 30 ? 20 : 10, 1), CMN_OUTLIER_USED);
    }
    assert_int_equal(check(1e3, 1), CMN_OUTLIER_LEFT_OUT);
}

/* Values that are all the same have no deviation: 1 % of them counts as one. */
static void constant(void **state)
{
    (void)state;
    o = (struct cmn_outlier){.steps = 0};
    for (int i = 0; i < CMN_OUTLIER_WARMUP; i++) {
        check(10, 1);
    }
    assert_int_equal(check(10.29, 1), CMN_OUTLIER_USED);
    assert_int_equal(check(10.5, 1), CMN_OUTLIER_LEFT_OUT);
}

/* NaN and infinite ones are outliers from the first step on, and no level however many come. A
 * network without a loss has NaN there: its norm decides. */
static void not_finite(void **state)
{
    (void)state;
    o = (struct cmn_outlier){.steps = 0};
    for (int i = 0; i < 3 * CMN_OUTLIER_IN_A_ROW; i++) {
        assert_int_equal(check(1, NAN), CMN_OUTLIER_LEFT_OUT);
        assert_int_equal(check(1, INFINITY), CMN_OUTLIER_LEFT_OUT);
        assert_int_equal(check(INFINITY, 1), CMN_OUTLIER_LEFT_OUT);
    }
    assert_int_equal(o.steps, 0);
    for (int i = 0; i < CMN_OUTLIER_WARMUP; i++) {
        assert_int_equal(check(NAN, 1), CMN_OUTLIER_USED);
    }
    assert_int_equal(check(NAN, 2), CMN_OUTLIER_LEFT_OUT);
    assert_int_equal(which, CMN_OUTLIER_NORM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_loss_or_norm),
        cmocka_unit_test(means),
        cmocka_unit_test(learns_nothing_of_them),
        cmocka_unit_test(another_level),
        cmocka_unit_test(first_steps),
        cmocka_unit_test(constant),
        cmocka_unit_test(not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
