/* Heartbeats between the watchdogs of different nodes, by UDP: MPI may be what hangs. The leader of
 * each node sends rank 0's watchdog what it knows of its node's ranks, and rank 0 sends heartbeats
 * back.
 *
 * Each datagram has a MAC with a key that MPI has given to all ranks, and a number that grows, so
 * forged and recorded ones are ignored. Only the newest datagram counts: lost ones cost time, and
 * nothing else. All calls but open are local, made by the watchdog's thread, and do not block. */
#ifndef CMN_HEARTBEAT_H
#define CMN_HEARTBEAT_H

#include "mpi/topology.h"
#include "watchdog/diagnosis.h"

struct cmn_heartbeat;

/* What a node tells once, and means from then on. */
enum {
    CMN_BEAT_BYE = 1,      /* the node's part ends as it should */
    CMN_BEAT_DIAGNOSED = 2 /* the job is about to be ended */
};

/* Collective, blocking. NULL on one node, where there is nothing to send. */
struct cmn_heartbeat *cmn_heartbeat_open(const struct cmn_topology *t);

/* A watchdog lives as long as its process; tests open several. */
void cmn_heartbeat_close(struct cmn_heartbeat *h);

/* Takes what has come; `ms` have passed since the last call. `leads`: this process is its node's
 * leader now. */
void cmn_heartbeat_look(struct cmn_heartbeat *h, long ms, int leads);

/* Sends a heartbeat, with the status of the n ranks of this node that do not move. They are in the
 * order of their ranks. */
void cmn_heartbeat_beat(struct cmn_heartbeat *h, const struct cmn_rank_status *rank, int n);

/* Sends CMN_BEAT_BYE or CMN_BEAT_DIAGNOSED, several times. */
void cmn_heartbeat_tell(struct cmn_heartbeat *h, unsigned what);

/* Whether CMN_BEAT_DIAGNOSED has come. */
int cmn_heartbeat_diagnosed(const struct cmn_heartbeat *h);

/* Whether rank 0 diagnoses: not where this process is rank 0, or has not heard it for `limit`
 * milliseconds. */
int cmn_heartbeat_elsewhere(const struct cmn_heartbeat *h, long limit);

/* Fills seen[r] for each rank r of other nodes. */
void cmn_heartbeat_see(const struct cmn_heartbeat *h, struct cmn_rank_status *seen);

#endif
