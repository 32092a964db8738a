/* What a watchdog takes of the datagrams that come, and what it makes of them. Rank 0 has a node,
 * and the other ranks have the other one. */
#include "check.h"

#include <arpa/inet.h>

#include "watchdog/heartbeat.c"

enum { RANKS = 8 };

static struct cmn_heartbeat *here, *there;
static struct sockaddr_storage from;
static int wire; /* what the other node sends comes here */

static struct cmn_heartbeat *open_end(int me)
{
    struct cmn_heartbeat *h = calloc(1, sizeof *h);

    *h = (struct cmn_heartbeat){
        .me = me, .ranks = RANKS, .node = me > 0, .nodes = 3, .speaks = 1, .fd = -1};
    h->rank = calloc(RANKS, sizeof *h->rank);
    h->peer = calloc(3, sizeof *h->peer);
    memset(h->place.key, 7, sizeof h->place.key);
    for (int i = 0; i < RANKS; i++) {
        h->rank[i].node = i > 0;
        h->rank[i].now = (struct cmn_rank_status){.rank = i, .host = "a"};
    }
    for (int i = 0; i < 3; i++) {
        h->peer[i].asks = -1;
    }
    return h;
}

static void begin(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof a;

    assert_return_code(sodium_init(), 0);
    here = open_end(0);
    there = open_end(1);
    wire = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(wire, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(wire, (struct sockaddr *)&a, &bytes), 0);
    there->place.n = 1;
    memcpy(&there->place.address[0], &a, sizeof a);
    memcpy(&from, &a, sizeof a);
    there->fd = socket(AF_INET, SOCK_DGRAM, 0);
}

static void end(void)
{
    cmn_heartbeat_close(here);
    cmn_heartbeat_close(there);
    close(wire);
}

/* The next datagram that the other node has sent; its size. */
static size_t sent(struct datagram *d)
{
    ssize_t got = recv(wire, d, sizeof *d, MSG_TRUNC);

    return got < 0 ? 0 : (size_t)got;
}

static int arrive(const struct datagram *d, size_t bytes)
{
    return take(here, d, bytes, &from);
}

static struct cmn_rank_status stalled(int rank)
{
    struct cmn_rank_status v;

    memset(&v, 0, sizeof v);
    v.rank = rank;
    v.stalled = 7000 + rank;
    v.waiting = 1;
    snprintf(v.phase, sizeof v.phase, "backward %d", rank);
    return v;
}

/* A datagram with one status. */
static size_t one(struct datagram *d)
{
    struct cmn_rank_status v = stalled(3);

    cmn_heartbeat_beat(there, &v, 1);
    return sent(d);
}

/* As who has the key would. */
static void sign(struct datagram *d, size_t bytes)
{
    crypto_auth(d->mac, (unsigned char *)d + sizeof d->mac, bytes - sizeof d->mac, here->place.key);
}

/* Statuses of as many ranks as there are arrive in any order of the datagrams that tell them, and
 * those of which nothing is told move. */
TEST(statuses_of_many_ranks_take_several_datagrams)
{
    struct cmn_rank_status tell[RANKS];
    struct datagram d[3];

    for (int n = 0; n < RANKS; n++) {
        size_t bytes[3] = {0};
        int skipped = n < RANKS - 1 ? 1 + n : 0, datagrams = n <= STATUSES ? 1 : 2;
        for (int i = 0, rank = 1; i < n; i++, rank++) {
            rank += rank == skipped;
            tell[i] = stalled(rank);
        }
        cmn_heartbeat_beat(there, tell, n);
        for (int i = 0; i < 3; i++) {
            bytes[i] = sent(&d[i]);
            assert_int_equal(bytes[i] > 0, i < datagrams);
            assert_int_equal(bytes[i] > 0 && !arrive(&d[i], bytes[i]), 0);
        }
        for (int i = 1; i < RANKS; i++) {
            int told = i != skipped && i <= n + (skipped && skipped <= n);
            assert_int_equal(here->rank[i].now.stalled, told ? 7000 + i : 0);
            assert_int_equal(here->rank[i].now.waiting, told);
            assert_string_equal(here->rank[i].now.host, "a");
        }
    }
}

