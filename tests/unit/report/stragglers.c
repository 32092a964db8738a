#include "folder.h"

#include <math.h>

#include "report/json_log.h"

enum { COUNTED = 100, MOST = 64 };

/* Ranks of 100 steps; times are given in ms a step. */
static struct cmn_rank_times ranks[MOST];

static void set(int i, double compute, double load, double wait)
{
    snprintf(ranks[i].host, sizeof ranks[i].host, "node%d", i / 2);
    ranks[i].compute = compute * COUNTED / 1e3;
    ranks[i].load = load * COUNTED / 1e3;
    ranks[i].wait = wait * COUNTED / 1e3;
}

static struct cmn_straggler straggler(int n)
{
    struct cmn_straggler s;

    cmn_straggler_find(ranks, n, COUNTED, &s);
    return s;
}

/* Of `n` ranks all but `one` take these times; which of its times names that one, NULL: it is not. */
static const struct {
    int n;
    struct times {
        double compute, load, wait;
    } all;
    int one;
    struct times its;
    const char *by;
} cases[] = {
    {2, {10, 1, 9}, 1, {19, 1, .1}, "compute"},
    {2, {12, 1, 11}, 0, {10, 14, .2}, "load"},
    {1, {10, 1, 9}, 0, {10, 1, 9}, NULL},
    {5, {10, .5, 3}, 4, {11.9, .5, .1}, NULL}, /* less than a fifth more */
    {5, {10, .5, 3}, 4, {13.5, .5, .1}, "compute"},
    /* Less than a millisecond is noise, whatever part of the step it is. */
    {2, {.5, .1, 1}, 1, {1.4, .1, .1}, NULL},
    {2, {.5, .1, 1}, 1, {1.7, .1, 0}, "compute"},
    /* A rank that takes longer is no straggler where nobody waits for it: the link may bind all. */
    {4, {10, 1, 30}, 2, {15, 1, 30}, NULL},
    {4, {10, 1, 30}, 2, {15, 1, 27.6}, NULL},
    {4, {10, 1, 30}, 2, {15, 1, 27.4}, "compute"},
    /* What would be won is too little a part of the step. */
    {4, {10, 1, 140}, 2, {24, 1, 126}, NULL},
    {4, {10, 1, 140}, 2, {27, 1, 123}, "compute"},
};

TEST(one_of_some)
{
    for (size_t k = 0; k < COUNT(cases); k++) {
        const struct times *all = &cases[k].all, *its = &cases[k].its;
        const char *by = cases[k].by;
        int loads = by && !strcmp(by, "load");
        struct cmn_straggler s;
        for (int i = 0; i < cases[k].n; i++) {
            set(i, all->compute, all->load, all->wait);
        }
        set(cases[k].one, its->compute, its->load, its->wait);
        s = straggler(cases[k].n);
        if (s.rank != (by ? cases[k].one : -1) ||
            (by && (s.more || strcmp(s.by, by) ||
                    fabs(s.its - (loads ? its->load : its->compute)) > 1e-6 ||
                    fabs(s.usual - (loads ? all->load : all->compute)) > 1e-6))) {
            fail_msg("case %zu: rank %d and %d more by %s, %g where %g is usual", k, s.rank, s.more,
                     s.by, s.its, s.usual);
        }
        cmn_straggler_find(ranks, cases[k].n, 4, &s); /* too few steps */
        assert_true(s.rank == -1 && !s.uneven);
    }
}

/* Also where times differ a little. */
TEST(one_of_many)
{
    struct cmn_straggler s;

    for (int n = 3; n <= MOST; n++) {
        for (int i = 0; i < n; i++) {
            set(i, 10 + 0.01 * i, 0.5, 8 - 0.01 * i);
        }
        assert_int_equal(straggler(n).rank, -1);
        set(n / 2, 18, 0.5, 0.1);
        assert_int_equal(straggler(n).rank, n / 2);
        assert_int_equal(straggler(n).more, 0);
        assert_string_equal(straggler(n).by, "compute");
    }
    cmn_straggler_find(NULL, 0, 0, &s);
    assert_int_equal(s.rank, -1);
}

