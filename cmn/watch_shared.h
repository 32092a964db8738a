/* The notes of the ranks of a node, in memory that they share. */
#ifndef CMN_WATCH_SHARED_H
#define CMN_WATCH_SHARED_H

#include "options.h"
#include "topology.h"
#include "watch_verdict.h"

struct cmn_watch_shared;

/* Collective over the node, blocking; called by the main thread. This rank's notes move there. t and o must stay. 0, or -1 with a
 * reason on all ranks: then each knows of itself alone. */
int cmn_watch_shared_open(struct cmn_watch_shared **s, const struct cmn_topology *t,
                          const struct cmn_options *o);

/* All that follows is local, does not block, and is the watchdog's thread's. */

/* `ms` have passed: who has given no sign of life meanwhile? */
void cmn_watch_shared_look(struct cmn_watch_shared *s, long ms);

/* Whether no rank before this one gives signs of life: it then speaks for the node. */
int cmn_watch_shared_speaks(const struct cmn_watch_shared *s);

/* What is known of a rank of this node, by its number there. */
void cmn_watch_shared_see(const struct cmn_watch_shared *s, int intra_rank,
                          struct cmn_watch_view *v);

/* Whether a watchdog of this node has told the others that the job is about to be ended; to tell it. */
int cmn_watch_shared_verdict(const struct cmn_watch_shared *s);
void cmn_watch_shared_tell(struct cmn_watch_shared *s);

/* Thread-safe. Whether all ranks of this node have done their part, or are about to end. */
int cmn_watch_shared_ended(const struct cmn_watch_shared *s);

/* What is known of this rank alone. */
void cmn_watch_see(const struct cmn_watch_record *r, const struct cmn_topology *t,
                   struct cmn_watch_view *v);

#endif
