/* Signs of life between the watchdogs of different nodes, over TCP of their own: MPI may be what hangs. One watchdog of each node, its
 * speaker, is connected with that of rank 0. Who connects must know a token, which MPI has told all ranks.
 * All calls but open are made by the watchdog's thread, and block nowhere. */
#ifndef CMN_WATCH_NODES_H
#define CMN_WATCH_NODES_H

#include "mpi/topology.h"
#include "watchdog/diagnosis.h"
#include "watchdog/message.h"

struct cmn_heartbeat;

/* Collective, blocking. NULL with 0 on one node, where there is nothing to be sent. 0, or -1 with a reason. */
int cmn_heartbeat_open(struct cmn_heartbeat **n, const struct cmn_topology *t);

/* Takes what has come, and connects where that is missing; `ms` have passed since the last call. `speaks`: this process
 * is its node's speaker now. */
void cmn_heartbeat_look(struct cmn_heartbeat *n, long ms, int speaks);

/* Whether the nodes that this process is to hear of have been heard. */
int cmn_heartbeat_met(const struct cmn_heartbeat *n);

/* Sends a sign of life with views of n ranks of this node; those that move may be left out. */
void cmn_heartbeat_beat(struct cmn_heartbeat *n, const struct cmn_rank_status *view, int views);

/* Sends CMN_MESSAGE_BYE or CMN_MESSAGE_VERDICT to all. */
void cmn_heartbeat_tell(struct cmn_heartbeat *n, enum cmn_message_kind kind);

/* Whether such a verdict has come. */
int cmn_heartbeat_diagnosed(const struct cmn_heartbeat *n);

/* Whether rank 0 sees to it: not where this process is rank 0, or has heard nothing of it for `limit` milliseconds. */
int cmn_heartbeat_elsewhere(const struct cmn_heartbeat *n, long limit);

/* Fills seen[r] for each rank r of other nodes. */
void cmn_heartbeat_see(const struct cmn_heartbeat *n, struct cmn_rank_status *seen);

#endif
