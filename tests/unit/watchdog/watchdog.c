/* What watchdogs diagnose from the statuses of all ranks, and what they accept from each other. */
#include "check.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "watchdog/diagnosis.h"
#include "watchdog/backtrace.h"
#include "watchdog/connection.h"

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
static void the_main_thread_tells_its_stack_at_any_time(void **state)
{
    atomic_int answered = 0;
    FILE *out = fopen("/dev/null", "w");
    pthread_t asks;

    (void)state;
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

/* ---- what comes over the network ---- */

/* RFC 4231, 4.2 to 4.5; HMAC fills keys with zeros. */
static void the_mac_is_hmac_sha256(void **state)
{
    unsigned char dd[50], cd[50], hex[2 * CMN_MAC + 1], mac[CMN_MAC];
    unsigned char key[4][CMN_KEY] = {{0}, "Jefe", {0}, {0}};
    const struct {
        const void *data;
        size_t bytes;
        const char *mac;
    } vector[4] = {
        {"Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"what do ya want for nothing?", 28,
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {dd, sizeof dd, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {cd, sizeof cd, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
    };

    (void)state;
    memset(key[0], 0x0b, 20);
    memset(key[2], 0xaa, 20);
    for (size_t i = 0; i < 25; i++) {
        key[3][i] = (unsigned char)(i + 1);
    }
    memset(dd, 0xdd, sizeof dd);
    memset(cd, 0xcd, sizeof cd);
    for (size_t i = 0; i < COUNT(vector); i++) {
        cmn_connection_mac(mac, key[i], vector[i].data, vector[i].bytes);
        for (size_t k = 0; k < sizeof mac; k++) {
            snprintf((char *)hex + 2 * k, 3, "%02x", mac[k]);
        }
        assert_string_equal((char *)hex, vector[i].mac);
    }
}

static const struct cmn_connection_job job = {"a key of thirty-one letters, so", 2, RANKS, 0},
                                       there = {"a key of thirty-one letters, so", 2, RANKS, 1};

/* The ends of a connection between rank 0's node and the other one, and the wires between them,
 * which a test may cut: what an end sends comes out of its wire. */
enum { HERE, THERE };
static struct cmn_connection end[2];
static int wire[2];

static void connect_ends(void)
{
    for (int i = 0; i < 2; i++) {
        int fd[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        assert_int_equal(
            cmn_connection_open(&end[i], fd[0], i == HERE ? CMN_LISTENER : CMN_CONNECTOR), 0);
        wire[i] = fd[1];
    }
    assert_int_equal(cmn_connection_greet(&end[THERE], &there), 0);
}

static void disconnect_ends(void)
{
    for (int i = 0; i < 2; i++) {
        cmn_connection_close(&end[i]);
        close(wire[i]);
    }
}

static int connected(void **state)
{
    moving(state);
    connect_ends();
    return 0;
}

static int disconnected(void **state)
{
    (void)state;
    disconnect_ends();
    return 0;
}

static int next(int to, struct cmn_message *m)
{
    return cmn_connection_next(&end[to], to == HERE ? &job : &there, m);
}

static void arrive(int to, const void *bytes, size_t n)
{
    assert_int_equal(send(wire[to], bytes, n, MSG_NOSIGNAL), n);
}

/* What the end has sent: one whole message. */
static void sent_by(int from, struct cmn_message *m)
{
    assert_int_equal(recv(wire[from], m, sizeof *m, MSG_DONTWAIT), sizeof *m);
}

static void carry(int from)
{
    struct cmn_message m;

    sent_by(from, &m);
    arrive(!from, &m, sizeof m);
}

static void greet(void)
{
    struct cmn_message m;

    carry(THERE);
    assert_int_equal(next(HERE, &m), 0);
    carry(HERE);
    assert_int_equal(next(THERE, &m), 1);
    assert_int_equal(m.kind, CMN_MESSAGE_HELLO);
    assert_int_equal(m.node, 0);
    carry(THERE);
    assert_int_equal(next(HERE, &m), 1);
    assert_int_equal(m.kind, CMN_MESSAGE_HELLO);
    assert_int_equal(m.node, 1);
}

static void send_there(struct cmn_message *m)
{
    assert_int_equal(cmn_connection_send(&end[THERE], &there, m), 0);
    sent_by(THERE, m);
}

static struct cmn_message message(void)
{
    struct cmn_message m = {.kind = CMN_MESSAGE_RANK, .rank = all[2]};

    m.rank.silent = 77;
    m.rank.bucket = 5;
    return m;
}

static void a_message_arrives_whole(void **state)
{
    struct cmn_message m = message(), got;

    (void)state;
    greet();
    send_there(&m);
    for (size_t i = 0; i < sizeof m; i++) {
        assert_int_equal(next(HERE, &got), 0);
        arrive(HERE, (char *)&m + i, 1);
    }
    assert_int_equal(next(HERE, &got), 1);
    assert_memory_equal(&got, &m, sizeof m);
    for (int i = 0; i < 2; i++) {
        m = message();
        send_there(&m);
        arrive(HERE, &m, sizeof m);
    }
    assert_int_equal(next(HERE, &got), 1);
    assert_int_equal(next(HERE, &got), 1);
    assert_int_equal(next(HERE, &got), 0);
    arrive(HERE, &m, 100);
    shutdown(wire[HERE], SHUT_WR);
    assert_int_equal(next(HERE, &got), CMN_CONNECTION_ENDED);
}

/* One bit is wrong, in each of the three greetings and in what follows. */
static void no_bit_may_differ(void **state)
{
    struct cmn_message m, got;

    (void)state;
    disconnect_ends();
    for (size_t at = 0; at < sizeof m; at += at < 64 ? 1 : 37) {
        for (int which = 0; which < 4; which++) {
            int from = which == 1 ? HERE : THERE;
            connect_ends();
            if (which == 3) {
                greet();
                m = message();
                assert_int_equal(cmn_connection_send(&end[THERE], &there, &m), 0);
            }
            if (which == 1 || which == 2) {
                carry(THERE);
                assert_int_equal(next(HERE, &got), 0);
            }
            if (which == 2) {
                carry(HERE);
                assert_int_equal(next(THERE, &got), 1);
            }
            sent_by(from, &m);
            ((char *)&m)[at] ^= 0x10;
            arrive(!from, &m, sizeof m);
            assert_int_equal(next(!from, &got), CMN_CONNECTION_BAD);
            disconnect_ends();
        }
    }
    connect_ends();
}

static void without_the_key_nobody_is_authenticated(void **state)
{
    struct cmn_connection_job wrong = there;
    struct cmn_message m;

    (void)state;
    wrong.key[CMN_KEY - 1] ^= 1;
    carry(THERE);
    assert_int_equal(next(HERE, &m), 0);
    carry(HERE);
    assert_int_equal(cmn_connection_next(&end[THERE], &wrong, &m), CMN_CONNECTION_BAD);
    disconnect_ends();
    connect_ends();
    sent_by(THERE, &m);
    assert_int_equal(cmn_connection_greet(&end[THERE], &wrong), 0);
    carry(THERE);
    assert_int_equal(next(HERE, &m), CMN_CONNECTION_BAD);
    disconnect_ends();
    connect_ends();
    sent_by(THERE, &m);
    end[THERE].role = CMN_LISTENER;
    end[THERE].sent = 0;
    assert_int_equal(cmn_connection_greet(&end[THERE], &there), 0);
    carry(THERE);
    assert_int_equal(next(HERE, &m), CMN_CONNECTION_BAD); /* a listener greets a listener */
}

/* Of use is a recording neither to who connects nor to who listens; nor is a message that comes
 * twice, too early, or back from where it went. */
static void what_was_recorded_is_refused(void **state)
{
    struct cmn_message first, answer, proof, beat = message(), got;

    (void)state;
    sent_by(THERE, &first);
    arrive(HERE, &first, sizeof first);
    assert_int_equal(next(HERE, &got), 0);
    sent_by(HERE, &answer);
    arrive(THERE, &answer, sizeof answer);
    assert_int_equal(next(THERE, &got), 1);
    sent_by(THERE, &proof);
    arrive(HERE, &proof, sizeof proof);
    assert_int_equal(next(HERE, &got), 1);
    send_there(&beat);
    arrive(HERE, &beat, sizeof beat);
    assert_int_equal(next(HERE, &got), 1);
    arrive(HERE, &beat, sizeof beat);
    assert_int_equal(next(HERE, &got), CMN_CONNECTION_BAD);

    disconnect_ends();
    connect_ends();
    arrive(HERE, &first, sizeof first);
    assert_int_equal(next(HERE, &got), 0);
    arrive(HERE, &proof, sizeof proof);
    assert_int_equal(next(HERE, &got), CMN_CONNECTION_BAD);
    arrive(THERE, &answer, sizeof answer);
    assert_int_equal(next(THERE, &got), CMN_CONNECTION_BAD);

    disconnect_ends();
    connect_ends();
    arrive(HERE, &first, sizeof first);
    assert_int_equal(next(HERE, &got), 0);
    sent_by(HERE, &got);
    arrive(HERE, &got, sizeof got);
    assert_int_equal(next(HERE, &got), CMN_CONNECTION_BAD);
    sent_by(THERE, &first);
    arrive(THERE, &first, sizeof first);
    assert_int_equal(next(THERE, &got), CMN_CONNECTION_BAD);

    disconnect_ends();
    connect_ends();
    greet();
    assert_int_equal(cmn_connection_greet(&end[THERE], &there), 0);
    carry(THERE);
    assert_int_equal(next(HERE, &got), CMN_CONNECTION_BAD); /* a third greeting */
}

/* Also from who has the key. */
static void what_cannot_be_is_refused(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } wrong[] = {
        {offsetof(struct cmn_message, kind), 0},
        {offsetof(struct cmn_message, kind), CMN_MESSAGE_HELLO},
        {offsetof(struct cmn_message, kind), CMN_MESSAGE_DIAGNOSED + 1},
        {offsetof(struct cmn_message, rank.rank), RANKS},
        {offsetof(struct cmn_message, rank.rank), UINT32_MAX},
        {offsetof(struct cmn_message, rank.state), CMN_RANK_STATES},
        {offsetof(struct cmn_message, rank.state), UINT32_MAX},
        {offsetof(struct cmn_message, rank.stalled) + 4, UINT32_MAX},
        {offsetof(struct cmn_message, rank.silent) + 4, UINT32_MAX},
    };
    struct cmn_connection_job far = there;
    struct cmn_message m, got;

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        greet();
        m = message();
        memcpy((char *)&m + wrong[i].at, &wrong[i].value, 4);
        send_there(&m);
        arrive(HERE, &m, sizeof m);
        assert_int_equal(next(HERE, &got), CMN_CONNECTION_BAD);
        disconnect_ends();
        connect_ends();
    }
    for (far.node = 2; far.node >= -1; far.node -= 3) {
        greet();
        m = message();
        assert_int_equal(cmn_connection_send(&end[THERE], &far, &m), 0);
        carry(THERE);
        assert_int_equal(next(HERE, &got), CMN_CONNECTION_BAD);
        disconnect_ends();
        connect_ends();
    }
}

static void texts_end_and_do_not_control_terminals(void **state)
{
    struct cmn_message m = message(), got;

    (void)state;
    greet();
    memset(m.rank.phase, 27, sizeof m.rank.phase);
    memset(m.rank.host, 0x9b, sizeof m.rank.host);
    memset(m.rank.detail, 127, sizeof m.rank.detail);
    send_there(&m);
    arrive(HERE, &m, sizeof m);
    assert_int_equal(next(HERE, &got), 1);
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
        cmocka_unit_test(the_main_thread_tells_its_stack_at_any_time),
        cmocka_unit_test(the_mac_is_hmac_sha256),
        cmocka_unit_test_setup_teardown(a_message_arrives_whole, connected, disconnected),
        cmocka_unit_test_setup_teardown(no_bit_may_differ, connected, disconnected),
        cmocka_unit_test_setup_teardown(without_the_key_nobody_is_authenticated, connected,
                                        disconnected),
        cmocka_unit_test_setup_teardown(what_was_recorded_is_refused, connected, disconnected),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, connected, disconnected),
        cmocka_unit_test_setup_teardown(texts_end_and_do_not_control_terminals, connected,
                                        disconnected),
    };

    return cmocka_run_group_tests_name("watchdog", tests, NULL, NULL);
}
