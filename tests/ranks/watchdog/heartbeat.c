/* The watchdogs of nodes find each other, past listeners that are none of theirs and among
 * strangers. Each rank is a node; time is what the test says it is. */
#include "ranks/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "watchdog/heartbeat.h"

/* Watchdogs look more often while a node is not connected. */
enum { LOOK_MS = 250, SHORT_MS = 50, GIVEN_UP_MS = 5000 };

static struct cmn_topology nodes;
static struct cmn_heartbeat *h;

static int begin(void **state)
{
    (void)state;
    cmn_topology_open_as(&nodes, top.rank);
    h = cmn_heartbeat_open(&nodes);
    return 0;
}

static int end(void **state)
{
    (void)state;
    if (h) {
        cmn_heartbeat_close(h);
    }
    cmn_topology_close(&nodes);
    return 0;
}

/* Collective: each watchdog looks once, and what was sent has arrived. */
static void look(void)
{
    cmn_heartbeat_look(h, LOOK_MS, 1);
    usleep(5000);
    MPI_Barrier(top.world);
}

/* Collective. The milliseconds that passed until all were connected; at most `most`. */
static long connected_after(long most)
{
    int all = 0;
    long ms = 0;

    while (!all && ms < most) {
        look();
        ms += LOOK_MS;
        all = cmn_heartbeat_connected(h);
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, top.world);
    }
    return ms;
}

static enum cmn_rank_state seen(int rank)
{
    struct cmn_rank_status all[5];

    memset(all, 0, sizeof all);
    cmn_heartbeat_see(h, all);
    return all[rank].state;
}

static void on_one_node_there_are_none(void **state)
{
    (void)state;
    CHECK((h == NULL) == (top.size == 1));
    fail_on_all_ranks();
}

static void statuses_reach_rank_0_and_beats_come_back(void **state)
{
    struct cmn_rank_status mine = {.rank = top.rank, .stalled = 7777}, all[5];

    (void)state;
    if (!h) {
        return;
    }
    snprintf(mine.phase, sizeof mine.phase, "backward");
    CHECK(!cmn_heartbeat_connected(h));
    CHECK(connected_after(2 * GIVEN_UP_MS) <= 4 * LOOK_MS);
    cmn_heartbeat_beat(h, &mine, 1);
    MPI_Barrier(top.world);
    look();
    memset(all, 0, sizeof all);
    cmn_heartbeat_see(h, all);
    for (int i = 1; top.rank == 0 && i < top.size; i++) {
        CHECK(all[i].stalled == 7777 && !strcmp(all[i].phase, "backward"));
    }
    CHECK(top.rank == 0 || (cmn_heartbeat_elsewhere(h, 1000) && all[0].state == CMN_RANK_ALIVE));
    for (int i = 0; i < 8; i++) {
        cmn_heartbeat_look(h, LOOK_MS, 1); /* nothing comes */
    }
    CHECK(seen(!top.rank) == CMN_RANK_UNHEARD);
    CHECK(top.rank == 0 || !cmn_heartbeat_elsewhere(h, 1000));
    MPI_Barrier(top.world);
    if (top.rank == 1) {
        cmn_heartbeat_tell(h, CMN_MESSAGE_DIAGNOSED);
    }
    MPI_Barrier(top.world);
    look();
    CHECK(cmn_heartbeat_diagnosed(h) == (top.rank == 0));
    fail_on_all_ranks();
}

/* ---- listeners that are none of ours ---- */

enum wrong { SILENT, GARBAGE, CLOSES, REFUSES, ECHOES, WRONGS };

static struct {
    int listener, peer;
    enum wrong how;
    size_t got;
    char first[2 * sizeof(struct cmn_message)]; /* what came */
} wrong;

/* On rank 1: such a listener comes before those of rank 0. */
static void begin_wrong(enum wrong how)
{
    struct cmn_addresses *p = cmn_heartbeat_place(h);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof a;

    memset(&wrong, 0, sizeof wrong);
    wrong.how = how;
    wrong.peer = -1;
    wrong.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(!bind(wrong.listener, (struct sockaddr *)&a, sizeof a));
    CHECK(how == REFUSES || !listen(wrong.listener, 8));
    CHECK(!getsockname(wrong.listener, (struct sockaddr *)&a, &bytes));
    memmove(&p->address[1], &p->address[0], sizeof p->address - sizeof p->address[0]);
    memcpy(&p->address[0], &a, sizeof a);
    p->n += p->n < CMN_ADDRESSES;
}

