/* The statuses of the ranks of a node, in memory that they share. */
#ifndef CMN_NODE_STATUS_H
#define CMN_NODE_STATUS_H

#include "config/options.h"
#include "mpi/topology.h"
#include "watchdog/diagnosis.h"

struct cmn_node_status;

/* Collective over the node, blocking; called by the main thread. This rank's status moves there. t
 * and o must outlive it. NULL with a reason on all ranks where they cannot share memory: then each
 * knows its own status alone. */
struct cmn_node_status *cmn_node_status_open(const struct cmn_topology *t,
                                             const struct cmn_options *o);

/* All that follows is local, does not block, and is called by the watchdog's thread. */

/* `ms` have passed: counts for each rank how long it has given no heartbeat. */
void cmn_node_status_look(struct cmn_node_status *s, long ms);

/* Whether this rank is the node leader: no rank before it gives heartbeats. */
int cmn_node_status_leads(const struct cmn_node_status *s);

/* What is known of a rank of this node, by its number there. */
void cmn_node_status_read(const struct cmn_node_status *s, int intra_rank,
                          struct cmn_rank_status *v);

/* Whether a watchdog of this node has told the others that the job is about to be ended; tells
 * them. */
int cmn_node_status_diagnosed(const struct cmn_node_status *s);
void cmn_node_status_tell(struct cmn_node_status *s);

/* Thread-safe. Whether all ranks of this node have done their part, or are about to end. */
int cmn_node_status_ended(const struct cmn_node_status *s);

/* What is known of this rank alone. */
void cmn_rank_status_read(const struct cmn_status *r, const struct cmn_topology *t,
                          struct cmn_rank_status *v);

#endif
