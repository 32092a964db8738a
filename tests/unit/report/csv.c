#include "check.h"

#include <unistd.h>

#include "base/log.h"
#include "nets.h"
#include "report/csv.h"

#define HEADING                                                                                 \
    "epoch,iteration,main/loss,validation/main/loss,main/accuracy,validation/main/accuracy,lr," \
    "images/s,elapsed_time,share/compute,share/exchange,share/load\r\n"

static const struct cmn_log_resume nothing = {0};

static struct cmn_row row_at(long iteration)
{
    struct cmn_row row = {
        .epoch = 0.5,
        .iteration = iteration,
        .loss = 0.25,
        .accuracy = 0.75,
        .validation_loss = -1,
        .validation_accuracy = -1,
        .validation_map = -1,
        .validation_map95 = -1,
        .lr = 1e-5,
        .images_per_s = 1234.56789,
        .elapsed = 2,
        .compute = 0.5,
        .exchange = 0.25,
        .load = 0.125,
    };

    return row;
}

static void assert_text(const char *name, const char *wanted)
{
    char text[8192];
    FILE *file = fopen(name, "r");
    size_t n;

    assert_non_null(file);
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    assert_string_equal(text, wanted);
}

/* Writes rows of those iterations, which end with 0. */
static void write_rows(const char *name, long first, const long *iteration)
{
    struct cmn_csv *c =
        cmn_csv_open(name, CMN_CLASSES, &(struct cmn_log_resume){.iteration = first});

    assert_non_null(c);
    for (; *iteration; iteration++) {
        struct cmn_row row = row_at(*iteration);
        cmn_csv_row(c, &row);
    }
    cmn_csv_close(c);
}

#define REST ",0.25,,0.75,,1e-05,1234.568,2,0.5,0.25,0.125\r\n"

static void one_line_a_row(void **state)
{
    char *name = nets_file("epoch,iteration,and an old log, of which nothing stays");
    const long iterations[] = {10, 20, 0};

    (void)state;
    write_rows(name, 0, iterations);
    assert_text(name, HEADING "0.5,10" REST "0.5,20" REST);
    unlink(name);
    free(name);
}

static void nan_and_infinity_have_words(void **state)
{
    char *name = nets_file("");
    struct cmn_csv *c = cmn_csv_open(name, CMN_NO_ANSWER, &nothing);
    struct cmn_row row = row_at(1);

    (void)state;
    assert_non_null(c);
    row.loss = -(double)strtof("nan", NULL);
    row.lr = (double)strtof("inf", NULL);
    cmn_csv_row(c, &row);
    cmn_csv_close(c);
    assert_text(name, "epoch,iteration,main/loss,lr,images/s,elapsed_time,share/compute,"
                      "share/exchange,share/load\r\n0.5,1,nan,inf,1234.568,2,0.5,0.25,0.125\r\n");
    unlink(name);
    free(name);
}

static void goes_on_after_the_iteration(void **state)
{
    char *name = nets_file("");
    const long before[] = {10, 20, 21, 0}, after[] = {25, 0};
    FILE *file;

    (void)state;
    write_rows(name, 0, before);
    /* A line that a crash of the machine has cut off. */
    file = fopen(name, "a");
    fputs("0.5,4", file);
    fclose(file);
    write_rows(name, 20, after);
    assert_text(name, HEADING "0.5,10" REST "0.5,20" REST "0.5,25" REST);
    write_rows(name, 1000, before);
    assert_text(name, HEADING "0.5,10" REST "0.5,20" REST "0.5,25" REST "0.5,10" REST "0.5,20" REST
                              "0.5,21" REST);
    unlink(name);
    free(name);
}

/* Half a line at the end stays neither. */
static void drops_half_a_line(void **state)
{
    char *name = nets_file(HEADING "0.5,10" REST "0.5,15,0.2");
    const long after[] = {25, 0};

    (void)state;
    write_rows(name, 20, after);
    assert_text(name, HEADING "0.5,10" REST "0.5,25" REST);
    unlink(name);
    free(name);
}

static void leaves_other_files_alone(void **state)
{
    const char *const others[] = {"a,b\r\n1,2\r\n", "[\n{\"iteration\":1}\n]\n"};

    (void)state;
    for (size_t i = 0; i < COUNT(others); i++) {
        char *name = nets_file(others[i]);
        assert_null(cmn_csv_open(name, CMN_CLASSES, &(struct cmn_log_resume){.iteration = 20}));
        check_contains(cmn_reason(), name);
        check_contains(cmn_reason(), "another name");
        assert_text(name, others[i]);
        unlink(name);
        free(name);
    }
}

static void says_why_it_cannot(void **state)
{
    char *file = nets_file("a file, not a folder");
    char name[4200];

    (void)state;
    snprintf(name, sizeof name, "%s/rows.csv", file);
    assert_null(cmn_csv_open(name, CMN_CLASSES, &nothing));
    check_contains(cmn_reason(), name);
    check_contains(cmn_reason(), "Not a directory");
    assert_null(cmn_csv_open("/dev/full", CMN_CLASSES, &nothing));
    check_contains(cmn_reason(), "/dev/full");
    unlink(file);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line_a_row),
        cmocka_unit_test(nan_and_infinity_have_words),
        cmocka_unit_test(goes_on_after_the_iteration),
        cmocka_unit_test(drops_half_a_line),
        cmocka_unit_test(leaves_other_files_alone),
        cmocka_unit_test(says_why_it_cannot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
