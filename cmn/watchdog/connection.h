/* One TCP connection between the watchdogs of two nodes, and what is sent over it.
 *
 * Both ends know the job's key, which never travels here. A connection begins with three greetings:
 *
 *     connector   CMN_MESSAGE_HELLO with a nonce
 *     listener    CMN_MESSAGE_HELLO with a nonce of its own     the connector knows the listener
 *     connector   CMN_MESSAGE_HELLO                             the listener knows the connector
 *
 * Each message has a MAC (HMAC-SHA256): over the key, the sender's role, the nonce of the receiver
 * (none in the first greeting), the number of the message, and the message. So what was recorded
 * is of no use in another connection, in the other direction, or a second time.
 *
 * All calls are local, made by one thread, and do not block. */
#ifndef CMN_CONNECTION_H
#define CMN_CONNECTION_H

#include <stddef.h>
#include <stdint.h>

#include "mpi/listener.h"
#include "watchdog/diagnosis.h"

enum { CMN_MAC = 32, CMN_NONCE = 16 };

enum cmn_message_kind {
    CMN_MESSAGE_HELLO = 1, /* the greeting */
    /* A heartbeat: this node's ranks move, but for those of messages CMN_MESSAGE_RANK before it. */
    CMN_MESSAGE_BEAT,
    CMN_MESSAGE_RANK,      /* the status of a rank that does not move */
    CMN_MESSAGE_BYE,       /* the node's part ends as it should */
    CMN_MESSAGE_DIAGNOSED, /* the job is about to be ended */
};

/* Numbers are as processors have them: the nodes of a job have equal processors, and run the
 * same program. */
struct cmn_message {
    unsigned char mac[CMN_MAC];
    uint32_t kind, node;
    unsigned char nonce[CMN_NONCE]; /* of a greeting */
    struct cmn_rank_status rank;    /* of CMN_MESSAGE_RANK; the host is known otherwise */
};

/* The job, as its connections must know it. */
struct cmn_connection_job {
    unsigned char key[CMN_KEY];
    int nodes, ranks, node; /* node: of this process */
};

enum cmn_connection_role { CMN_CONNECTOR = 1, CMN_LISTENER };

struct cmn_connection {
    int fd; /* -1 where there is none */
    enum cmn_connection_role role;
    uint64_t received, sent; /* messages */
    unsigned char nonce[CMN_NONCE], peer_nonce[CMN_NONCE];
    size_t got, left; /* bytes of `in`; of `out`, from its begin */
    unsigned char in[sizeof(struct cmn_message)], out[sizeof(struct cmn_message)];

    /* the owner's */
    int node; /* the peer's, -1 until it is authenticated */
    int connecting;
    int foreign;           /* from an address that no host of the job has */
    long age;              /* milliseconds, while it is unauthenticated */
    unsigned long arrival; /* a number that grows with each peer */
};

/* Takes the socket over. 0, or -1: there are no random numbers, and the socket is closed. */
int cmn_connection_open(struct cmn_connection *c, int fd, enum cmn_connection_role role);

void cmn_connection_close(struct cmn_connection *c);

/* What these return when the connection is of no use any more; CMN_CONNECTION_ENDED: errno says
 * why, 0: orderly; CMN_CONNECTION_BAD: the peer is no watchdog of this job. */
enum { CMN_CONNECTION_ENDED = -1, CMN_CONNECTION_BAD = -2 };

/* The connector's first greeting. 0, or CMN_CONNECTION_ENDED. */
int cmn_connection_greet(struct cmn_connection *c, const struct cmn_connection_job *job);

/* Sends what is left, then the message, whose kind and rank are the caller's. One that finds no
 * room is left out: heartbeats come again. 0, or CMN_CONNECTION_ENDED. */
int cmn_connection_send(struct cmn_connection *c, const struct cmn_connection_job *job,
                        struct cmn_message *m);

/* The next message of a peer that is authenticated now; the greeting that made it so comes first.
 * 1; 0 when none is complete; or one of the above. */
int cmn_connection_next(struct cmn_connection *c, const struct cmn_connection_job *job,
                        struct cmn_message *m);

/* HMAC-SHA256 (RFC 2104). */
void cmn_connection_mac(unsigned char mac[CMN_MAC], const unsigned char key[CMN_KEY],
                        const void *data, size_t bytes);

#endif
