/* heartbeat: heartbeats between the watchdogs of different nodes, by UDP, since MPI may be what
 * hangs.
 *
 * The leader of each node sends rank 0's watchdog what it knows of its node's ranks, and rank 0
 * sends heartbeats back.
 *
 * Each datagram has a MAC with a key that MPI has given to all ranks, and a growing number, so
 * forged and recorded datagrams are ignored. Only the newest datagram counts: a lost one costs
 * time, and nothing else. All functions except cmn_heartbeat_open() are local, are called by the
 * watchdog's thread, and do not block. */
#ifndef CMN_HEARTBEAT_H
#define CMN_HEARTBEAT_H

#include "mpi/topology.h"
#include "watchdog/diagnosis.h"

struct cmn_heartbeat;

/* What a node tells once; it then holds for the rest of the job. */
enum {
    CMN_BEAT_BYE = 1,      /* the node's part ends as it should */
    CMN_BEAT_DIAGNOSED = 2 /* the job is about to be ended */
};

/* Collective, blocking. On one node nothing is sent. */
struct cmn_heartbeat *cmn_heartbeat_open(const struct cmn_topology *t);

/* Only tests need this, since they open several; a watchdog lives as long as its process. */
void cmn_heartbeat_close(struct cmn_heartbeat *h);

/* Takes the datagrams that have come. `ms` milliseconds have passed since the last call. `leads`:
 * this process is its node's leader now. */
void cmn_heartbeat_look(struct cmn_heartbeat *h, long ms, int leads);

/* Sends a heartbeat with the statuses of the n ranks of this node that make no progress, in the
 * order of their ranks. */
void cmn_heartbeat_beat(struct cmn_heartbeat *h, const struct cmn_rank_status *rank, int n);

/* Sends CMN_BEAT_BYE or CMN_BEAT_DIAGNOSED, several times because datagrams get lost. */
void cmn_heartbeat_tell(struct cmn_heartbeat *h, unsigned what);

/* Returns whether CMN_BEAT_DIAGNOSED has come, or was sent. */
int cmn_heartbeat_diagnosed(const struct cmn_heartbeat *h);

/* Returns whether rank 0 diagnoses. Returns 0 if this process is rank 0, if rank 0 has said
 * goodbye, or if it has not been heard for `limit` milliseconds. */
int cmn_heartbeat_elsewhere(const struct cmn_heartbeat *h, long limit);

/* Fills seen[r] for each rank r of other nodes. */
void cmn_heartbeat_see(const struct cmn_heartbeat *h, struct cmn_rank_status *seen);

#endif
