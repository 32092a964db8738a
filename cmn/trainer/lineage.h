/* Which training a checkpoint belongs to. A training draws an id when it begins, and keeps it
 * through all restarts: each checkpoint names it. The attempts of a cmn-run continue one training:
 * cmn-run hands each of them what the one before has told it last, in OMPI_CMN_REACHED. So an
 * attempt whose rank 0 runs on another host does not take another training's checkpoint, or begin
 * anew, where the backup folder is that host's own. All local, rank 0. */
#ifndef CMN_LINEAGE_H
#define CMN_LINEAGE_H

#include "trainer/checkpoint_contents.h"

/* Whether the newest checkpoint is of the training that an earlier attempt has begun. -clear has
 * been obeyed then. */
int cmn_lineage_is_continued(const struct cmn_checkpointing *c);

/* Gives the training its id, that of c->file (which fits), of the earlier attempt, or a new one, and
 * tells cmn-run. 0, or -1 with a reason: c->file, or that there is none, loses what the earlier
 * attempt has reached. */
int cmn_lineage_begin(struct cmn_checkpointing *c);

/* Tells cmn-run by an event of this kind how far the training has come, and on which host. `seen`:
 * images; an iteration of -1 is before the first checkpoint. */
void cmn_lineage_tell(const struct cmn_checkpointing *c, const char *kind, long iteration,
                      size_t seen);

#endif
