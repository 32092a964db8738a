/* What watchdogs diagnose from the statuses of all ranks, and the stack of the main thread. */
#include "check.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "watchdog/diagnosis.h"
#include "watchdog/backtrace.h"

enum { RANKS = 4, LIMIT = 5000 };

static struct cmn_rank_status all[RANKS];
static char said[1000];

/* Two hosts with two ranks each, which move. */
static void moving(void)
{
    for (int i = 0; i < RANKS; i++) {
        all[i] = (struct cmn_rank_status){
            .rank = i, .layer = -1, .bucket = -1, .iteration = 120, .exchanges = 7, .stalled = 10};
        snprintf(all[i].host, sizeof all[i].host, "%c", 'a' + i / 2);
        snprintf(all[i].phase, sizeof all[i].phase, "forward");
    }
}

static void waits(int i, long stalled)
{
    all[i].waiting = 1;
    all[i].stalled = stalled;
    snprintf(all[i].phase, sizeof all[i].phase, "the sum of the gradients");
}

static void all_wait(long stalled)
{
    for (int i = 0; i < RANKS; i++) {
        waits(i, stalled);
    }
}

static int diagnosis(void)
{
    return cmn_diagnose(all, RANKS, LIMIT, said, sizeof said);
}

/* What is said of ranks that are unresponsive. */
static const char *unresponsive(void)
{
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
    return said;
}

TEST(a_rank_that_makes_progress_is_responsive)
{
    assert_int_equal(diagnosis(), 0);
    all[1].stalled = LIMIT - 1;
    assert_int_equal(diagnosis(), 0);
}

TEST(a_stopped_rank_is_named)
{
    all_wait(LIMIT - 300);
    all[2].waiting = 0;
    all[2].silent = LIMIT;
    all[2].state = CMN_RANK_STOPPED;
    all[2].layer = 0;
    all[2].bucket = 0;
    snprintf(all[2].phase, sizeof all[2].phase, "backward");
    assert_string_equal(
        unresponsive(),
        "nothing moved for 5 s (cmn_timeout): rank 2@b is stopped (SIGSTOP?) in: backward, "
        "layer 0, "
        "iteration 120, bucket 0; 3 other ranks wait for it in: the sum of the gradients");
}

/* Also when it waits itself: a stopped process does not know. */
TEST(a_stopped_rank_that_waits_is_named)
{
    all_wait(LIMIT - 300);
    all[1].silent = LIMIT;
    check_contains(unresponsive(),
                   "rank 1@a is unresponsive in: the sum of the gradients, iteration 120; 3 other");
}

TEST(a_stalled_rank_is_named_with_its_file)
{
    waits(0, 100);
    all[1].stalled = LIMIT;
    snprintf(all[1].phase, sizeof all[1].phase, "loading images");
    snprintf(all[1].detail, sizeof all[1].detail, "mnt/1.png");
    assert_string_equal(unresponsive(),
                        "nothing moved for 5 s (cmn_timeout): rank 1@a is stalled in: loading "
                        "images (mnt/1.png), "
                        "iteration 120; 1 other rank waits for it in: the sum of the gradients");
}

TEST(ranks_wait_as_long_as_one_makes_progress)
{
    all_wait(100 * LIMIT);
    all[0].waiting = 0;
    all[0].stalled = 10;
    assert_int_equal(diagnosis(), 0);
}

TEST(ranks_that_wait_for_each_other_are_told_apart)
{
    all_wait(LIMIT);
    assert_int_equal(diagnosis(), 0); /* MPI may know the reason */
    all_wait(LIMIT + 1000);
    all[3].exchanges = 6;
    snprintf(all[3].phase, sizeof all[3].phase, "the report of the ranks");
    check_contains(unresponsive(), "all ranks wait for each other");
    check_contains(
        said, "rank 3@b in: the report of the ranks, iteration 120 (exchange 6, which is behind)");
}

TEST(a_debugger_and_an_end_are_no_fault)
{
    all_wait(LIMIT + 1000);
    all[2].silent = 10 * LIMIT;
    all[2].state = CMN_RANK_TRACED;
    assert_int_equal(diagnosis(), 0);
    all[2].state = CMN_RANK_ALIVE;
    all[2].ended = 1;
    assert_int_equal(diagnosis(), 0);
}

/* Ranks may leave the end of MPI one after the other, as long as all do. */
TEST(a_rank_that_stays_behind_in_the_end_of_mpi_is_named)
{
    all_wait(LIMIT + 1000);
    for (int i = 0; i < RANKS; i++) {
        snprintf(all[i].phase, sizeof all[i].phase, "%s", CMN_STATUS_END);
        all[i].ended = 1;
    }
    assert_int_equal(diagnosis(), 0);
    all[2].ended = 0;
    all[2].stalled = LIMIT;
    assert_int_equal(diagnosis(), 0);
    all[2].stalled = LIMIT + 1000;
    assert_string_equal(unresponsive(),
                        "nothing moved for 5 s (cmn_timeout): not all ranks come through the "
                        "end of MPI: rank 2@b does not");
    all[1].ended = 0;
    all[3].state = CMN_RANK_UNKNOWN;
    check_contains(unresponsive(), "rank 1@a, rank 2@b do not");
    all[1].state = CMN_RANK_TRACED;
    assert_int_equal(diagnosis(), 0);
    all[1].state = CMN_RANK_ALIVE;
    snprintf(all[1].phase, sizeof all[1].phase, "the report of the ranks");
    assert_int_equal(diagnosis(), 0); /* rank 0 says why it ends */
}