/* A slow node: half of the ranks are late, and the latest of them is named. */
TEST(half_of_them)
{
    struct cmn_straggler s;

    for (int i = 0; i < 8; i++) {
        set(i, i % 2 ? 20 + i : 10, 1, i % 2 ? 7 - i : 17);
    }
    s = straggler(8);
    assert_true(s.rank == 7 && s.more == 3 && s.its == 27 && s.usual == 10);
}

static const char *line(int n)
{
    static char text[512];
    struct cmn_straggler s = straggler(n);
    FILE *out = fmemopen(text, sizeof text, "w");

    assert_non_null(out);
    cmn_ranks_line(out, ranks, n, COUNTED, &s);
    assert_int_equal(fclose(out), 0);
    assert_true(text[0] && text[strlen(text) - 1] == '\n');
    text[strlen(text) - 1] = '\0';
    return text;
}

TEST(lines)
{
    set(0, 10.04, 0.5, 9);
    assert_string_equal(line(1), "  ms a step: compute 10.0, load 0.5, wait 9.0");
    set(1, 11.2, 0.3, 8.2);
    assert_string_equal(line(2),
                        "  ms a step by rank: compute 10.0 11.2, load 0.5 0.3, wait 9.0 8.2");
    set(2, 18.4, 0.5, 0.2);
    assert_string_equal(
        line(3), "  ms a step by rank: compute 10.0 11.2 18.4, load 0.5 0.3 0.5, wait 9.0 8.2 0.2; "
                 "straggler: rank 2@node1 (compute 18.4, others 10.0)");
    for (int i = 0; i < MOST; i++) {
        set(i, 10 + 0.01 * ((i + 7) % MOST), 0.5, 20);
    }
    set(5, 10, 20, 0.1);
    set(2, 10, 15, 5.5);
    assert_string_equal(line(64),
                        "  ms a step of 64 ranks, fastest 57@node28, median 26@node13, slowest "
                        "5@node2: compute 10.0 10.3 10.0, load 0.5 0.5 20.0, wait 20.0 20.0 0.1; "
                        "straggler: rank 5@node2 (load 20.0, others 0.5) and 1 more");
}

TEST(uneven)
{
    for (int i = 0; i < 4; i++) {
        set(i, 0.5, 0.5, 9);
    }
    set(2, 0.5, 0.59, 9);
    assert_false(straggler(4).uneven);
    set(2, 0.5, 0.61, 9);
    assert_true(straggler(4).uneven);
    assert_int_equal(straggler(4).rank, -1);
    assert_false(straggler(1).uneven);
}

/* What the log holds, as text, of a row of the ranks; valid until the next call. */
static const char *logged(int n)
{
    struct cmn_row row = {
        .accuracy = -1, .validation_loss = -1, .steps = COUNTED, .rank = ranks, .ranks = n};
    struct cmn_straggler s = straggler(n);
    char *name = file_of("x", "");
    struct cmn_json_log *j = cmn_json_log_open(name, &(struct cmn_log_resume){0});

    assert_done(j);
    cmn_json_log_row(j, &row, &s);
    cmn_json_log_close(j);
    return text_of(name);
}

TEST(json)
{
    set(0, 10, 0.5, 9);
    set(1, 11, 0.25, 8);
    set(2, 18, 0.5, 0.25);
    check_contains(
        logged(3),
        "\"ranks\":[{\"rank\":0,\"host\":\"node0\",\"compute\":1,\"load\":0.05,\"wait\":0.9},"
        "{\"rank\":1,\"host\":\"node0\",\"compute\":1.1,\"load\":0.025,\"wait\":0.8},"
        "{\"rank\":2,\"host\":\"node1\",\"compute\":1.8,\"load\":0.05,\"wait\":0.025}],"
        "\"straggler\":{\"rank\":2,\"host\":\"node1\",\"by\":\"compute\"");
    assert_null(strstr(logged(2), "\"straggler\""));
    assert_null(strstr(logged(0), "\"ranks\""));
}

TESTS(make_folder, remove_folder)
