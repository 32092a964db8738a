/* What watchdogs make of the notes of all ranks, and what they accept from each other. */
#include "check.h"

#include <limits.h>
#include <string.h>

#include "watchdog/diagnosis.h"
#include "watchdog/message.h"

enum { RANKS = 4, LIMIT = 5000 };

static struct cmn_rank_status all[RANKS];
static char said[1000];

/* Two hosts with two ranks each, which move. */
static int moving(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        all[i] = (struct cmn_rank_status){
            .rank = i, .layer = -1, .bucket = -1, .iteration = 120, .exchanges = 7, .still = 10};
        snprintf(all[i].host, sizeof all[i].host, "%c", 'a' + i / 2);
        snprintf(all[i].phase, sizeof all[i].phase, "forward");
    }
    return 0;
}

static void waits(int i, long still)
{
    all[i].waiting = 1;
    all[i].still = still;
    snprintf(all[i].phase, sizeof all[i].phase, "the sum of the gradients");
}

static int verdict(void)
{
    return cmn_diagnose(all, RANKS, LIMIT, said, sizeof said);
}

static void who_moves_is_not_missing(void **state)
{
    (void)state;
    assert_int_equal(verdict(), 0);
    all[1].still = LIMIT - 1;
    assert_int_equal(verdict(), 0);
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    waits(0, LIMIT - 300);
    waits(1, LIMIT - 300);
    waits(3, LIMIT - 300);
    all[2].silent = LIMIT;
    all[2].state = CMN_RANK_STOPPED;
    all[2].layer = 3;
    all[2].bucket = 2;
    snprintf(all[2].phase, sizeof all[2].phase, "backward");
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_string_equal(
        said, "nothing moved for 5 s (cmn_timeout): rank 2@b is stopped (SIGSTOP?) in: backward, "
              "layer 3, "
              "iteration 120, bucket 2; 3 other ranks wait for it in: the sum of the gradients");
}

/* Also when it waits itself: a stopped process does not know. */
static void a_stopped_rank_that_waits_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT - 300);
    }
    all[1].silent = LIMIT;
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(strstr(
        said,
        "rank 1@a gives no sign of life in: the sum of the gradients, iteration 120; 3 other"));
}

static void a_rank_that_stands_still_is_named_with_its_file(void **state)
{
    (void)state;
    waits(0, 100);
    all[1].still = LIMIT;
    snprintf(all[1].phase, sizeof all[1].phase, "loading images");
    snprintf(all[1].detail, sizeof all[1].detail, "mnt/1.png");
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_string_equal(said,
                        "nothing moved for 5 s (cmn_timeout): rank 1@a stands still in: loading "
                        "images (mnt/1.png), "
                        "iteration 120; 1 other rank waits for it in: the sum of the gradients");
}

static void ranks_wait_as_long_as_one_moves(void **state)
{
    (void)state;
    for (int i = 1; i < RANKS; i++) {
        waits(i, 100 * LIMIT);
    }
    assert_int_equal(verdict(), 0);
}

static void ranks_that_wait_for_each_other_are_told_apart(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT);
    }
    assert_int_equal(verdict(), 0); /* who knows more comes first */
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT + 1000);
    }
    all[3].exchanges = 6;
    snprintf(all[3].phase, sizeof all[3].phase, "the report of the ranks");
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(strstr(said, "all ranks wait for each other"));
    assert_non_null(strstr(
        said, "rank 3@b in: the report of the ranks, iteration 120 (exchange 6, which is behind)"));
}

static void a_debugger_and_an_end_are_no_fault(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT + 1000);
    }
    all[2].silent = 10 * LIMIT;
    all[2].state = CMN_RANK_TRACED;
    assert_int_equal(verdict(), 0);
    all[2].state = CMN_RANK_ALIVE;
    all[2].ended = 1;
    assert_int_equal(verdict(), 0);
}

