#include "check.h"

#include <math.h>
#include <unistd.h>

#include "base/log.h"
#include "nets.h"
#include "report/chart.h"
#include "report/json_log.h"

static struct cmn_row row_at(long iteration, double loss)
{
    struct cmn_row row = {
        .epoch = (double)iteration / 100,
        .iteration = iteration,
        .loss = loss,
        .accuracy = -1,
        .validation_loss = -1,
        .validation_accuracy = -1,
        .validation_map = -1,
        .validation_map95 = -1,
        .lr = 0.1,
        .images_per_s = 50,
        .elapsed = 1,
    };

    return row;
}

static void add(struct cmn_chart_rows *s, struct cmn_row row)
{
    cmn_chart_rows_add(s, &row);
}

/* ---- the series ---- */

static void few_rows_stay_as_they_are(void **state)
{
    struct cmn_chart_rows s = {0};

    (void)state;
    for (long i = 1; i <= 4096; i++) {
        add(&s, row_at(i, (double)i));
    }
    assert_int_equal(s.rows, 4096);
    assert_int_equal(s.each, 1);
    for (int i = 0; i < s.rows; i++) {
        assert_int_equal(s.row[i].iteration, i + 1);
        assert_true(s.row[i].loss == i + 1);
    }
    cmn_chart_rows_free(&s);
}

/* However many there are: a bounded number, evenly spread, the mean of their losses kept, no
 * validation lost at the end. */
static void many_rows_become_fewer(void **state)
{
    struct cmn_chart_rows s = {0};
    const long rows = 100000;
    double sum = 0;

    (void)state;
    for (long i = 1; i <= rows; i++) {
        struct cmn_row row = row_at(i, (double)(i % 7));
        row.validation_map = i == rows - 1 ? 0.5 : -1;
        add(&s, row);
    }
    assert_in_range(s.rows, 2048, 4096);
    for (int i = 0; i < s.rows - 1; i++) {
        assert_int_equal(s.row[i].iteration, (long)s.each * (i + 1));
        sum += s.row[i].loss;
    }
    assert_true(fabs(sum / (s.rows - 1) - 3) < 0.01);
    assert_int_equal(s.row[s.rows - 1].iteration, rows);
    assert_true(s.row[s.rows - 1].validation_map == 0.5);
    assert_true(s.row[0].validation_map < 0);
    cmn_chart_rows_free(&s);
}

/* Of two validations the later one is kept. */
static void what_is_not_known_counts_in_no_mean(void **state)
{
    struct cmn_chart_rows s = {0};

    (void)state;
    for (long i = 1; i <= 4097; i++) {
        struct cmn_row row = row_at(i, i % 2 ? 4 : -1);
        row.validation_accuracy = (double)i;
        row.validation_map = i % 2 ? (double)i : -1;
        add(&s, row);
    }
    assert_int_equal(s.each, 2);
    for (int i = 0; i < 2048; i++) {
        assert_true(s.row[i].loss == 4);
        assert_true(s.row[i].validation_accuracy == 2 * i + 2);
        assert_true(s.row[i].validation_map == 2 * i + 1);
    }
    cmn_chart_rows_free(&s);
}

/* ---- the script ---- */

static char *script(const char *title, enum cmn_answer answer, const struct cmn_chart_rows *s)
{
    const struct cmn_chart_plan plot = {title, answer, 500};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    cmn_chart_script(&plot, s, out);
    fclose(out);
    return text;
}

static int contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static void the_script_holds_the_rows(void **state)
{
    struct cmn_chart_rows s = {0};
    struct cmn_row row = row_at(100, 2.5);
    char *text;

    (void)state;
    add(&s, row);
    row.iteration = 200;
    row.accuracy = 0.75;
    row.validation_loss = NAN;
    row.validation_accuracy = 0.875;
    row.validation_map = 0.5; /* no column of a classifier */
    add(&s, row);
    text = script("net", CMN_CLASSES, &s);
    check_contains(text, "\n100 2.5 nan nan nan nan nan 0.1 50\n");
    check_contains(text, "\n200 2.5 nan 75 87.5 nan nan 0.1 50\n");
    check_contains(text, "'iteration 200 of 500, epoch 1.00'");
    check_contains(text, "validation: 87.50");
    assert_true(contains(text, "accuracy, %") && !contains(text, "mAP"));
    free(text);
    text = script("net", CMN_BOXES, &s);
    check_contains(text, "\n200 2.5 nan nan nan 50 nan 0.1 50\n");
    assert_true(contains(text, "mAP") && !contains(text, "accuracy"));
    free(text);
    text = script("net", CMN_NO_ANSWER, &s);
    check_contains(text, "\n200 2.5 nan nan nan nan nan 0.1 50\n");
    assert_true(!contains(text, "mAP") && !contains(text, "accuracy"));
    free(text);
    row.iteration = 300;
    row.validation_accuracy = 0.5;
    add(&s, row);
    text = script("net", CMN_CLASSES, &s);
    check_contains(text, "validation: 50.00 (best 87.50)");
    free(text);
    cmn_chart_rows_free(&s);
}

