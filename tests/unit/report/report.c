#include "folder.h"

#include <cjson/cJSON.h>
#include <math.h>

#include "report/json_log.h"
#include "report/report.h"
#include "report/table.h"

static const char *const names[] = {
    "epoch",
    "iteration",
    "main/loss",
    "validation/main/loss",
    "main/accuracy",
    "validation/main/accuracy",
    "lr",
    "images/s",
    "elapsed_time",
};

/* What `full` shows in these columns, and the log has under these names. */
static const char *const shown[] = {"2.00",   "1200", "0.012346", "0.065432", "0.9876",
                                    "0.9753", "0.05", "12345",    "61.2"};
static const double logged[] = {2, 1200, 0.0123456, 0.0654321, 0.9876, 0.9753, 0.05, 12345, 61.2};

static const struct cmn_row full = {
    .epoch = 2,
    .iteration = 1200,
    .loss = 0.0123456,
    .accuracy = 0.9876,
    .validation_loss = 0.0654321,
    .validation_accuracy = 0.9753,
    .validation_map = -1,
    .validation_map95 = -1,
    .lr = 0.05,
    .images_per_s = 12345,
    .elapsed = 61.2,
    .compute = 0.7,
    .exchange = 0.2,
    .load = 0.1,
};

static const struct cmn_straggler nobody = {.rank = -1};

/* The table's heading (row NULL) or a row's line. The caller frees it. */
static char *line(enum cmn_answer answer, const struct cmn_row *row)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    if (row) {
        cmn_table_row(out, answer, row);
    } else {
        cmn_table_heading(out, answer);
    }
    assert_int_equal(fclose(out), 0);
    assert_true(bytes > 0 && text[bytes - 1] == '\n' && !memchr(text, '\n', bytes - 1));
    text[bytes - 1] = '\0';
    return text;
}

static struct cmn_row bare(void)
{
    struct cmn_row row = full;

    row.accuracy = -1;
    row.validation_loss = -1;
    row.validation_accuracy = -1;
    return row;
}

/* Every cell begins under its heading. */
TEST(table_columns_line_up)
{
    char *heading = line(CMN_CLASSES, NULL), *row = line(CMN_CLASSES, &full);

    for (size_t i = 0; i < COUNT(names); i++) {
        char name[64];
        const char *at;
        size_t column, length = strlen(shown[i]);
        /* With blanks around it: "main/loss" also ends "validation/main/loss". */
        snprintf(name, sizeof name, "%s%s ", i ? " " : "", names[i]);
        at = strstr(heading, name);
        assert_non_null(at);
        column = (size_t)(at - heading) + (i ? 1 : 0);
        assert_int_equal(strncmp(row + column, shown[i], length), 0);
        assert_true(row[column + length] == ' ' || row[column + length] == '\0');
    }
    free(heading);
    free(row);
}

TEST(table_leaves_unknown_cells_blank)
{
    struct cmn_row row = bare();
    char *text = line(CMN_CLASSES, &row), word[64];
    int words = 0, used, at = 0;

    while (sscanf(text + at, "%63s%n", word, &used) == 1) {
        words++;
        at += used;
    }
    assert_int_equal(words, 6);
    assert_null(strstr(text, "-1"));
    free(text);
}

/* A command's columns stay the same in all rows, and are those that say something about it. */
TEST(table_shows_what_the_command_has)
{
    static const struct {
        enum cmn_answer answer;
        const char *has[2], *not [3]; /* in its heading or in its row */
    } of[] = {
        {CMN_BOXES,
         {" validation/main/map ", " validation/main/map50_95 "},
         {"accuracy", "validation/main/loss", "0.9753"}},
        {CMN_BOXES, {" 0.8125 ", " 0.3750 "}, {"0.9753", "0.065", "-1"}},
        {CMN_CLASSES, {" main/loss ", " 0.9753 "}, {"map", "0.8125", "-1"}},
        {CMN_NO_ANSWER, {" main/loss ", "0.012346"}, {"validation", "accuracy", "0.8125"}},
    };
    struct cmn_row row = full;

    row.validation_map = 0.8125;
    row.validation_map95 = 0.375;
    for (size_t i = 0; i < COUNT(of); i++) {
        char *heading = line(of[i].answer, NULL), *cells = line(of[i].answer, &row), both[1024];
        snprintf(both, sizeof both, "%s %s ", heading, cells);
        check_contains(both, of[i].has[0]);
        check_contains(both, of[i].has[1]);
        for (int k = 0; k < 3; k++) {
            assert_null(strstr(both, of[i].not [k]));
        }
        free(heading);
        free(cells);
    }
}

/* What a row holds by chance, and its command does not count, reaches no file. */
TEST(rows_are_cut_to_their_command)
{
    struct cmn_row row = cmn_row_for(&full, CMN_BOXES);

    assert_true(row.accuracy < 0 && row.validation_accuracy < 0 && row.validation_loss < 0);
    assert_true(row.validation_map == full.validation_map && row.loss == full.loss);
    row = cmn_row_for(&full, CMN_CLASSES);
    assert_true(row.accuracy == full.accuracy && row.validation_map < 0 &&
                row.validation_map95 < 0);
    assert_true(row.iteration == full.iteration);
}

/* Numbers too long for their column lose no digit. */
TEST(table_holds_long_numbers)
{
    struct cmn_row row = full;
    char *text;

    row.images_per_s = 1e30;
    row.iteration = 2000000000L;
    text = line(CMN_CLASSES, &row);
    check_contains(text, " 2000000000 ");
    check_contains(text, " 1000000000000000019884624838656 ");
    free(text);
}