/* Who has come through is no matter, as long as nobody is left behind. */
static void a_rank_that_stays_behind_in_the_end_of_mpi_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT + 1000);
        snprintf(all[i].phase, sizeof all[i].phase, "%s", CMN_STATUS_END);
        all[i].ended = 1;
    }
    assert_int_equal(verdict(), 0);
    all[2].ended = 0;
    all[2].still = LIMIT;
    assert_int_equal(verdict(), 0);
    all[2].still = LIMIT + 1000;
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_string_equal(said, "nothing moved for 5 s (cmn_timeout): not all ranks come through the "
                              "end of MPI: rank 2@b does not");
    all[1].ended = 0;
    all[3].state = CMN_RANK_UNKNOWN;
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(strstr(said, "rank 1@a, rank 2@b do not"));
    all[1].state = CMN_RANK_TRACED;
    assert_int_equal(verdict(), 0);
    all[1].state = CMN_RANK_ALIVE;
    snprintf(all[1].phase, sizeof all[1].phase, "the report of the ranks");
    assert_int_equal(verdict(), 0); /* rank 0 says why it ends */
}

static void a_host_is_named_once(void **state)
{
    (void)state;
    waits(0, 100);
    waits(1, 100);
    for (int i = 2; i < RANKS; i++) {
        all[i].silent = LIMIT;
        all[i].state = CMN_RANK_UNREACHABLE;
    }
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNREACHABLE);
    assert_string_equal(
        said, "nothing moved for 5 s (cmn_timeout): b (rank 2, 3) does not answer: the host is "
              "dead, or the "
              "link to it is cut; 2 other ranks wait for it in: the sum of the gradients");
    all[2].state = all[3].state = CMN_RANK_GONE;
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(strstr(said, "b (rank 2, 3): all its processes have ended without a word"));
}

