#include "check.h"

#include "config/options.h"

/* One key: what cmn_options_print shows of its default, a good value, which it shows as it is, and
 * bad values. A key of the table that is missing here fails every_key_is_tested. */
struct key {
    const char *key, *shown, *good;
    const char *bad[6];
};

static const struct key keys[] = {
    {"cmn_communicator", "auto", "naive", {NULL}},
    {"cmn_compress",
     "off",
     "powersgd:64",
     {"", "powersgd:0", "powersgd:65", "powersgd:2.5", "powersgd:", "fp16:4"}},
    {"cmn_overlap", "auto", "off", {"", "0", "1", "yes"}},
    {"cmn_double_buffering", "off", "on", {"", "2", "yes"}},
    {"cmn_local_steps", "off", "8", {"", "0", "1000001", "8.5"}},
    {"cmn_timeout", "300", "5", {"", "0", "1000001", "5s"}},
    {"cmn_batch", "global", "per_rank", {"", "globe", "1", "global,", "per_rank, global"}},
    {"cmn_scale_lr", "off", "linear", {"", "1", "sqrt"}},
    {"cmn_lars", "off", "0.001", {"", "-1", "2", "nan", "on"}},
    {"cmn_clip", "off", "0.5", {"", "-1", "1000000001", "nan", "on", "1x"}},
    {"cmn_ema", "off", "0.9998", {"", "-1", "1", "nan", "on"}},
    {"cmn_sync_bn", "off", "on", {"", "2", "yes"}},
    {"cmn_exact", "off", "on", {"", "2", "yes"}},
    {"cmn_balance", "off", "auto", {"", "1", "on"}},
    {"cmn_mixed", "off", "auto", {"", "1", "on", "fp16"}},
    {"cmn_epochs", "off", "3", {"", "-1", "1000001", "x", "1.5", "99999999999999999999"}},
    {"cmn_scatter", "global", "none", {"", "glob", "Global", "shards"}},
    {"cmn_data", "shared", "scatter", {"", "local", "owners"}},
    {"cmn_seed", "auto", "2147483647", {"", "-2", "2147483648", "0x7", "7 "}},
    {"cmn_validate", "1", "off", {"", "-1", "yes", "1000001"}},
    {"cmn_patience", "off", "3", {"", "-1", "1.5", "1000001"}},
    {"cmn_report", "table", "quiet", {"", "loud", "tables"}},
    {"cmn_report_every", "auto", "100", {"", "-1", "often"}},
    {"cmn_json", "", "log.json", {"on", "off"}},
    {"cmn_chart", "", "chart.png", {"on"}},
    {"cmn_tensorboard", "", "runs", {"on"}},
    {"cmn_graph", "", "cg.dot", {"on"}},
    {"cmn_rank_logs", "", "folder", {"on"}},
    {"cmn_timeline", "", "trace.json:5", {"on", "t:0", "t:1000001", "t:99999999999999999999"}},
    {"cmn_cache_mb", "auto", "0", {"", "-2", "1G", "16777217"}},
    {"cmn_cache_dir", "", "/scratch", {"on"}},
    {"cmn_verify", "1000", "1", {"", "-1", "all"}},
    {"cmn_nonfinite", "stop", "skip", {"", "0", "nan"}},
    {"cmn_checkpoint", "off", "100", {"", "-1", "1.5", "on"}},
};

static struct cmn_options o;

static void take_defaults(void)
{
    memset(&o, 0x55, sizeof o);
    cmn_options_default(&o);
}

static void set(const char *key, const char *value, int command_line)
{
    assert_done(!cmn_options_set(&o, key, value, command_line));
}

static void assert_shown(const char *key, const char *value)
{
    char text[8192], line[256];

    cmn_options_print(&o, text, sizeof text);
    snprintf(line, sizeof line, "%s = %s\n", key, value);
    check_contains(text, line);
}

/* The row of a key in the table. */
static struct cmn_option_row row_of(const char *key)
{
    struct cmn_option_row row = {.key = NULL};

    for (int i = 0; i < cmn_options_count() && (!row.key || strcmp(row.key, key)); i++) {
        cmn_options_row(i, &row);
    }
    assert_string_equal(row.key, key);
    return row;
}

TEST(every_key_is_tested)
{
    assert_int_equal(cmn_options_count(), COUNT(keys));
    for (size_t i = 0; i < COUNT(keys); i++) {
        struct cmn_option_row row = row_of(keys[i].key);
        assert_int_equal(strncmp(row.key, "cmn_", 4), 0);
        assert_true(strlen(row.help) > 10 && strlen(row.range) > 3);
        assert_non_null(row.value);
    }
}

