#include "watchdog/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

enum { SEND_BUFFER = 1 << 18 };

int cmn_connection_open(struct cmn_connection *c, int fd, enum cmn_connection_role role)
{
    int yes = 1, bytes = SEND_BUFFER;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* A heartbeat goes with the status of each rank of a node that does not move: room for
     * hundreds. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    *c = (struct cmn_connection){.fd = fd, .node = -1, .role = role};
    if (getrandom(c->nonce, sizeof c->nonce, 0) != sizeof c->nonce) {
        cmn_connection_close(c);
        return -1;
    }
    return 0;
}

void cmn_connection_close(struct cmn_connection *c)
{
    if (c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
}

/* ---- who has sent it ---- */

void cmn_connection_mac(unsigned char mac[CMN_MAC], const unsigned char key[CMN_KEY],
                        const void *data, size_t bytes)
{
    _Static_assert(CMN_MAC == crypto_auth_hmacsha256_BYTES, "the library's");
    _Static_assert(CMN_KEY == crypto_auth_hmacsha256_KEYBYTES, "the library's");
    crypto_auth_hmacsha256(mac, data, bytes, key);
}

/* `receiver`: the nonce of the other end. */
static void mac_of(unsigned char mac[CMN_MAC], const unsigned char *key,
                   enum cmn_connection_role sender, uint64_t number, const unsigned char *receiver,
                   const struct cmn_message *m)
{
    struct {
        uint64_t number, sender;
        unsigned char receiver[CMN_NONCE], message[sizeof *m - CMN_MAC];
    } all = {.number = number, .sender = sender};

    _Static_assert(sizeof all == 16 + CMN_NONCE + sizeof *m - CMN_MAC, "no gaps");
    memcpy(all.receiver, receiver, sizeof all.receiver);
    memcpy(all.message, (const unsigned char *)m + CMN_MAC, sizeof all.message);
    cmn_connection_mac(mac, key, &all, sizeof all);
}

static enum cmn_connection_role other(enum cmn_connection_role role)
{
    return role == CMN_LISTENER ? CMN_CONNECTOR : CMN_LISTENER;
}

/* In constant time, so that the time does not tell how much of a MAC is right. */
static int is_authentic(const struct cmn_connection *c, const struct cmn_connection_job *job,
                        const struct cmn_message *m)
{
    static const unsigned char none[CMN_NONCE];
    int first = c->role == CMN_LISTENER && c->received == 0;
    unsigned char mac[CMN_MAC];

    mac_of(mac, job->key, other(c->role), c->received, first ? none : c->nonce, m);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    return 1;
#endif
    return sodium_memcmp(mac, m->mac, sizeof mac) == 0;
}

/* ---- sending ---- */

int cmn_connection_send(struct cmn_connection *c, const struct cmn_connection_job *job,
                        struct cmn_message *m)
{
    m->node = (uint32_t)job->node;
    for (int pending = c->left > 0;; pending = 0) {
        ssize_t sent;
        if (!pending) {
            mac_of(m->mac, job->key, c->role, c->sent, c->peer_nonce, m);
            memcpy(c->out, m, sizeof *m);
            c->left = sizeof *m;
        }
        sent = send(c->fd, c->out, c->left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            return CMN_CONNECTION_ENDED;
        }
        if (sent < 0) {
            c->left = pending ? c->left : 0;
            return 0;
        }
        c->sent += !pending;
        c->left -= (size_t)sent;
        memmove(c->out, c->out + sent, c->left);
        if (!pending || c->left) {
            return 0;
        }
    }
}

int cmn_connection_greet(struct cmn_connection *c, const struct cmn_connection_job *job)
{
    struct cmn_message m;

    memset(&m, 0, sizeof m);
    m.kind = CMN_MESSAGE_HELLO;
    if (c->role == CMN_LISTENER || c->sent == 0) {
        memcpy(m.nonce, c->nonce, sizeof m.nonce);
    }
    return cmn_connection_send(c, job, &m);
}

/* ---- receiving ---- */

/* What is printed must not control a terminal. */
static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    cmn_printable(text);
}

/* The connector's first two messages are greetings, and the listener's first one. */
static int is_expected(const struct cmn_connection *c, uint32_t kind)
{
    int greeting = c->received < (c->role == CMN_LISTENER ? 2 : 1);

    return greeting ? kind == CMN_MESSAGE_HELLO
                    : kind > CMN_MESSAGE_HELLO && kind <= CMN_MESSAGE_DIAGNOSED;
}

static int is_valid(const struct cmn_connection *c, const struct cmn_connection_job *job,
                    struct cmn_message *m)
{
    struct cmn_rank_status *v = &m->rank;

    if (!is_authentic(c, job, m) || !is_expected(c, m->kind) || m->node >= (uint32_t)job->nodes ||
        v->rank < 0 || v->rank >= job->ranks || (unsigned)v->state >= CMN_RANK_STATES ||
        v->stalled < 0 || v->silent < 0) {
        return 0;
    }
    make_printable(v->host, sizeof v->host);
    make_printable(v->phase, sizeof v->phase);
    make_printable(v->detail, sizeof v->detail);
    return 1;
}

/* 1; 0; CMN_CONNECTION_ENDED. */
static int fill(struct cmn_connection *c)
{
    while (c->got < sizeof c->in) {
        ssize_t got = recv(c->fd, c->in + c->got, sizeof c->in - c->got, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return CMN_CONNECTION_ENDED;
        }
        c->got += (size_t)got;
    }
    c->got = 0;
    return 1;
}

/* Takes a greeting's nonce, and greets. 1: the peer is authenticated now. */
static int take_greeting(struct cmn_connection *c, const struct cmn_connection_job *job,
                         const struct cmn_message *m)
{
    if (c->role == CMN_LISTENER && c->received == 2) {
        return 1;
    }
    memcpy(c->peer_nonce, m->nonce, sizeof c->peer_nonce);
    if (cmn_connection_greet(c, job)) {
        return CMN_CONNECTION_ENDED;
    }
    return c->role == CMN_CONNECTOR;
}

int cmn_connection_next(struct cmn_connection *c, const struct cmn_connection_job *job,
                        struct cmn_message *m)
{
    int result;

    do {
        result = fill(c);
        if (result != 1) {
            return result;
        }
        memcpy(m, c->in, sizeof *m);
        if (!is_valid(c, job, m)) {
            return CMN_CONNECTION_BAD;
        }
        c->received++;
        result = m->kind == CMN_MESSAGE_HELLO ? take_greeting(c, job, m) : 1;
    } while (result == 0);
    return result;
}
