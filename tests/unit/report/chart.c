#include "folder.h"

#include <math.h>

#include "report/chart.h"
#include "report/json_log.h"

static struct cmn_row row_at(long iteration, double loss)
{
    return (struct cmn_row){
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
}

/* ---- the script ---- */

/* Valid until the next call. */
static const char *script(const char *title, enum cmn_answer answer, const struct cmn_row *row,
                          int rows)
{
    static char text[1 << 16];
    FILE *out = fmemopen(text, sizeof text, "w");

    cmn_chart_script(&(struct cmn_chart){title, answer, row, rows}, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static int contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

TEST(the_script_holds_the_rows)
{
    struct cmn_row row[3] = {row_at(100, 2.5), row_at(200, 2.5)};
    const char *text;

    row[1].accuracy = 0.75;
    row[1].validation_loss = NAN;
    row[1].validation_accuracy = 0.875;
    row[1].validation_map = 0.5; /* no column of a classifier */
    text = script("net", CMN_CLASSES, row, 2);
    check_contains(text, "\n100 2.5\n200 2.5\n");
    check_contains(text, "\n200 75\nEND");
    check_contains(text, "\n200 87.5\nEND");
    check_contains(text, "\n100 0.1\n200 0.1\n");
    check_contains(text, "\n100 50\n200 50\n");
    check_contains(text, "'iteration 200, epoch 2.00'");
    check_contains(text, "validation: 87.50");
    assert_true(contains(text, "accuracy, %") && !contains(text, "mAP"));
    text = script("net", CMN_BOXES, row, 2);
    check_contains(text, "\n200 50\nEND");
    assert_true(contains(text, "mAP") && !contains(text, "accuracy"));
    text = script("net", CMN_NO_ANSWER, row, 2);
    assert_true(!contains(text, "mAP") && !contains(text, "accuracy"));
    row[2] = row[1];
    row[2].iteration = 300;
    row[2].validation_accuracy = 0.5;
    text = script("net", CMN_CLASSES, row, 3);
    check_contains(text, "validation: 50.00 (best 87.50)");
}

TEST(a_name_stays_within_its_quotes)
{
    struct cmn_row row = row_at(1, 1);

    check_contains(script("it's'\n`touch x`", CMN_NO_ANSWER, &row, 1), "'it''s''?`touch x`'");
}

TEST(wide_ranges_are_logarithmic)
{
    const struct cmn_row row[] = {row_at(1, 100), row_at(2, 10), row_at(3, 1), row_at(4, 0)};

    for (int rows = 1; rows <= 4; rows++) {
        assert_int_equal(contains(script("net", CMN_NO_ANSWER, row, rows), "\nset logscale y"),
                         rows == 3);
    }
}

/* ---- what gnuplot makes of it ---- */

/* Nothing that a training can tell makes gnuplot complain. */
TEST(gnuplot_draws_all_sorts_of_rows)
{
    const double losses[] = {1, 0, -1, NAN, INFINITY, 1e-30, 1e30};
    const struct cmn_straggler nobody = {.rank = -1};
    char *log = file_of("log", ""), *picture = file_of("picture", "");

    if (system("gnuplot --version >/dev/null 2>&1")) {
        skip();
    }
    for (size_t i = 0; i < COUNT(losses) * 3; i++) {
        struct cmn_json_log *j = cmn_json_log_open(log, &(struct cmn_log_resume){0});
        struct cmn_row row = row_at(1, losses[i / 3]);
        for (; row.iteration <= 2; row.iteration++) {
            cmn_json_log_row(j, &row, &nobody);
            if (cmn_chart_draw(log, picture)) {
                fail_msg("loss %g, row %ld: %s", row.loss, row.iteration, cmn_reason());
            }
            row.lr = row.images_per_s = NAN;
            row.accuracy = i % 3 == 1 ? 0 : -1;
            row.validation_map = i % 3 == 2 ? 0 : -1;
        }
        cmn_json_log_close(j);
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

TEST(a_log_gives_its_rows_back)
{
    char *name = file_of("x", "");
    const struct cmn_straggler nobody = {.rank = -1};
    struct cmn_json_log *j = cmn_json_log_open(name, &(struct cmn_log_resume){0});
    struct cmn_row row = row_at(7, 2.5);
    struct found found = {.rows = 0};

    cmn_json_log_row(j, &row, &nobody);
    row.iteration = 8;
    row.loss = NAN; /* JSON has no way to write it, nor infinity: the log stays readable */
    row.lr = INFINITY;
    row.validation_map = 0.25;
    row.validation_map95 = 0;
    cmn_json_log_row(j, &row, &nobody);
    assert_int_equal(cmn_json_log_read(name, keep, &found), 0);
    assert_int_equal(found.rows, 2);
    assert_int_equal(found.row[0].iteration, 7);
    assert_true(found.row[0].loss == 2.5 && found.row[0].lr == 0.1 && found.row[0].epoch == 0.07);
    assert_true(found.row[0].validation_map < 0 && found.row[0].accuracy < 0);
    assert_true(isnan(found.row[1].loss) && !isfinite(found.row[1].lr));
    assert_true(found.row[1].validation_map == 0.25 && found.row[1].validation_map95 == 0);
    /* As a reader finds it whose size of the file is older than its contents: the next row is being
     * written. */
    assert_int_equal(truncate(name, size_of(name) - 5), 0);
    found.rows = 0;
    assert_int_equal(cmn_json_log_read(name, keep, &found), 0);
    assert_int_equal(found.rows, 1);
    found.rows = 3;
    /* What the reader says counts. */
    assert_fails(cmn_json_log_read(name, keep, &found) == -1, "enough");
    cmn_json_log_close(j);
    assert_fails(cmn_json_log_read("/dev/null/none", keep, &found) == -1, "/dev/null/none");
}

TESTS(make_folder, remove_folder)