static void attend_wrong(void)
{
    char garbage[4096];
    ssize_t got;

    if (wrong.peer < 0) {
        wrong.peer = accept4(wrong.listener, NULL, NULL, SOCK_NONBLOCK);
    }
    if (wrong.peer < 0) {
        return;
    }
    got = recv(wrong.peer, wrong.first + wrong.got, sizeof wrong.first - wrong.got, 0);
    wrong.got += got > 0 ? (size_t)got : 0;
    if (wrong.how == CLOSES) {
        close(wrong.peer);
        wrong.peer = -1;
    } else if (wrong.how == GARBAGE) {
        memset(garbage, 'x', sizeof garbage);
        (void)!send(wrong.peer, garbage, sizeof garbage, MSG_NOSIGNAL);
    } else if (wrong.how == ECHOES && got > 0) {
        (void)!send(wrong.peer, wrong.first, wrong.got, MSG_NOSIGNAL);
    }
}

static void end_wrong(void)
{
    if (wrong.peer >= 0) {
        close(wrong.peer);
    }
    close(wrong.listener);
}

/* Each way to be the wrong one; the silent one takes longest. It gets one greeting, which tells
 * nothing: no status, and nothing that proves anything to another listener. */
static void a_wrong_listener_is_given_up(void **state)
{
    struct cmn_message m;

    if (!h) {
        return;
    }
    for (enum wrong how = 0; how < WRONGS; how++) {
        int connected = 0;
        long ms;
        if (top.rank == 1) {
            begin_wrong(how);
        }
        for (ms = 0; ms <= GIVEN_UP_MS + 4 * LOOK_MS && !connected; ms += LOOK_MS) {
            look();
            if (top.rank == 1) {
                attend_wrong();
            }
            CHECK(top.rank != 1 || !cmn_heartbeat_connected(h) || ms > 0);
            connected = cmn_heartbeat_connected(h);
            MPI_Allreduce(MPI_IN_PLACE, &connected, 1, MPI_INT, MPI_MIN, top.world);
        }
        CHECK_SAYING(connected, "listener %d", how);
        CHECK_SAYING(ms <= (how == SILENT ? GIVEN_UP_MS + 3 * LOOK_MS : 7 * LOOK_MS),
                     "listener %d: %ld ms", how, ms);
        if (top.rank == 1) {
            CHECK(wrong.got == (how == REFUSES ? 0 : sizeof m));
            memcpy(&m, wrong.first, sizeof m);
            for (size_t i = 0; i < sizeof m.rank; i++) {
                CHECK(((char *)&m.rank)[i] == 0);
            }
            end_wrong();
        }
        end(state);
        begin(state);
        fail_on_all_ranks();
    }
}

/* Two silent ones in turn, and the right one once more after a cut: at once. */
static void the_right_address_is_kept(void **state)
{
    int first = -1;
    long ms;

    (void)state;
    if (!h) {
        return;
    }
    if (top.rank == 1) {
        begin_wrong(SILENT);
        first = wrong.listener;
        begin_wrong(SILENT);
    }
    ms = connected_after(10 * GIVEN_UP_MS);
    CHECK_SAYING(ms > GIVEN_UP_MS && ms <= 2 * GIVEN_UP_MS + 4 * LOOK_MS, "%ld ms", ms);
    if (top.rank == 0) {
        for (int fd = 3; fd < 200; fd++) {
            struct sockaddr_storage a;
            socklen_t bytes = sizeof a;
            struct sockaddr_storage *mine = cmn_heartbeat_place(h)->address;
            if (!getpeername(fd, (struct sockaddr *)&a, &bytes) &&
                !getsockname(fd, (struct sockaddr *)&a, &bytes) &&
                !memcmp(&a, mine, sizeof(struct sockaddr_in))) {
                shutdown(fd, SHUT_RDWR); /* by a firewall, say */
            }
        }
    }
    MPI_Barrier(top.world);
    look();
    CHECK(!cmn_heartbeat_connected(h));
    ms = connected_after(GIVEN_UP_MS);
    CHECK_SAYING(ms <= 6 * LOOK_MS, "%ld ms", ms);
    CHECK(seen(!top.rank) == CMN_RANK_ALIVE);
    if (top.rank == 1) {
        end_wrong();
        close(first);
    }
    fail_on_all_ranks();
}