/* The default in the table, which help and docs show, must itself be a good value. */
TEST(defaults)
{
    for (int from_table = 0; from_table < 2; from_table++) {
        for (size_t i = 0; from_table && i < COUNT(keys); i++) {
            set(keys[i].key, row_of(keys[i].key).value, 0);
        }
        for (size_t i = 0; i < COUNT(keys); i++) {
            assert_shown(keys[i].key, keys[i].shown);
        }
    }
    assert_int_equal(o.batch, CMN_BATCH_GLOBAL);
    assert_int_equal(o.scatter, CMN_SCATTER_GLOBAL);
    assert_int_equal(o.report, CMN_REPORT_TABLE);
}

/* "0 to 1024 MiB, or auto": a number's unit stands behind its range. A seed has none. */
TEST(ranges_name_their_unit)
{
    struct cmn_option_row row;
    const char *unit;
    int numbers = 0;

    for (int i = 0; i < cmn_options_count(); i++) {
        cmn_options_row(i, &row);
        if (!strchr("0123456789", row.range[0]) || !strcmp(row.key, "cmn_seed")) {
            continue;
        }
        unit = strstr(row.range, " to ") + 4;
        unit += strspn(unit, "0123456789.");
        if (unit[0] != ' ' || strcspn(unit + 1, ",") < 3) {
            fail_msg("%s: the range \"%s\" names no unit", row.key, row.range);
        }
        numbers++;
    }
    assert_true(numbers >= 12);
}

TEST(groups_are_contiguous)
{
    const char *group[COUNT(keys)];
    struct cmn_option_row row;
    int n = 0;

    for (int i = 0; i < cmn_options_count(); i++) {
        cmn_options_row(i, &row);
        group[i] = row.group;
        n += !i || group[i] != group[i - 1];
        for (int j = 0; j < i; j++) {
            assert_true(group[j] != group[i] || group[i - 1] == group[i]);
        }
    }
    assert_int_equal(n, 5);
}

#define LIST ": `darknet cmn list` prints the keys"

/* Keys and values, on the command line or in my.cfg:7, and the whole reason of their refusal. */
static const struct {
    const char *key, *value, *why;
} refusals[] = {
    /* What all keys begin with makes no key near. */
    {"cmn_foo", "1", "command line: unknown key cmn_foo" LIST},
    {"cmn_sed", "1", "my.cfg:7: unknown key cmn_sed: did you mean cmn_seed?"},
    {"cmn_SEED", "1", "command line: unknown key cmn_SEED: did you mean cmn_seed?"},
    {"cmn_comunicator", "1",
     "command line: unknown key cmn_comunicator: did you mean cmn_communicator?"},
    /* Keys and values that are gone say what to use. */
    {"cmn_log", "logs", "command line: cmn_log is no longer a key: use cmn_rank_logs"},
    {"cmn_log", "logs", "my.cfg:7: cmn_log is no longer a key: use cmn_rank_logs"},
    {"cmn_outlier", "6", "command line: cmn_outlier is no longer a key: remove it"},
    {"cmn_best", "on",
     "command line: cmn_best is no longer a key: remove it, as NAME_best.weights is always kept"},
    {"cmn_compress", "topk",
     "my.cfg:7: cmn_compress=topk is no longer a value: use cmn_compress=powersgd"},
    {"cmn_seed", "x",
     "command line: cmn_seed=x: the value must be a whole number, 0 to 2147483647, or auto"},
    /* A word of one other key names that key. */
    {"cmn_overlap", "powersgd",
     "command line: cmn_overlap=powersgd: the value must be one of: auto, on, off; did you mean "
     "cmn_compress?"},
    {"cmn_compress", "auto", "command line: cmn_compress=auto: the value must be "},
    /* What starts with "off" in a range, and no other word. */
    {"cmn_nonfinite", "none", "command line: cmn_nonfinite=none: the value must be "},
    {"cmn_overlap", "none", "command line: cmn_overlap=none: the value must be "},
};

TEST(refusals_say_why)
{
    for (size_t i = 0; i < COUNT(refusals); i++) {
        const char *key = refusals[i].key, *value = refusals[i].value, *why = refusals[i].why;
        size_t n = strlen(why);
        assert_int_equal(why[0] == 'm' ? cmn_options_set_in_cfg(&o, key, value, "my.cfg:7")
                                       : cmn_options_set(&o, key, value, 1),
                         -1);
        if (strncmp(cmn_reason(), why, n) || (why[n - 1] != ' ' && cmn_reason()[n])) {
            fail_msg("%s=%s: %s, not %s", key, value, cmn_reason(), why);
        }
        assert_true(strcmp(value, "auto") || !strstr(cmn_reason(), "did you mean"));
    }
}