static void a_name_stays_within_its_quotes(void **state)
{
    struct cmn_chart_rows s = {0};
    char *text;

    (void)state;
    add(&s, row_at(1, 1));
    text = script("it's'\n`touch x`", CMN_NO_ANSWER, &s);
    check_contains(text, "'it''s''?`touch x`'");
    free(text);
    cmn_chart_rows_free(&s);
}

static void wide_ranges_are_logarithmic(void **state)
{
    struct cmn_chart_rows s = {0};
    char *text;

    (void)state;
    add(&s, row_at(1, 100));
    add(&s, row_at(2, 10));
    text = script("net", CMN_NO_ANSWER, &s);
    assert_false(contains(text, "\nset logscale y"));
    free(text);
    add(&s, row_at(3, 1));
    text = script("net", CMN_NO_ANSWER, &s);
    check_contains(text, "\nset logscale y");
    free(text);
    add(&s, row_at(4, 0));
    text = script("net", CMN_NO_ANSWER, &s);
    assert_false(contains(text, "\nset logscale y"));
    free(text);
    cmn_chart_rows_free(&s);
}

/* ---- what gnuplot makes of it ---- */

static int gnuplot_is_there(void)
{
    return !system("gnuplot --version >/dev/null 2>&1");
}

/* Nothing that a training can tell makes gnuplot complain. */
static void gnuplot_draws_all_sorts_of_rows(void **state)
{
    const enum cmn_answer answers[] = {CMN_NO_ANSWER, CMN_CLASSES, CMN_BOXES};
    const double losses[] = {1, 0, -1, NAN, INFINITY, 1e-30, 1e30};

    (void)state;
    if (!gnuplot_is_there()) {
        skip();
    }
    for (size_t i = 0; i < COUNT(losses) * COUNT(answers); i++) {
        const struct cmn_chart_plan plot = {"net", answers[i % COUNT(answers)], 0};
        char *name = nets_file("");
        struct cmn_chart *c = cmn_chart_open(name, &plot);
        struct cmn_row row = row_at(0, losses[i / COUNT(answers)]);
        if (!c || cmn_chart_row(c, &row) || cmn_chart_finish(c)) {
            fail_msg("loss %g: %s", row.loss, cmn_reason());
        }
        row.iteration = 1;
        row.lr = row.images_per_s = NAN;
        row.validation_map = row.validation_accuracy = row.accuracy = 0;
        if (cmn_chart_row(c, &row) || cmn_chart_finish(c)) {
            fail_msg("second row, loss %g: %s", row.loss, cmn_reason());
        }
        cmn_chart_close(c);
        unlink(name);
        free(name);
    }
}

/* ---- rows that a log gives back ---- */

struct found {
    struct cmn_row row[4];
    int rows;
};

static int keep(void *to, const struct cmn_row *row)
{
    struct found *found = to;

    found->row[found->rows++] = *row;
    return found->rows == 4 ? cmn_fail("enough") : 0;
}

static void a_log_gives_its_rows_back(void **state)
{
    char *name = nets_file("");
    const struct cmn_straggler nobody = {.rank = -1};
    struct cmn_json_log *j = cmn_json_log_open(name, &(struct cmn_log_resume){0});
    struct cmn_row row = row_at(7, 2.5);
    struct found found = {.rows = 0};

    (void)state;
    cmn_json_log_row(j, &row, &nobody);
    row.iteration = 8;
    row.loss = NAN;
    row.validation_map = 0.25;
    row.validation_map95 = 0;
    cmn_json_log_row(j, &row, &nobody);
    assert_int_equal(cmn_json_log_read(name, keep, &found), 0);
    assert_int_equal(found.rows, 2);
    assert_int_equal(found.row[0].iteration, 7);
    assert_true(found.row[0].loss == 2.5 && found.row[0].lr == 0.1 && found.row[0].epoch == 0.07);
    assert_true(found.row[0].validation_map < 0 && found.row[0].accuracy < 0);
    assert_true(isnan(found.row[1].loss));
    assert_true(found.row[1].validation_map == 0.25 && found.row[1].validation_map95 == 0);
    /* What the reader says counts. */
    assert_int_equal(cmn_json_log_read(name, keep, &found), -1);
    check_contains(cmn_reason(), "enough");
    cmn_json_log_close(j);
    unlink(name);
    free(name);
    assert_int_equal(cmn_json_log_read("/dev/null/none", keep, &found), -1);
    check_contains(cmn_reason(), "/dev/null/none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_stay_as_they_are),
        cmocka_unit_test(many_rows_become_fewer),
        cmocka_unit_test(what_is_not_known_counts_in_no_mean),
        cmocka_unit_test(the_script_holds_the_rows),
        cmocka_unit_test(a_name_stays_within_its_quotes),
        cmocka_unit_test(wide_ranges_are_logarithmic),
        cmocka_unit_test(gnuplot_draws_all_sorts_of_rows),
        cmocka_unit_test(a_log_gives_its_rows_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