/* ---- strangers ---- */

/* On rank 0: connects to it `n` times; what strangers then do follows from i. They know a
 * greeting that was right once. Returns how many of them are held open. */
static int come(int *stranger, int n, uint32_t from, const struct cmn_message *greeting)
{
    const struct sockaddr_storage *to = &cmn_heartbeat_place(h)->address[0];
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr = {htonl(from)}};
    struct linger at_once = {1, 0};
    int held = 0;

    for (int i = 0; i < n; i++) {
        int fd = socket(to->ss_family, SOCK_STREAM, 0);
        if (from && to->ss_family == AF_INET) {
            CHECK(!bind(fd, (struct sockaddr *)&source, sizeof source));
        }
        CHECK(!connect(fd, (const struct sockaddr *)to,
                       to->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                                : sizeof(struct sockaddr_in6)));
        switch (i % 4) {
        case 0: /* garbage */
            for (int k = 0; k < 100; k++) {
                (void)!send(fd, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
            }
            break;
        case 1: /* half a message */
            (void)!send(fd, "12345678", 8, MSG_NOSIGNAL);
            break;
        case 2: /* RST */
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            close(fd);
            continue;
        default: /* a replay */
            (void)!send(fd, greeting, sizeof *greeting, MSG_NOSIGNAL);
        }
        stranger[held++] = fd;
    }
    return held;
}

enum { STRANGERS = 1000, AT_A_TIME = 50, ROUNDS = 60 };

/* From addresses that no host of the job has, and from a host of the job. Neither keeps a node
 * from connecting, again and again; places and descriptors are few. */
static void strangers_keep_nobody_out(void **state)
{
    static const uint32_t from[] = {0x7f000002, 0};
    int stranger[STRANGERS], most = 0;
    struct cmn_message greeting;

    (void)state;
    if (!h) {
        return;
    }
    if (top.rank == 1) {
        begin_wrong(CLOSES);
        for (int i = 0; i < 2000 && !wrong.got; i++) {
            cmn_heartbeat_look(h, 1, 1);
            usleep(1000);
            attend_wrong();
        }
        end_wrong();
    }
    MPI_Barrier(top.world);
    CHECK(connected_after(GIVEN_UP_MS) < GIVEN_UP_MS);
    memcpy(&greeting, wrong.first, sizeof greeting);
    MPI_Bcast(&greeting, sizeof greeting, MPI_BYTE, 1, top.world);
    CHECK(greeting.kind == CMN_MESSAGE_HELLO);
    for (size_t turn = 0; turn < COUNT(from); turn++) {
        int held = 0, before = descriptors(), away = 0;
        for (int round = 0; round < ROUNDS; round++) {
            /* Four times a second the node has no leader for a moment, and strangers come. */
            int leads = top.rank != 1 || round % 5;
            if (top.rank) {
                cmn_heartbeat_look(h, SHORT_MS, leads);
                cmn_heartbeat_beat(h, NULL, 0);
            }
            MPI_Barrier(top.world);
            if (top.rank == 0) {
                if (round < STRANGERS / AT_A_TIME) {
                    held += come(stranger + held, AT_A_TIME, from[turn], &greeting);
                }
                cmn_heartbeat_look(h, SHORT_MS, 1);
                CHECK_SAYING(descriptors() - held - before <= 16 + 8 + 2 * top.size,
                             "%d more descriptors", descriptors() - held - before);
                CHECK_SAYING(seen(1) == CMN_RANK_ALIVE, "%d in round %d", seen(1), round);
            }
            MPI_Barrier(top.world);
            away = cmn_heartbeat_connected(h) ? 0 : away + 1;
            most = away > most ? away : most;
        }
        CHECK_SAYING(most <= 10, "away for %d rounds", most);
        while (held) {
            close(stranger[--held]);
        }
    }
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(on_one_node_there_are_none, begin, end),
        cmocka_unit_test_setup_teardown(statuses_reach_rank_0_and_beats_come_back, begin, end),
        cmocka_unit_test_setup_teardown(a_wrong_listener_is_given_up, begin, end),
        cmocka_unit_test_setup_teardown(the_right_address_is_kept, begin, end),
        cmocka_unit_test_setup_teardown(strangers_keep_nobody_out, begin, end),
    };

    return cmocka_run_group_tests_name("heartbeat", tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(group);
}