TEST(durations_are_readable)
{
    const struct {
        double seconds;
        const char *text;
    } want[] = {
        {0, "0:00"},          {7.9, "0:07"},
        {61, "1:01"},         {3599, "59:59"},
        {3723, "1:02:03"},    {86399, "23:59:59"},
        {86400, "1 d 00:00"}, {3 * 86400 + 4 * 3600 + 5 * 60 + 59, "3 d 04:05"},
        {-1, "0:00"},         {INFINITY, "0:00"},
        {NAN, "0:00"},
    };
    char text[64];

    for (size_t i = 0; i < COUNT(want); i++) {
        cmn_duration(want[i].seconds, text, sizeof text);
        assert_string_equal(text, want[i].text);
    }
}

/* What the file holds, of so many rows; the caller deletes it. */
static cJSON *read_back(const char *name, int rows)
{
    cJSON *json = cJSON_Parse(text_of(name));

    assert_non_null(json);
    assert_int_equal(cJSON_GetArraySize(json), rows);
    return json;
}

static struct cmn_json_log *open_log(const char *name)
{
    struct cmn_json_log *j = cmn_json_log_open(name, &(struct cmn_log_resume){0});

    assert_done(j);
    return j;
}

static void assert_number(const cJSON *object, const char *name, double value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    if (!cJSON_IsNumber(item) || fabs(item->valuedouble - value) > 1e-6) {
        fail_msg("%s is not %.9g", name, value);
    }
}

TEST(json_round_trip)
{
    /* A plot takes what is there: keys without a value are absent, not null or -1. */
    static const char *const absent[] = {"main/accuracy", "validation/main/loss",
                                         "validation/main/accuracy"};
    char *name = file_of("x", "[\n{\"epoch\":1,\"iteration\":7}\n]\n");
    struct cmn_json_log *j = open_log(name);
    struct cmn_row second = bare();
    cJSON *json;

    cmn_json_log_row(j, &full, &nobody);
    json = read_back(name, 1);
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_number(cJSON_GetArrayItem(json, 0), names[i], logged[i]);
    }
    cJSON_Delete(json);
    second.iteration = 1300;
    second.validation_map = 0.25;
    second.validation_map95 = 0.125;
    cmn_json_log_row(j, &second, &nobody);
    json = read_back(name, 2);
    assert_number(cJSON_GetArrayItem(json, 0), "iteration", 1200);
    assert_number(cJSON_GetArrayItem(json, 1), "iteration", 1300);
    assert_number(cJSON_GetArrayItem(json, 1), "validation/main/map", 0.25);
    assert_number(cJSON_GetArrayItem(json, 1), "validation/main/map50_95", 0.125);
    for (size_t i = 0; i < COUNT(absent); i++) {
        assert_null(cJSON_GetObjectItem(cJSON_GetArrayItem(json, 1), absent[i]));
    }
    cJSON_Delete(json);
    cmn_json_log_close(j);
    check_alone(name);
}

/* A full disk takes no part of a row, wherever it ends within one. The last row is tried again,
 * with the next one or at the end; the others are dropped, and so is that one while the disk is
 * full. All that are lost are counted. */
TEST(a_row_is_tried_twice)
{
    char *name = file_of("x", ""), text[4200];

    for (off_t part = 0; part < 60; part += 7) {
        struct cmn_json_log *j = open_log(name);
        struct cmn_row row = full;
        int rows = 0, drops = part % 3 > 0, stays_full = part == 28;
        cJSON *json;
        for (row.iteration = 1; row.iteration <= 2; row.iteration++) {
            cmn_json_log_row(j, &row, &nobody);
        }
        assert_int_equal(cmn_json_log_sync(j), 0);
        limit_files(size_of(name) + part);
        for (; row.iteration <= (drops ? 5 : 3); row.iteration++) {
            cmn_json_log_row(j, &row, &nobody);
            cJSON_Delete(read_back(name, 2));
        }
        limit_files(stays_full ? size_of(name) + part : 0);
        for (; part % 2 && row.iteration <= 6; row.iteration++) {
            cmn_json_log_row(j, &row, &nobody);
        }
        snprintf(text, sizeof text, "JSON log %s: No space left on device: %d rows are lost", name,
                 2 + stays_full);
        assert_int_equal(cmn_json_log_close(j), drops ? -1 : 0);
        limit_files(0);
        assert_true(!drops || !strcmp(cmn_reason(), text));
        json = read_back(name, (int)row.iteration - 1 - 2 * drops - stays_full);
        for (long i = 1; i < row.iteration; i++) {
            if (!drops || i < 3 || (i > 4 && !stays_full)) {
                assert_number(cJSON_GetArrayItem(json, rows++), "iteration", (double)i);
            }
        }
        cJSON_Delete(json);
    }
}

/* cmn_report=quiet: what Darknet prints is lost, and after the report is seen again. */
TEST(the_standard_output_comes_back)
{
    char *name = file_of("x", ""), *json = file_of("json", "");
    int saved = dup(STDOUT_FILENO);
    struct cmn_report_plan plan = {.mode = CMN_REPORT_QUIET,
                                   .json = json,
                                   .chart = "",
                                   .tensorboard = "",
                                   .graph = "",
                                   .timeline = ""};
    struct cmn_report *r;

    fflush(stdout);
    assert_non_null(freopen(name, "w", stdout));
    r = cmn_report_open(&plan);
    printf("lost\n");
    cmn_report_close(r);
    printf("seen\n");
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_string_equal(text_of(name), "seen\n");
}

TESTS(make_folder, remove_folder)
