#include "folder.h"

#include "data/labels.h"

static char file[300];

/* Writes the text to the file; a byte of 0 in it is written, too. */
static void write_text(const char *text, size_t n)
{
    FILE *out = fopen(file, "w");

    assert_int_equal(fwrite(text, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

TEST(blanks_marks_and_ends_of_lines)
{
    static const char text[] = "\xef\xbb\xbf"
                               "1 .5 .25 .125 1\r\n\n \t\n  -2\t0 1e-1 +.5 2 \n70 1 1 1 1";
    const struct cmn_label want[] = {
        {1, .5F, .25F, .125F, 1, 1}, {-2, 0, .1F, .5F, 2, 4}, {70, 1, 1, 1, 1, 5}};
    struct cmn_label *all;
    int n;

    write_text(text, sizeof text - 1);
    all = cmn_labels_read(file, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(all, want, sizeof want);
    free(all);
    write_text("", 0);
    all = cmn_labels_read(file, &n);
    assert_int_equal(n, 0);
    free(all);
}

TEST(many_boxes)
{
    enum { BOXES = 1000 };
    static char text[BOXES * 32];
    struct cmn_label *all;
    size_t used = 0;
    int n;

    for (int i = 0; i < BOXES; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%d .5 .5 .1 .1\n", i);
    }
    write_text(text, used);
    all = cmn_labels_read(file, &n);
    assert_int_equal(n, BOXES);
    assert_int_equal(all[BOXES - 1].class, BOXES - 1);
    free(all);
}

/* Lines that are no label, and what the reason says behind them. */
static const struct {
    const char *line, *says;
} bad[] = {
    {"1 .5 .5 .3", ""},
    {"1 .5 .5 .3 .3 .9", "six numbers"},
    {"1 0.23 0.26 0.53 0.26 0.53 0.56 0.23 0.56", "polygon"},
    {"1 .5 .5 .3 .3 1 .5 .5 .3 .3", ""},
    {"1.0 .5 .5 .3 .3", "the class is its number"},
    {"dog .5 .5 .3 .3", "the class is its number"},
    {"0 0,5 0,5 0,3 0,3", "no comma"},
    {"0,.5,.5,.3,.3", "no comma"},
    {"0 nan .5 .3 .3", ""},
    {"0 .5 inf .3 .3", ""},
    {"0 .5 .5 1e39 .3", ""},
    {"0 .5 .5 .3 .3x", ""},
    {"0 .5 .5 .3.3", ""},
    {"99999999999 .5 .5 .3 .3", ""},
    {"16777217 .5 .5 .3 .3", ""},
    {"0 .5 .5 .3 .3\r0 .5 .5 .3 .3", ""},
    {"#comment", ""},
};

TEST(what_is_no_label)
{
    char text[256], want[400];

    for (size_t i = 0; i < COUNT(bad); i++) {
        struct cmn_labels l;
        struct cmn_label label;
        int n = snprintf(text, sizeof text, "2 .5 .5 .3 .3\n%s\n3 .5 .5 .3 .3\n", bad[i].line);
        write_text(text, (size_t)n);
        assert_int_equal(cmn_labels_open(&l, file), 0);
        assert_int_equal(cmn_labels_next(&l, &label), 1);
        snprintf(want, sizeof want, "%s:2: not a class and four numbers: %.10s", file, bad[i].line);
        assert_fails(cmn_labels_next(&l, &label) == -1, want);
        check_contains(cmn_reason(), bad[i].says);
        assert_int_equal(strchr(cmn_reason(), '(') != NULL, bad[i].says[0] != '\0');
        assert_int_equal(cmn_labels_next(&l, &label), 1);
        assert_int_equal(label.class, 3);
        assert_int_equal(cmn_labels_next(&l, &label), 0);
        cmn_labels_close(&l);
    }
}

TEST(a_byte_of_zero_hides_nothing)
{
    static const char text[] = "1 .5 .5 .3 .3\0 9 9\n";
    struct cmn_labels l;
    struct cmn_label label;

    write_text(text, sizeof text - 1);
    assert_int_equal(cmn_labels_open(&l, file), 0);
    assert_int_equal(cmn_labels_next(&l, &label), -1);
    cmn_labels_close(&l);
    unlink(file);
    assert_int_not_equal(cmn_labels_open(&l, file), 0);
}

TEST(what_cannot_be_read_is_not_its_end)
{
    struct cmn_labels l;
    struct cmn_label label;

    assert_int_equal(cmn_labels_open(&l, "/tmp"), 0);
    assert_int_equal(cmn_labels_next(&l, &label), -1);
    assert_true(l.failed);
    assert_string_equal(cmn_reason(), "/tmp: Is a directory");
    cmn_labels_close(&l);
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(cmn_labels_open(&l, file), 0);
    assert_int_equal(cmn_labels_next(&l, &label), -1);
    assert_true(l.failed && strstr(cmn_reason(), "labels.txt: not a file"));
    cmn_labels_close(&l);
}

static void name_file(void)
{
    make_folder();
    snprintf(file, sizeof file, "%s", in_folder("labels.txt"));
}

TESTS(name_file, remove_folder)