TEST(no_bit_may_differ)
{
    struct datagram d;
    size_t bytes = one(&d);

    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        ((unsigned char *)&d)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(arrive(&d, bytes), 0);
        ((unsigned char *)&d)[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_int_equal(here->peer[1].heard, 0);
    assert_int_equal(arrive(&d, bytes), 1);
    there->place.key[3] ^= 1;
    bytes = one(&d);
    assert_int_equal(arrive(&d, bytes), 0);
}

TEST(only_the_right_size_is_taken)
{
    struct datagram d[2];
    size_t bytes = one(d);

    for (size_t other = 0; other < sizeof d; other++) {
        assert_int_equal(other != bytes && arrive(d, other), 0);
    }
    assert_int_equal(arrive(d, bytes), 1);
}

/* Of use is a recording neither a second time, nor late, nor at any other place. */
TEST(what_was_recorded_is_ignored)
{
    struct datagram old, newer;
    size_t bytes = one(&old);

    assert_int_equal(one(&newer), bytes);
    assert_int_equal(take(there, &newer, bytes, &from), 0); /* back where it was sent from */
    assert_int_equal(arrive(&newer, bytes), 1);
    here->peer[1].silent = 1234;
    assert_int_equal(arrive(&newer, bytes), 0);
    assert_int_equal(arrive(&old, bytes), 0);
    assert_int_equal(here->peer[1].silent, 1234);
    there->me = 2; /* the node has another leader, with numbers of its own */
    there->sent = 0;
    bytes = one(&old);
    assert_int_equal(arrive(&old, bytes), 1);
    cmn_heartbeat_beat(there, NULL, 0);
    bytes = sent(&old);
    old.sender = 0;
    sign(&old, bytes);
    assert_int_equal(arrive(&old, bytes), 0); /* from itself */
    old.sender = 7;
    sign(&old, bytes);
    there->rank[7].node = 2;
    assert_int_equal(take(there, &old, bytes, &from), 0); /* only rank 0 is heard there */
    assert_int_equal(take(here, &old, bytes, &from), 1);
}

/* Also from who has the key. */
TEST(what_cannot_be_is_ignored)
{
    static const struct {
        size_t at;
        uint32_t value;
    } wrong[] = {
        {offsetof(struct datagram, sender), RANKS},
        {offsetof(struct datagram, sender), UINT32_MAX},
        {offsetof(struct datagram, statuses), 0},
        {offsetof(struct datagram, statuses), 2},
        {offsetof(struct datagram, statuses) + 4, 1},
        {offsetof(struct datagram, first), 4},
        {offsetof(struct datagram, end), 3},
        {offsetof(struct datagram, status[0].rank), RANKS},
        {offsetof(struct datagram, status[0].rank), UINT32_MAX},
        {offsetof(struct datagram, status[0].rank), 0}, /* of another node than the sender's */
        {offsetof(struct datagram, status[0].state), CMN_RANK_STATES},
        {offsetof(struct datagram, status[0].state), UINT32_MAX},
        {offsetof(struct datagram, status[0].stalled) + 4, UINT32_MAX},
        {offsetof(struct datagram, status[0].silent) + 4, UINT32_MAX},
    };
    struct datagram right, d;
    size_t bytes = one(&right);

    for (size_t i = 0; i < COUNT(wrong); i++) {
        d = right;
        memcpy((char *)&d + wrong[i].at, &wrong[i].value, 4);
        sign(&d, bytes);
        if (arrive(&d, bytes)) {
            fail_msg("case %zu is taken", i);
        }
    }
    /* Ranges that reach beyond all ranks do no harm. */
    right.first = INT32_MIN;
    right.end = INT32_MAX;
    sign(&right, bytes);
    assert_int_equal(arrive(&right, bytes), 1);
}

TEST(texts_end_and_do_not_control_terminals)
{
    struct datagram d;
    size_t bytes = one(&d);
    const struct cmn_rank_status *got = &here->rank[3].now;

    memset(d.status[0].phase, 27, sizeof got->phase);
    memset(d.status[0].host, 0x9b, sizeof got->host);
    memset(d.status[0].detail, 127, sizeof got->detail);
    sign(&d, bytes);
    assert_int_equal(arrive(&d, bytes), 1);
    assert_int_equal(strspn(got->phase, "?"), sizeof got->phase - 1);
    assert_int_equal(strlen(got->phase), sizeof got->phase - 1);
    assert_int_equal(strspn(got->detail, "?"), sizeof got->detail - 1);
    assert_int_equal(strlen(got->detail), sizeof got->detail - 1);
    assert_string_equal(got->host, "a");
}

TESTS(begin, end)
