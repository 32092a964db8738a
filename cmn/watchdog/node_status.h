/* The notes of the ranks of a node, in memory that they share. */
#ifndef CMN_WATCH_SHARED_H
#define CMN_WATCH_SHARED_H

#include "config/options.h"
#include "mpi/topology.h"
#include "watchdog/diagnosis.h"

struct cmn_node_status;

/* Collective over the node, blocking; called by the main thread. This rank's notes move there. t and o must stay. 0, or -1 with a
 * reason on all ranks: then each knows of itself alone. */
int cmn_node_status_open(struct cmn_node_status **s, const struct cmn_topology *t,
                         const struct cmn_options *o);

/* All that follows is local, does not block, and is the watchdog's thread's. */

/* `ms` have passed: who has given no sign of life meanwhile? */
void cmn_node_status_look(struct cmn_node_status *s, long ms);

/* Whether no rank before this one gives signs of life: it then speaks for the node. */
int cmn_node_status_leads(const struct cmn_node_status *s);

/* What is known of a rank of this node, by its number there. */
void cmn_node_status_read(const struct cmn_node_status *s, int intra_rank,
                          struct cmn_rank_status *v);

/* Whether a watchdog of this node has told the others that the job is about to be ended; to tell it. */
int cmn_node_status_diagnosed(const struct cmn_node_status *s);
void cmn_node_status_tell(struct cmn_node_status *s);

/* Thread-safe. Whether all ranks of this node have done their part, or are about to end. */
int cmn_node_status_ended(const struct cmn_node_status *s);

/* What is known of this rank alone. */
void cmn_rank_status_read(const struct cmn_status *r, const struct cmn_topology *t,
                          struct cmn_rank_status *v);

#endif
