#include "folder.h"

#include "base/timeline.h"
#include "report/trace_file.h"
#include "threads.h"

/* What was noted; valid until the next call. */
static struct cmn_event *noted;
static size_t n, lost;

static const struct cmn_event *copied(void)
{
    free(noted);
    noted = cmn_timeline_copy(&n, &lost);
    assert_non_null(noted);
    return noted;
}

TEST(off_at_first)
{
    assert_int_equal(cmn_timeline_on, 0);
    cmn_timeline_span(CMN_SPAN_LOAD, -1, 1, 2);
    cmn_timeline_open(4);
    assert_int_equal(cmn_timeline_on, 1);
    copied();
    assert_int_equal(n, 0);
    assert_int_equal(lost, 0);
    cmn_timeline_close();
    assert_int_equal(cmn_timeline_on, 0);
    cmn_timeline_span(CMN_SPAN_LOAD, -1, 1, 2);
}

TEST(spans_as_noted)
{
    const struct cmn_event *e;

    cmn_timeline_open(8);
    cmn_timeline_span(CMN_SPAN_FORWARD, 3, 1.5, 1.75);
    cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, 2, 2.5);
    cmn_timeline_span(CMN_SPAN_EXCHANGE, 0, 2, 2.5);
    e = copied();
    assert_int_equal(n, 3);
    assert_true(e[0].what == CMN_SPAN_FORWARD && e[0].number == 3 && !e[0].background);
    assert_true(e[0].begin == 1500000000 && e[0].end == 1750000000);
    assert_true(e[1].what == CMN_SPAN_EXCHANGE && e[1].number == -1 && !e[1].background);
    assert_true(e[2].what == CMN_SPAN_EXCHANGE && e[2].number == 0 && e[2].background);
    cmn_timeline_close();
}

TEST(keeps_the_latest)
{
    const struct cmn_event *e;

    cmn_timeline_open(5);
    for (int i = 0; i < 23; i++) {
        cmn_timeline_span(CMN_SPAN_STEP, i, i, i + 1);
        e = copied();
        assert_int_equal(n, i < 5 ? i + 1 : 5);
        assert_int_equal(lost, i < 5 ? 0 : i - 4);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(e[k].number, (int)(lost + k));
        }
    }
    cmn_timeline_close();
}

enum { THREADS = 4, EACH = 200000 };

static void note_many(int thread)
{
    for (int i = 0; i < EACH; i++) {
        cmn_timeline_span(CMN_SPAN_ENCODE, thread * EACH + i, i, i + 1);
    }
}

TEST(threads)
{
    static char seen[THREADS * EACH];
    const struct cmn_event *e;

    cmn_timeline_open(THREADS * EACH);
    in_threads(THREADS, note_many);
    e = copied();
    assert_int_equal(n, THREADS * EACH);
    for (size_t i = 0; i < n; i++) {
        if (!e[i].background || e[i].end - e[i].begin != 1000000000 || seen[e[i].number]++) {
            fail_msg("span %zu of %zu is broken", i, n);
        }
    }
    cmn_timeline_close();
}

/* ---- events ---- */

static struct cmn_event event(int what, int number, int begin, int end)
{
    return (struct cmn_event){begin, end, number, (int16_t)what, what == CMN_SPAN_EXCHANGE};
}

TEST(whole_steps)
{
    static struct cmn_event e[64];
    size_t kept;

    n = 0;
    assert_int_equal(cmn_trace_first_step(e, 0, 0, 5), -1);
    for (int i = 0; i < 10; i++) {
        e[n++] = event(CMN_SPAN_LOAD, -1, 10 * i, 10 * i + 4);
        e[n++] = event(CMN_SPAN_FORWARD, 0, 10 * i + 4, 10 * i + 8);
        e[n++] = event(CMN_SPAN_STEP, 100 + i, 10 * i, 10 * i + 8);
    }
    e[n++] = event(CMN_SPAN_VALIDATE, -1, 100, 120);
    assert_int_equal(cmn_trace_first_step(e, n, 0, 1000), 100);
    assert_int_equal(cmn_trace_first_step(e, n, 0, 3), 107);
    assert_int_equal(cmn_trace_first_step(e, n, 0, 1), 109);
    /* Of the first step something may be missing once spans were lost. */
    assert_int_equal(cmn_trace_first_step(e, n, 1, 1000), 101);
    assert_int_equal(cmn_trace_first_step(e + 1, n - 1, 1, 1000), 101);
    assert_int_equal(cmn_trace_first_step(e + 3, n - 3, 3, 1000), 102);
    assert_int_equal(cmn_trace_first_step(e + n - 1, 1, n - 1, 1000), -1);
    kept = cmn_trace_from_step(e, n, 108);
    assert_int_equal(kept, 7);
    assert_true(e[0].what == CMN_SPAN_LOAD && e[0].begin == 80 && e[6].what == CMN_SPAN_VALIDATE);
    assert_int_equal(cmn_trace_from_step(e, kept, 5), kept); /* no such step */
}

TEST(tracks)
{
    struct cmn_event e[] = {
        event(CMN_SPAN_EXCHANGE, 0, 10, 30), event(CMN_SPAN_BACKWARD, 0, 0, 15),
        event(CMN_SPAN_EXCHANGE, 1, 20, 40), event(CMN_SPAN_STEP, 1, 0, 60),
        event(CMN_SPAN_EXCHANGE, 2, 25, 26), event(CMN_SPAN_EXCHANGE, 3, 30, 50),
        event(CMN_SPAN_EXCHANGE, 4, 45, 60),
    };
    const int want[] = {1, 2, 3, 1, 2}; /* of the exchanges */
    int64_t last = 0;
    int step = -1;

    assert_int_equal(cmn_trace_tracks(e, COUNT(e)), 3);
    for (size_t i = 0; i < COUNT(e); i++) {
        assert_true(e[i].begin >= last);
        last = e[i].begin;
        assert_int_equal(e[i].background, e[i].what == CMN_SPAN_EXCHANGE ? want[e[i].number] : 0);
        step = e[i].what == CMN_SPAN_STEP ? (int)i : step;
    }
    assert_int_equal(step, 0); /* before what lies within it */
    assert_int_equal(cmn_trace_tracks(e, 0), 0);
}

