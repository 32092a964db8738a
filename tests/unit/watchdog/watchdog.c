/* What watchdogs diagnose from the statuses of all ranks, and what they accept from each other. */
#include "check.h"

#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "watchdog/diagnosis.h"
#include "watchdog/heartbeat.h"

enum { RANKS = 4, LIMIT = 5000 };

static struct cmn_rank_status all[RANKS];
static char said[1000];

/* Two hosts with two ranks each, which move. */
static int moving(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        all[i] = (struct cmn_rank_status){
            .rank = i, .layer = -1, .bucket = -1, .iteration = 120, .exchanges = 7, .stalled = 10};
        snprintf(all[i].host, sizeof all[i].host, "%c", 'a' + i / 2);
        snprintf(all[i].phase, sizeof all[i].phase, "forward");
    }
    return 0;
}

static void waits(int i, long stalled)
{
    all[i].waiting = 1;
    all[i].stalled = stalled;
    snprintf(all[i].phase, sizeof all[i].phase, "the sum of the gradients");
}

static int diagnosis(void)
{
    return cmn_diagnose(all, RANKS, LIMIT, said, sizeof said);
}

static void a_rank_that_makes_progress_is_responsive(void **state)
{
    (void)state;
    assert_int_equal(diagnosis(), 0);
    all[1].stalled = LIMIT - 1;
    assert_int_equal(diagnosis(), 0);
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
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
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
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(strstr(
        said, "rank 1@a is unresponsive in: the sum of the gradients, iteration 120; 3 other"));
}

static void a_stalled_rank_is_named_with_its_file(void **state)
{
    (void)state;
    waits(0, 100);
    all[1].stalled = LIMIT;
    snprintf(all[1].phase, sizeof all[1].phase, "loading images");
    snprintf(all[1].detail, sizeof all[1].detail, "mnt/1.png");
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_string_equal(said,
                        "nothing moved for 5 s (cmn_timeout): rank 1@a is stalled in: loading "
                        "images (mnt/1.png), "
                        "iteration 120; 1 other rank waits for it in: the sum of the gradients");
}

static void ranks_wait_as_long_as_one_makes_progress(void **state)
{
    (void)state;
    for (int i = 1; i < RANKS; i++) {
        waits(i, 100 * LIMIT);
    }
    assert_int_equal(diagnosis(), 0);
}

static void ranks_that_wait_for_each_other_are_told_apart(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT);
    }
    assert_int_equal(diagnosis(), 0); /* MPI may know the reason */
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT + 1000);
    }
    all[3].exchanges = 6;
    snprintf(all[3].phase, sizeof all[3].phase, "the report of the ranks");
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
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
    assert_int_equal(diagnosis(), 0);
    all[2].state = CMN_RANK_ALIVE;
    all[2].ended = 1;
    assert_int_equal(diagnosis(), 0);
}

/* Ranks may leave the end of MPI one after the other, as long as all do. */
static void a_rank_that_stays_behind_in_the_end_of_mpi_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        waits(i, LIMIT + 1000);
        snprintf(all[i].phase, sizeof all[i].phase, "%s", CMN_STATUS_END);
        all[i].ended = 1;
    }
    assert_int_equal(diagnosis(), 0);
    all[2].ended = 0;
    all[2].stalled = LIMIT;
    assert_int_equal(diagnosis(), 0);
    all[2].stalled = LIMIT + 1000;
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_string_equal(said, "nothing moved for 5 s (cmn_timeout): not all ranks come through the "
                              "end of MPI: rank 2@b does not");
    all[1].ended = 0;
    all[3].state = CMN_RANK_UNKNOWN;
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(strstr(said, "rank 1@a, rank 2@b do not"));
    all[1].state = CMN_RANK_TRACED;
    assert_int_equal(diagnosis(), 0);
    all[1].state = CMN_RANK_ALIVE;
    snprintf(all[1].phase, sizeof all[1].phase, "the report of the ranks");
    assert_int_equal(diagnosis(), 0); /* rank 0 says why it ends */
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
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNREACHABLE);
    assert_string_equal(
        said, "nothing moved for 5 s (cmn_timeout): b (rank 2, 3) does not answer: the host is "
              "dead, or the "
              "link to it is cut; 2 other ranks wait for it in: the sum of the gradients");
    all[2].state = all[3].state = CMN_RANK_GONE;
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(strstr(said, "b (rank 2, 3): all its processes have ended without a goodbye"));
}

static void of_unknown_ranks_nothing_is_said(void **state)
{
    (void)state;
    for (int i = 1; i < RANKS; i++) {
        all[i].state = CMN_RANK_UNKNOWN;
        all[i].silent = all[i].stalled = LONG_MAX;
    }
    assert_int_equal(diagnosis(), 0);
    waits(0, LIMIT + 1000);
    assert_int_equal(diagnosis(), CMN_DIAGNOSED_UNRESPONSIVE);
    assert_non_null(
        strstr(said, "rank 0@a waits in: the sum of the gradients, iteration 120; rank 1@a has "
                     "not been heard yet. Another rank is stopped, or its host"));
}

/* A line has an end, however many ranks there are. */
static void a_line_is_long_enough(void **state)
{
    char small[64];

    (void)state;
    for (int i = 0; i < RANKS; i++) {
        all[i].stalled = LIMIT;
        memset(all[i].detail, 'x', sizeof all[i].detail - 1);
    }
    assert_int_equal(cmn_diagnose(all, RANKS, LIMIT, small, sizeof small),
                     CMN_DIAGNOSED_UNRESPONSIVE);
    assert_int_equal(strlen(small), sizeof small - 1);
}

