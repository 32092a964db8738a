/* The watchdogs of nodes hear each other: with datagrams that are lost, and where rank 0 has
 * addresses that lead elsewhere. Each rank is a node; time is what the test says it is. (Datagrams
 * of strangers: tests/unit/watchdog/heartbeat.c.) */
#include "ranks/ranks.h"

#include <arpa/inet.h>

#include "watchdog/heartbeat.c"

enum { LOOK_MS = 250, LIMIT_MS = 2000 };

static struct cmn_topology nodes;
static struct cmn_heartbeat *h;

static void begin(void)
{
    cmn_topology_open_as(&nodes, top.rank);
    h = cmn_heartbeat_open(&nodes);
}

static void end(void)
{
    cmn_heartbeat_close(h);
    cmn_topology_close(&nodes);
}

/* Collective: each watchdog looks once, and sends a heartbeat if `beats`; what was sent before has
 * arrived. */
static void look(int beats)
{
    MPI_Barrier(top.world);
    usleep(2000);
    cmn_heartbeat_look(h, LOOK_MS, 1);
    MPI_Barrier(top.world);
    if (beats) {
        cmn_heartbeat_beat(h, NULL, 0);
    }
}

static struct cmn_rank_status seen(int rank)
{
    struct cmn_rank_status all[5];

    memset(all, 0, sizeof all);
    cmn_heartbeat_see(h, all);
    return all[rank];
}

/* A rank of a node that this one is to hear. */
static int other(void)
{
    return !top.rank;
}

RANK_TEST(on_one_node_there_is_no_socket)
{
    CHECK((h->fd < 0) == (top.size == 1));
}

RANK_TEST(statuses_reach_rank_0_and_beats_come_back)
{
    struct cmn_rank_status mine = {.rank = top.rank, .stalled = 7777};

    if (top.size == 1) {
        return;
    }
    snprintf(mine.phase, sizeof mine.phase, "backward");
    CHECK(seen(other()).state == CMN_RANK_UNKNOWN);
    look(1);
    look(1);
    look(0);
    CHECK(seen(other()).state == CMN_RANK_ALIVE);
    CHECK(top.rank == 0 || cmn_heartbeat_elsewhere(h, LIMIT_MS));
    cmn_heartbeat_beat(h, &mine, 1);
    look(0);
    for (int i = 1; top.rank == 0 && i < top.size; i++) {
        CHECK(seen(i).stalled == 7777 && !strcmp(seen(i).phase, "backward"));
    }
    look(1);
    look(0);
    CHECK(seen(top.size - 1).stalled == 0);
    for (int i = 0; i < 14; i++) {
        cmn_heartbeat_look(h, LOOK_MS, 1); /* nothing comes, and this machine answers */
    }
    CHECK(seen(other()).state == CMN_RANK_UNHEARD);
    CHECK(seen(other()).silent >= LIMIT_MS);
    CHECK(!cmn_heartbeat_elsewhere(h, LIMIT_MS));
    look(1);
    look(0);
    CHECK(seen(other()).state == CMN_RANK_ALIVE);
    if (top.rank == 1) {
        cmn_heartbeat_tell(h, CMN_BEAT_DIAGNOSED);
    }
    look(0);
    CHECK(cmn_heartbeat_diagnosed(h) == (top.rank < 2));
    look(1);
    look(0);
    CHECK(cmn_heartbeat_diagnosed(h)); /* rank 0 has passed it on */
    cmn_heartbeat_tell(h, CMN_BEAT_BYE);
    look(0);
    CHECK(seen(other()).ended && !cmn_heartbeat_elsewhere(h, LIMIT_MS));
}

/* Four of five datagrams, each way. */
RANK_TEST(lost_datagrams_are_no_silence)
{
    if (top.size == 1) {
        return;
    }
    for (int i = 0; i < 200; i++) {
        look(i % 10 == 0);
        CHECK(i < 3 || seen(other()).silent < LIMIT_MS);
        CHECK(i < 13 || top.rank == 0 || cmn_heartbeat_elsewhere(h, LIMIT_MS));
    }
}

/* A socket of none of ours; *at is its address. */
static int stranger(struct sockaddr_storage *at)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof a;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    CHECK(!bind(fd, (struct sockaddr *)&a, sizeof a));
    CHECK(!getsockname(fd, (struct sockaddr *)&a, &bytes));
    memset(at, 0, sizeof *at);
    memcpy(at, &a, sizeof a);
    return fd;
}

/* On rank 1: rank 0's first address leads to a stranger, who sends back what comes. */
RANK_TEST(an_address_that_leads_elsewhere_is_left)
{
    int fd = -1, came = 0;

    if (top.size == 1) {
        return;
    }
    if (top.rank == 1) {
        h->place.address[1] = h->place.address[0];
        h->place.n = 2;
        fd = stranger(&h->place.address[0]);
    }
    for (int i = 0; i < 20; i++) {
        struct datagram d;
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        ssize_t got;
        look(1);
        while (top.rank == 1 &&
               (got = recvfrom(fd, &d, sizeof d, 0, (struct sockaddr *)&from, &bytes)) >= 0) {
            came++;
            (void)!sendto(fd, &d, (size_t)got, 0, (struct sockaddr *)&from, bytes);
        }
        CHECK(i < 2 || seen(other()).state == CMN_RANK_ALIVE);
    }
    CHECK_SAYING(top.rank != 1 || (came > 0 && came <= 2), "%d datagrams", came);
    if (fd >= 0) {
        close(fd);
    }
}

RANK_TESTS(begin, end)
