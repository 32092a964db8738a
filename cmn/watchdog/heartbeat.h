/* Heartbeats between the watchdogs of different nodes, over TCP connections of their own: MPI may
 * be what hangs. The leader of each node is connected with rank 0's watchdog: it sends what it
 * knows of its node's ranks, and gets heartbeats back.
 *
 * Connections, not datagrams: TCP's acknowledgements come from the other host's kernel, so they
 * tell a stopped process from a dead host, and a connection's end tells that a process has ended.
 * Whoever connects must know a token, which MPI has given to all ranks; what it sends is checked
 * all the same.
 *
 * All calls but open are local, made by the watchdog's thread, and do not block. */
#ifndef CMN_HEARTBEAT_H
#define CMN_HEARTBEAT_H

#include <stdint.h>

#include "mpi/topology.h"
#include "watchdog/diagnosis.h"

enum cmn_message_kind {
    /* A heartbeat: this node's ranks move, but for those of messages CMN_MESSAGE_RANK before it. */
    CMN_MESSAGE_BEAT = 1,
    CMN_MESSAGE_RANK,      /* the status of a rank that does not move */
    CMN_MESSAGE_BYE,       /* the node's part ends as it should */
    CMN_MESSAGE_DIAGNOSED, /* the job is about to be ended */
};

struct cmn_heartbeat;

/* Collective, blocking. NULL on one node, where there is nothing to send. */
struct cmn_heartbeat *cmn_heartbeat_open(const struct cmn_topology *t);

/* Takes what has come, and connects where a connection is missing; `ms` have passed since the last
 * call. `leads`: this process is its node's leader now. */
void cmn_heartbeat_look(struct cmn_heartbeat *h, long ms, int leads);

/* Whether all nodes that this process is to hear have been heard. */
int cmn_heartbeat_met(const struct cmn_heartbeat *h);

/* Sends a heartbeat, and the status of n ranks of this node that do not move. */
void cmn_heartbeat_beat(struct cmn_heartbeat *h, const struct cmn_rank_status *rank, int n);

/* Sends CMN_MESSAGE_BYE or CMN_MESSAGE_DIAGNOSED to all. */
void cmn_heartbeat_tell(struct cmn_heartbeat *h, enum cmn_message_kind kind);

/* Whether CMN_MESSAGE_DIAGNOSED has come. */
int cmn_heartbeat_diagnosed(const struct cmn_heartbeat *h);

/* Whether rank 0 diagnoses: not where this process is rank 0, or has not heard it for `limit`
 * milliseconds. */
int cmn_heartbeat_elsewhere(const struct cmn_heartbeat *h, long limit);

/* Fills seen[r] for each rank r of other nodes. */
void cmn_heartbeat_see(const struct cmn_heartbeat *h, struct cmn_rank_status *seen);

/* ---- what is sent, for tests and fuzzing ---- */

enum { CMN_TOKEN = 16 };

/* Numbers are as processors have them: the nodes of a job have equal processors, and run the
 * same program. */
struct cmn_message {
    unsigned char token[CMN_TOKEN];
    uint32_t kind, node;
    struct cmn_rank_status rank; /* of CMN_MESSAGE_RANK; the host is known otherwise */
};

struct cmn_connection {
    int fd, node; /* fd: -1 where there is none; node: -1 while the peer is unauthenticated */
    int connecting;
    long age;         /* milliseconds, while it is unauthenticated or connecting */
    size_t got, left; /* bytes of `in`; of `out`, from its begin */
    unsigned char in[sizeof(struct cmn_message)], out[sizeof(struct cmn_message)];
};

/* Takes the socket over. */
void cmn_connection_open(struct cmn_connection *c, int fd, int node);

enum { CMN_CONNECTION_ENDED = -1, CMN_CONNECTION_BAD = -2 };

/* The next message. 1; 0 when none is complete; CMN_CONNECTION_ENDED (errno says why, 0: orderly);
 * CMN_CONNECTION_BAD: what came is nothing that a watchdog of this job sends. */
int cmn_connection_next(struct cmn_connection *c, const unsigned char *token, int nodes, int ranks,
                        struct cmn_message *m);

#endif
