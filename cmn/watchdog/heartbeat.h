/* Heartbeats between the watchdogs of different nodes, over TCP connections of their own: MPI may
 * be what hangs. The leader of each node is connected with rank 0's watchdog: it sends what it
 * knows of its node's ranks, and gets heartbeats back.
 *
 * Connections, not datagrams: TCP's acknowledgements come from the other host's kernel, so they
 * tell a stopped process from a dead host, and a connection's end tells that a process has ended.
 * Who connects, and who listens, must prove to know a key that MPI has given to all ranks
 * (watchdog/connection.h); what comes is checked all the same. Unauthenticated peers have few
 * places, and the longest unauthenticated one makes room for the next.
 *
 * All calls but open are local, made by the watchdog's thread, and do not block. */
#ifndef CMN_HEARTBEAT_H
#define CMN_HEARTBEAT_H

#include "mpi/listener.h"
#include "watchdog/connection.h"

struct cmn_heartbeat;

/* Collective, blocking. NULL on one node, where there is nothing to send. */
struct cmn_heartbeat *cmn_heartbeat_open(const struct cmn_topology *t);

/* Local. A watchdog lives as long as its process; tests open several. */
void cmn_heartbeat_close(struct cmn_heartbeat *h);

/* Takes what has come, and connects where a connection is missing; `ms` have passed since the last
 * call. `leads`: this process is its node's leader now. */
void cmn_heartbeat_look(struct cmn_heartbeat *h, long ms, int leads);

/* Whether all nodes that this process is to hear are connected. */
int cmn_heartbeat_connected(const struct cmn_heartbeat *h);

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

/* ---- for tests ---- */

/* Where rank 0's watchdog listens. A test may put addresses that lead elsewhere before them. */
struct cmn_addresses *cmn_heartbeat_place(struct cmn_heartbeat *h);

#endif