TEST(a_host_is_named_once)
{
    waits(0, 100);
    waits(1, 100);
    for (int i = 2; i < RANKS; i++) {
        all[i].silent = LIMIT;
        all[i].state = CMN_RANK_UNREACHABLE;
    }
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNREACHABLE);
    assert_string_equal(
        said, "nothing moved for 5 s (cmn_timeout): b (rank 2, 3) does not answer: the host is "
              "dead, or the "
              "link to it is cut; 2 other ranks wait for it in: the sum of the gradients");
    all[2].state = all[3].state = CMN_RANK_UNHEARD;
    check_contains(unresponsive(),
                   "b (rank 2, 3) is unresponsive, though the host answers: all its "
                   "ranks are stopped, or have ended");
}

#define CUT " does not answer: the host is dead, or the link to it is cut"

/* The first ranks of one host, and how the line about them ends. Of those that are alive all but
 * the last stay behind in the end of MPI. */
static const struct {
    enum cmn_rank_state state;
    int n;
    const char *end;
} named[] = {
    {CMN_RANK_UNREACHABLE, 1, ": a (rank 0)" CUT},
    {CMN_RANK_UNREACHABLE, 4, ": a (rank 0, 1, 2, 3)" CUT},
    {CMN_RANK_UNREACHABLE, 5, ": a (rank 0, 1, 2, 3, … 5 in all)" CUT},
    {CMN_RANK_DEAD, 4, "; rank 3@a has died in: x, iteration 120"},
    {CMN_RANK_DEAD, 6, "; rank 3@a has died in: x, iteration 120; and 2 more"},
    {CMN_RANK_ALIVE, 5, ", rank 3@a do not"},
    {CMN_RANK_ALIVE, 6, ", rank 3@a, … do not"},
};

TEST(four_ranks_are_named)
{
    struct cmn_rank_status seen[6];

    for (size_t k = 0; k < COUNT(named); k++) {
        int alive = named[k].state == CMN_RANK_ALIVE;
        for (int i = 0; i < named[k].n; i++) {
            seen[i] = all[0];
            seen[i].rank = i;
            seen[i].state = named[k].state;
            seen[i].silent = alive ? 0 : LIMIT;
            seen[i].waiting = alive;
            seen[i].stalled = LIMIT + 1000;
            seen[i].ended = alive && i == named[k].n - 1;
            snprintf(seen[i].phase, sizeof seen[i].phase, "%s", alive ? CMN_STATUS_END : "x");
        }
        assert_true(cmn_diagnose(seen, named[k].n, LIMIT, said, sizeof said));
        assert_true(strlen(said) > strlen(named[k].end));
        assert_string_equal(said + strlen(said) - strlen(named[k].end), named[k].end);
    }
}

TEST(of_unknown_ranks_nothing_is_said)
{
    for (int i = 1; i < RANKS; i++) {
        all[i].state = CMN_RANK_UNKNOWN;
        all[i].silent = all[i].stalled = LONG_MAX;
    }
    assert_int_equal(diagnosis(), 0);
    waits(0, LIMIT + 1000);
    check_contains(unresponsive(),
                   "rank 0@a waits in: the sum of the gradients, iteration 120; rank 1@a has "
                   "not been heard yet. Another rank is stopped, or its host");
}

/* A line has an end, however many ranks there are. */
TEST(a_line_is_long_enough)
{
    char small[64];

    for (int i = 0; i < RANKS; i++) {
        all[i].stalled = LIMIT;
        memset(all[i].detail, 'x', sizeof all[i].detail - 1);
    }
    assert_int_equal(cmn_diagnose(all, RANKS, LIMIT, small, sizeof small),
                     CMN_DIAGNOSED_UNRESPONSIVE);
    assert_int_equal(strlen(small), sizeof small - 1);
}

/* ---- the main thread's stack ---- */

enum { ASKED = 25 };

static void *ask(void *answered)
{
    static char text[8192];

    for (int i = 0; i < ASKED; i++) {
        cmn_backtrace_text("", text, sizeof text);
        if (strstr(text, "#0 ")) {
            atomic_fetch_add((atomic_int *)answered, 1);
        }
        usleep(500 + 137 * (unsigned)i);
    }
    atomic_fetch_add((atomic_int *)answered, 1000);
    return NULL;
}

/* Wherever the signal finds it: in malloc(), in the dynamic linker, in stdio. */
TEST(the_main_thread_tells_its_stack_at_any_time)
{
    atomic_int answered = 0;
    FILE *out = fopen("/dev/null", "w");
    pthread_t asks;

    cmn_backtrace_open();
    assert_int_equal(pthread_create(&asks, NULL, ask, &answered), 0);
    while (atomic_load(&answered) < 1000) {
        void *library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
        for (size_t i = 0; i < 2000; i++) {
            void *volatile p = malloc(2000 + i * 30), *volatile q = malloc(70000);
            free(p);
            free(q);
            if (i % 50 == 0) {
                fprintf(out, "%zu %f\n", i, (double)i);
            }
        }
        if (library) {
            dlclose(library);
        }
    }
    pthread_join(asks, NULL);
    fclose(out);
    assert_int_equal(atomic_load(&answered), 1000 + ASKED);
}

TESTS(moving, NULL)