/* ---- what comes over the network ---- */

static const unsigned char token[CMN_TOKEN] = "fifteen letters";

static struct cmn_message message(void)
{
    struct cmn_message m = {.kind = CMN_MESSAGE_RANK, .node = 1, .rank = all[2]};

    memcpy(m.token, token, sizeof token);
    m.rank.silent = 77;
    m.rank.bucket = 5;
    return m;
}

static struct cmn_connection connection;
static int other_end;

static int connected(void **state)
{
    int ends[2];

    moving(state);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    cmn_connection_open(&connection, ends[0], -1);
    other_end = ends[1];
    return 0;
}

static int disconnected(void **state)
{
    (void)state;
    close(connection.fd);
    close(other_end);
    return 0;
}

static void arrive(const void *bytes, size_t n)
{
    assert_int_equal(send(other_end, bytes, n, MSG_NOSIGNAL), n);
}

static int next(struct cmn_message *m)
{
    return cmn_connection_next(&connection, token, 2, RANKS, m);
}

static void a_message_arrives_whole(void **state)
{
    struct cmn_message m = message(), got;

    (void)state;
    for (size_t i = 0; i < sizeof m; i++) {
        assert_int_equal(next(&got), 0);
        arrive((char *)&m + i, 1);
    }
    assert_int_equal(next(&got), 1);
    assert_memory_equal(&got, &m, sizeof m);
    arrive(&m, sizeof m);
    arrive(&m, sizeof m);
    assert_int_equal(next(&got), 1);
    assert_int_equal(next(&got), 1);
    assert_int_equal(next(&got), 0);
    arrive(&m, 100);
    shutdown(other_end, SHUT_WR);
    assert_int_equal(next(&got), CMN_CONNECTION_ENDED);
}

static void what_cannot_be_is_refused(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } wrong[] = {
        {offsetof(struct cmn_message, kind), 0},
        {offsetof(struct cmn_message, kind), 5},
        {offsetof(struct cmn_message, node), 2},
        {offsetof(struct cmn_message, node), UINT32_MAX},
        {offsetof(struct cmn_message, rank.rank), RANKS},
        {offsetof(struct cmn_message, rank.rank), UINT32_MAX},
        {offsetof(struct cmn_message, rank.state), CMN_RANK_STATES},
        {offsetof(struct cmn_message, rank.state), UINT32_MAX},
        {offsetof(struct cmn_message, rank.stalled) + 4, UINT32_MAX},
        {offsetof(struct cmn_message, rank.silent) + 4, UINT32_MAX},
    };
    struct cmn_message m, got;

    (void)state;
    for (size_t i = 0; i < CMN_TOKEN; i++) {
        m = message();
        m.token[i] ^= 1;
        arrive(&m, sizeof m);
        assert_int_equal(next(&got), CMN_CONNECTION_BAD);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        m = message();
        memcpy((char *)&m + wrong[i].at, &wrong[i].value, 4);
        arrive(&m, sizeof m);
        assert_int_equal(next(&got), CMN_CONNECTION_BAD);
    }
}

static void texts_end_and_do_not_control_terminals(void **state)
{
    struct cmn_message m = message(), got;

    (void)state;
    memset(m.rank.phase, 27, sizeof m.rank.phase);
    memset(m.rank.host, 27, sizeof m.rank.host);
    memset(m.rank.detail, 127, sizeof m.rank.detail);
    arrive(&m, sizeof m);
    assert_int_equal(next(&got), 1);
    assert_int_equal(strspn(got.rank.phase, "?"), sizeof m.rank.phase - 1);
    assert_int_equal(strspn(got.rank.host, "?"), sizeof m.rank.host - 1);
    assert_int_equal(strspn(got.rank.detail, "?"), sizeof m.rank.detail - 1);
    assert_int_equal(strlen(got.rank.phase), sizeof m.rank.phase - 1);
    assert_int_equal(strlen(got.rank.host), sizeof m.rank.host - 1);
    assert_int_equal(strlen(got.rank.detail), sizeof m.rank.detail - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_rank_that_makes_progress_is_responsive, moving),
        cmocka_unit_test_setup(a_stopped_rank_is_named, moving),
        cmocka_unit_test_setup(a_stopped_rank_that_waits_is_named, moving),
        cmocka_unit_test_setup(a_stalled_rank_is_named_with_its_file, moving),
        cmocka_unit_test_setup(ranks_wait_as_long_as_one_makes_progress, moving),
        cmocka_unit_test_setup(ranks_that_wait_for_each_other_are_told_apart, moving),
        cmocka_unit_test_setup(a_rank_that_stays_behind_in_the_end_of_mpi_is_named, moving),
        cmocka_unit_test_setup(a_debugger_and_an_end_are_no_fault, moving),
        cmocka_unit_test_setup(a_host_is_named_once, moving),
        cmocka_unit_test_setup(of_unknown_ranks_nothing_is_said, moving),
        cmocka_unit_test_setup(a_line_is_long_enough, moving),
        cmocka_unit_test_setup_teardown(a_message_arrives_whole, connected, disconnected),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, connected, disconnected),
        cmocka_unit_test_setup_teardown(texts_end_and_do_not_control_terminals, connected,
                                        disconnected),
    };

    return cmocka_run_group_tests_name("watchdog", tests, NULL, NULL);
}
