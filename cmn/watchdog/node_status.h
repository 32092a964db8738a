/* node_status: the statuses of the ranks of a node, in memory that they share. */
#ifndef CMN_NODE_STATUS_H
#define CMN_NODE_STATUS_H

#include "config/options.h"
#include "mpi/topology.h"
#include "watchdog/diagnosis.h"

struct cmn_node_status;

/* Collective over the node, blocking. Must be called by the main thread. Moves this rank's status
 * to the shared memory. t and o must outlive the result. If the ranks cannot share memory, each
 * knows only its own status, and `why` (room for `bytes` bytes) says why; otherwise it is "". */
struct cmn_node_status *cmn_node_status_open(const struct cmn_topology *t,
                                             const struct cmn_options *o, char *why, size_t bytes);

/* All functions below are local, do not block, and are called by the watchdog's thread. */

/* Counts for each rank how long it has given no heartbeat. `ms` milliseconds have passed since the
 * last call. */
void cmn_node_status_look(struct cmn_node_status *s, long ms);

/* Returns the number of ranks of this node whose statuses are known: all, or 1. */
int cmn_node_status_known(const struct cmn_node_status *s);

/* Returns whether this rank is the node leader: no rank before it gives heartbeats. */
int cmn_node_status_leads(const struct cmn_node_status *s);

/* Reads what is known of the i-th of these ranks. */
void cmn_node_status_read(const struct cmn_node_status *s, int i, struct cmn_rank_status *v);

/* cmn_node_status_tell() tells the watchdogs of this node that the job is about to be ended.
 * cmn_node_status_diagnosed() returns whether one of them has told so. */
int cmn_node_status_diagnosed(const struct cmn_node_status *s);
void cmn_node_status_tell(struct cmn_node_status *s);

/* Thread-safe. Returns whether all ranks of this node have done their part, or are about to end. */
int cmn_node_status_ended(const struct cmn_node_status *s);

#endif