/* A number or a word, a switch in Darknet's way. */
TEST(other_spellings)
{
    static const struct {
        const char *key, *value, *shown;
    } old[] = {
        {"cmn_double_buffering", "1", "on"},
        {"cmn_local_steps", "1", "off"},
        {"cmn_lars", "0", "off"},
        {"cmn_clip", "0", "off"},
        {"cmn_seed", "-1", "auto"},
        {"cmn_cache_mb", "-1", "auto"},
        {"cmn_chart", "", ""},
    };

    for (size_t i = 0; i < COUNT(old); i++) {
        cmn_options_default(&o);
        set(old[i].key, old[i].value, 0);
        assert_shown(old[i].key, old[i].shown);
    }
}

TEST(good_values)
{
    for (int command_line = 0; command_line < 2; command_line++) {
        cmn_options_default(&o);
        for (size_t i = 0; i < COUNT(keys); i++) {
            set(keys[i].key, keys[i].good, command_line);
            assert_shown(keys[i].key, keys[i].good);
        }
    }
    assert_int_equal(o.batch, CMN_BATCH_PER_RANK);
    assert_int_equal(o.scatter, CMN_SCATTER_NONE);
    assert_int_equal(o.report, CMN_REPORT_QUIET);
    assert_int_equal(o.seed, 2147483647);
    assert_string_equal(o.json, "log.json");
}

TEST(bad_values)
{
    for (size_t i = 0; i < COUNT(keys); i++) {
        for (int j = 0; j < 6 && keys[i].bad[j]; j++) {
            if (cmn_options_set(&o, keys[i].key, keys[i].bad[j], 0) != -1) {
                fail_msg("%s=%s is accepted", keys[i].key, keys[i].bad[j]);
            }
            check_contains(cmn_reason(), keys[i].key);
            check_contains(cmn_reason(), keys[i].bad[j]);
            check_contains(cmn_reason(), "cfg: ");
            check_contains(cmn_reason(), row_of(keys[i].key).range);
            assert_shown(keys[i].key, keys[i].shown);
        }
    }
}

/* No file of this name: who wants one writes ./off. */
TEST(names_are_off)
{
    static const char *const key[] = {"cmn_chart",    "cmn_tensorboard", "cmn_graph",
                                      "cmn_timeline", "cmn_rank_logs",   "cmn_cache_dir"};

    for (size_t i = 0; i < COUNT(key); i++) {
        set(key[i], "./off", 0);
        assert_shown(key[i], "./off");
        set(key[i], "off", 0);
        assert_shown(key[i], "");
    }
}

TEST(a_timeline_has_a_file_and_steps)
{
    static const struct {
        const char *value, *file;
        long steps;
    } of[] = {{"a.json", "a.json", 100}, {"a:1", "a", 1},       {"a:b:1000000", "a:b", 1000000},
              {"a:", "a:", 100},         {":5", ":5", 100},     {"a:5x", "a:5x", 100},
              {"a:-5", "a:-5", 100},     {"5", "5", 100},       {"", "", 100},
              {"a:0", "a", 0},           {"a:1000001", "a", 0}, {"a:4294967301", "a", 0}};
    char file[CMN_TEXT];

    for (size_t i = 0; i < COUNT(of); i++) {
        assert_int_equal(cmn_options_timeline(of[i].value, file), of[i].steps);
        assert_string_equal(file, of[i].file);
    }
}

TEST(too_long_value)
{
    char text[CMN_TEXT + 1];

    memset(text, 'x', sizeof text);
    text[CMN_TEXT - 1] = '\0';
    set("cmn_json", text, 0);
    assert_string_equal(o.json, text);
    text[CMN_TEXT - 1] = 'x';
    text[CMN_TEXT] = '\0';
    assert_fails(cmn_options_set(&o, "cmn_json", text, 0) == -1, "cmn_json");
}

TEST(command_line_wins)
{
    set("cmn_communicator", "flat", 1);
    set("cmn_seed", "7", 1);
    set("cmn_communicator", "naive", 0);
    set("cmn_seed", "9", 0);
    set("cmn_batch", "per_rank", 0);
    assert_string_equal(o.communicator, "flat");
    assert_int_equal(o.seed, 7);
    assert_int_equal(o.batch, CMN_BATCH_PER_RANK);
    /* The later one on the command line wins over the earlier. */
    set("cmn_seed", "8", 1);
    assert_int_equal(o.seed, 8);
    /* Defaults forget what the command line had set. */
    cmn_options_default(&o);
    set("cmn_seed", "9", 0);
    assert_int_equal(o.seed, 9);
}

TEST(print_fits)
{
    char text[40];

    memset(text, 'x', sizeof text);
    assert_int_equal(cmn_options_print(&o, text, 32), -1);
    assert_non_null(memchr(text, '\0', 32));
    assert_memory_equal(text + 32, "xxxxxxxx", sizeof text - 32);
}

TESTS(take_defaults, NULL)
