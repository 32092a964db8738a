/* The JSON log of a training that resumes: which rows stay, and which files are logs. */
#include "folder.h"

#include "report/json_log.h"

#define ROW(epoch, iteration) "{\"epoch\":" #epoch ",\"iteration\":" #iteration "}"
#define TWO "[\n" ROW(1, 5) ",\n" ROW(2, 10) "\n]\n"
#define ONE "[\n" ROW(1, 5) "\n]\n"
#define NONE "[\n]\n"
#define TORN(kept, of) kept " of " of " whole rows are kept"

static const struct {
    const char *before;
    struct cmn_log_resume resume;
    const char *after, *said; /* "" or a part of the warning */
} logs[] = {
    {"", {10, 2, 1}, NONE, ""},
    {TWO, {0, 0, 0}, NONE, ""},
    {TWO, {10, 0, 0}, TWO, ""},
    {TWO, {9, 0, 0}, ONE, ""},
    {TWO, {5, 1, 1}, ONE, ""},
    {TWO, {4, 0, 0}, NONE, ""},
    {"[" ROW(1, 5) "," ROW(2, 10) "]", {5, 0, 0}, "[" ROW(1, 5) "\n]\n", ""},
    {" [ " ROW(1, 5) " , " ROW(2, 10) " ] ",
     {10, 0, 0},
     " [ " ROW(1, 5) " , " ROW(2, 10) "\n]\n",
     ""},
    {NONE, {10, 0, 0}, NONE, ""},
    /* Counted anew on other ranks: epochs order the rows, of the same list, and what is before a row
     * that stays stays, too. */
    {"[\n" ROW(1, 50) ",\n" ROW(2, 10) "\n]\n",
     {10, 2, 1},
     "[\n" ROW(1, 50) ",\n" ROW(2, 10) "\n]\n",
     ""},
    {"[\n" ROW(1, 50) ",\n" ROW(2, 60) "\n]\n", {10, 1.5, 1}, "[\n" ROW(1, 50) "\n]\n", ""},
    {TWO, {10, 1, 1}, ONE, ""},
    {TWO, {10, 1, 0}, TWO, ""},
    {TWO, {9, 1, 0}, ONE, ""},
    /* A full disk, or a kill. */
    {"[\n" ROW(1, 5) ",\n{\"epo", {10, 0, 0}, ONE, TORN("1", "1")},
    {"[\n" ROW(1, 5) ",\n" ROW(2, 10), {10, 0, 0}, TWO, TORN("2", "2")},
    {"[\n" ROW(1, 5) ",\n" ROW(2, 10), {9, 0, 0}, ONE, TORN("1", "2")},
    {"[\n" ROW(1, 5) "\n" ROW(2, 10) "\n]\n", {10, 0, 0}, ONE, TORN("1", "1")},
    {ONE "x", {5, 0, 0}, ONE, TORN("1", "1")},
    {"[\n{\"epoch\":1", {5, 0, 0}, NONE, TORN("0", "0")},
};

static int count(void *to, const struct cmn_row *row)
{
    assert_true(row->iteration > 0);
    ++*(int *)to;
    return 0;
}

/* And the next row stands behind them. */
TEST(rows_that_stay)
{
    const struct cmn_row row = {.epoch = 7, .iteration = 70};
    const struct cmn_straggler nobody = {.rank = -1};

    for (size_t i = 0; i < COUNT(logs); i++) {
        char *name = file_of("log", logs[i].before);
        int rows = 0, now = 0;
        struct cmn_json_log *j;
        const char *said;
        check_listen();
        j = cmn_json_log_open(name, &logs[i].resume);
        said = check_said();
        assert_non_null(j);
        check_contains(said, logs[i].said);
        assert_int_equal(said[0] != '\0', logs[i].said[0] != '\0');
        assert_string_equal(text_of(name), logs[i].after);
        assert_int_equal(cmn_json_log_read(name, count, &rows), 0);
        cmn_json_log_row(j, &row, &nobody);
        assert_int_equal(cmn_json_log_read(name, count, &now), 0);
        assert_int_equal(now, rows + 1);
        assert_int_equal(cmn_json_log_close(j), 0);
    }
    assert_int_equal(cmn_json_log_close(NULL), 0);
}

TEST(files_that_are_logs)
{
    static const char *const are[] = {"", " \n", "[", "[{\"ep", "[]", " [ ] ", NONE, ONE, ONE "x"},
                             *const are_not[] = {"{}",  "text", "[1]",    "[{\"a\":1}]", "[] x",
                                                 "[x]", "]",    "[null]", "[{\"epoch\"x"};

    for (size_t i = 0; i < COUNT(are); i++) {
        assert_int_equal(cmn_json_log_replaceable(file_of("log", are[i])), 0);
    }
    for (size_t i = 0; i < COUNT(are_not); i++) {
        char *name = file_of("log", are_not[i]);
        int rows = 0;
        assert_fails(cmn_json_log_replaceable(name) == -1,
                     "/log: the file is no JSON log, and would be overwritten");
        assert_null(cmn_json_log_open(name, &(struct cmn_log_resume){0}));
        assert_string_equal(text_of(name), are_not[i]);
        assert_fails(cmn_json_log_read(name, count, &rows) == -1,
                     "/log: cannot be read as a JSON log of a training");
    }
    assert_int_equal(cmn_json_log_replaceable("/dev/null"), 0);
    assert_int_equal(cmn_json_log_replaceable(in_folder("none")), 0);
    assert_fails(!cmn_json_log_open(in_folder("log/x"), &(struct cmn_log_resume){0}),
                 "/log/x: Not a directory");
}

/* Of two trainings; what an earlier attempt of the same cmn-run has left does not count. */
TEST(one_training_at_a_time)
{
    char *name = in_folder("log");
    struct cmn_json_log *first = cmn_json_log_open(name, &(struct cmn_log_resume){0}), *second;

    assert_fails(!cmn_json_log_open(name, &(struct cmn_log_resume){0}),
                 "/log: another training writes it");
    setenv("OMPI_CMN_ATTEMPT", "1", 1);
    assert_null(cmn_json_log_open(name, &(struct cmn_log_resume){0}));
    setenv("OMPI_CMN_ATTEMPT", "2", 1);
    second = cmn_json_log_open(name, &(struct cmn_log_resume){0});
    unsetenv("OMPI_CMN_ATTEMPT");
    assert_non_null(second);
    cmn_json_log_close(first);
    cmn_json_log_close(second);
}

TESTS(make_folder, remove_folder)