static void of_unknown_ranks_nothing_is_said(void **state)
{
    (void)state;
    for (int i = 1; i < RANKS; i++) {
        all[i].state = CMN_RANK_UNKNOWN;
        all[i].silent = all[i].still = LONG_MAX;
    }
    assert_int_equal(verdict(), 0);
    waits(0, LIMIT + 1000);
    assert_int_equal(verdict(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(
        strstr(said, "rank 0@a waits in: the sum of the gradients, iteration 120; nothing was "
                     "heard of rank 1@a yet. Another rank is stopped, or its host"));
}

/* A line has an end, however many ranks there are. */
static void a_line_is_long_enough(void **state)
{
    char small[64];

    (void)state;
    for (int i = 0; i < RANKS; i++) {
        all[i].still = LIMIT;
        memset(all[i].detail, 'x', sizeof all[i].detail - 1);
    }
    assert_int_equal(cmn_diagnose(all, RANKS, LIMIT, small, sizeof small),
                     CMN_DIAGNOSED_UNRESPONSIVE);
    assert_int_equal(strlen(small), sizeof small - 1);
}

/* ---- what comes over the network ---- */

static const unsigned char token[CMN_MESSAGE_TOKEN] = "fifteen letters";

static size_t message(unsigned char *bytes, struct cmn_message *w)
{
    memset(w, 0, sizeof *w);
    w->kind = CMN_MESSAGE_BEAT;
    w->node = 1;
    w->views = 2;
    all[2].silent = 77;
    all[2].bucket = 5;
    cmn_message_pack(&all[2], &w->view[0]);
    cmn_message_pack(&all[3], &w->view[1]);
    return cmn_message_put(bytes, token, w);
}

static long take(const unsigned char *bytes, size_t n)
{
    struct cmn_message w;

    return cmn_message_take(bytes, n, token, 2, RANKS, &w);
}

static void a_message_arrives_whole(void **state)
{
    unsigned char bytes[CMN_MESSAGE_MOST];
    struct cmn_message w, got;
    struct cmn_rank_status v = {.host = "kept"};
    size_t n = message(bytes, &w);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(cmn_message_take(bytes, i, token, 2, RANKS, &got), 0);
    }
    assert_int_equal(cmn_message_take(bytes, n, token, 2, RANKS, &got), n);
    assert_int_equal(got.views, 2);
    cmn_message_unpack(&got.view[0], &v);
    assert_int_equal(v.rank, 2);
    assert_int_equal(v.silent, 77);
    assert_int_equal(v.bucket, 5);
    assert_string_equal(v.phase, "forward");
    assert_string_equal(v.host, "kept");
}

static void what_cannot_be_is_refused(void **state)
{
    unsigned char bytes[CMN_MESSAGE_MOST], good[CMN_MESSAGE_MOST];
    struct cmn_message w;
    size_t n = message(good, &w);
    static const struct {
        size_t at;
        uint32_t value;
    } wrong[] = {
        {CMN_MESSAGE_TOKEN, 0},
        {CMN_MESSAGE_TOKEN, 5},
        {CMN_MESSAGE_TOKEN + 4, 2},
        {CMN_MESSAGE_TOKEN + 8, CMN_MESSAGE_VIEWS + 1},
        {CMN_MESSAGE_TOKEN + 12, 1},
        {CMN_MESSAGE_HEAD + offsetof(struct cmn_message_rank, rank), RANKS},
        {CMN_MESSAGE_HEAD + offsetof(struct cmn_message_rank, rank), UINT32_MAX},
        {CMN_MESSAGE_HEAD + offsetof(struct cmn_message_rank, state), CMN_RANK_STATES},
        {CMN_MESSAGE_HEAD + offsetof(struct cmn_message_rank, still) + 4, UINT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < CMN_MESSAGE_TOKEN; i++) {
        memcpy(bytes, good, n);
        bytes[i] ^= 1;
        assert_int_equal(take(bytes, n), -1);
        assert_int_equal(take(bytes, CMN_MESSAGE_HEAD), -1); /* before it is whole */
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memcpy(bytes, good, n);
        memcpy(bytes + wrong[i].at, &wrong[i].value, 4);
        assert_int_equal(take(bytes, n), -1);
    }
}

static void texts_end_and_do_not_talk_to_terminals(void **state)
{
    unsigned char bytes[CMN_MESSAGE_MOST];
    struct cmn_message w, got;
    size_t n = message(bytes, &w);

    (void)state;
    memset(bytes + CMN_MESSAGE_HEAD + offsetof(struct cmn_message_rank, phase), 27,
           CMN_STATUS_TEXT);
    assert_int_equal(cmn_message_take(bytes, n, token, 2, RANKS, &got), n);
    assert_int_equal(strlen(got.view[0].phase), CMN_STATUS_TEXT - 1);
    assert_int_equal(strspn(got.view[0].phase, "?"), CMN_STATUS_TEXT - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(who_moves_is_not_missing, moving),
        cmocka_unit_test_setup(a_stopped_rank_is_named, moving),
        cmocka_unit_test_setup(a_stopped_rank_that_waits_is_named, moving),
        cmocka_unit_test_setup(a_rank_that_stands_still_is_named_with_its_file, moving),
        cmocka_unit_test_setup(ranks_wait_as_long_as_one_moves, moving),
        cmocka_unit_test_setup(ranks_that_wait_for_each_other_are_told_apart, moving),
        cmocka_unit_test_setup(a_rank_that_stays_behind_in_the_end_of_mpi_is_named, moving),
        cmocka_unit_test_setup(a_debugger_and_an_end_are_no_fault, moving),
        cmocka_unit_test_setup(a_host_is_named_once, moving),
        cmocka_unit_test_setup(of_unknown_ranks_nothing_is_said, moving),
        cmocka_unit_test_setup(a_line_is_long_enough, moving),
        cmocka_unit_test_setup(a_message_arrives_whole, moving),
        cmocka_unit_test_setup(what_cannot_be_is_refused, moving),
        cmocka_unit_test_setup(texts_end_and_do_not_talk_to_terminals, moving),
    };

    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