TEST(more_tracks_than_there_are)
{
    static struct cmn_event e[1000];

    for (int i = 0; i < 1000; i++) {
        e[i] = event(CMN_SPAN_EXCHANGE, i, i, 5000);
    }
    assert_int_equal(cmn_trace_tracks(e, 1000), 256);
    for (int i = 0; i < 1000; i++) {
        assert_true(e[i].background >= 1 && e[i].background <= 256);
    }
}

/* ---- the file ---- */

/* A trace of ours, which may be replaced. */
static const char old[] =
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"darknet-cmn 0\"}}";

TEST(replaces_the_old_file_when_complete)
{
    static const char *const layers[] = {"convolutional", "softmax", "none"};
    struct cmn_event e[] = {
        event(CMN_SPAN_BACKWARD, 1, 1500, 1000000), event(CMN_SPAN_LOAD, -1, 900, 990),
        event(CMN_SPAN_FORWARD, 0, 1000, 2000), event(CMN_SPAN_FORWARD, 2, 2000, 3000)};
    const struct cmn_trace_rank rank = {
        .rank = 7, .node = 1, .host = "a\"b\\c\n", .clock = {5, -0.25, 12e-6}, .events = COUNT(e)};
    struct cmn_trace_file f;
    char *name = file_of("x", old), *text;
    const struct cmn_trace_about about = {name, layers, 2, 1e-6};

    for (int breaks_off = 1; breaks_off >= 0; breaks_off--) {
        assert_int_equal(cmn_trace_file_open(&f, &about), 0);
        check_alone(name);
        assert_int_equal(cmn_trace_file_begin(&f, "\"ranks\":1"), 0);
        if (breaks_off) {
            cmn_trace_file_close(&f);
            check_alone(name);
        }
    }
    cmn_trace_file_rank(&f, &rank, e);
    assert_string_equal(text_of(name), old);
    assert_int_equal(cmn_trace_file_end(&f), 0);
    text = text_of(name);
    check_contains(text, "\"rank 7@a?b?c?\"");
    check_contains(text, "{\"labels\":\"clock -0.250000 s, to 12 us\",\"ahead\":-0.250000000}");
    check_contains(text, "{\"name\":\"backward 1 "
                         "softmax\",\"cat\":\"backward\",\"ph\":\"X\",\"ts\":0.500,\"dur\":998.499,"
                         "\"pid\":8,\"tid\":1,\"args\":{\"layer\":1}}");
    check_contains(text, "\"forward 0 convolutional\"");
    check_contains(text, "\"forward 2\"");
    check_contains(
        text,
        "\"load\",\"cat\":\"load\",\"ph\":\"X\",\"ts\":0.000,\"dur\":0.000,\"pid\":8,\"tid\":1}");
    check_alone(name);
    cmn_trace_file_close(&f);
}

TEST(says_why_it_cannot)
{
    struct cmn_trace_file f;
    char *name = file_of("x", old);
    char inside[4200];

    snprintf(inside, sizeof inside, "%s/trace.json", name);
    assert_fails(cmn_trace_file_open(&f, &(struct cmn_trace_about){.name = inside}) == -1, inside);
    check_contains(cmn_reason(), "Not a directory");
    cmn_trace_file_close(&f);
    assert_fails(cmn_trace_file_open(&f, &(struct cmn_trace_about){.name = "/dev/null"}) == -1,
                 "/dev/null");
    cmn_trace_file_close(&f);
    /* What is no trace of ours stays. */
    assert_int_equal(truncate(name, (off_t)strlen(old) - 20), 0);
    assert_fails(cmn_trace_file_open(&f, &(struct cmn_trace_about){.name = name}) == -1,
                 "what is there is no timeline of a training, and would be lost");
    cmn_trace_file_close(&f);
    assert_int_equal(truncate(name, 0), 0);
    /* The name is taken away later. */
    assert_int_equal(cmn_trace_file_open(&f, &(struct cmn_trace_about){.name = name}), 0);
    unlink(name);
    assert_int_equal(mkdir(name, 0777), 0);
    assert_int_equal(cmn_trace_file_begin(&f, ""), 0);
    assert_fails(cmn_trace_file_end(&f) == -1, "Is a directory");
    cmn_trace_file_close(&f);
    check_alone(name);
}

/* A full disk. */
TEST(says_that_it_could_not)
{
    struct cmn_trace_file f;
    char *name = file_of("x", old);

    if (access("/dev/full", W_OK)) {
        skip();
    }
    assert_int_equal(cmn_trace_file_open(&f, &(struct cmn_trace_about){.name = name}), 0);
    assert_int_equal(cmn_trace_file_begin(&f, ""), 0);
    assert_non_null(freopen("/dev/full", "w", f.draft.out));
    fprintf(f.draft.out, "%*s", 2 * BUFSIZ, ""); /* more than is written at once */
    assert_fails(cmn_trace_file_end(&f) == -1, "No space left");
    assert_string_equal(text_of(name), old);
    cmn_trace_file_close(&f);
}

TESTS(make_folder, remove_folder)
