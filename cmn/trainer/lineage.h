/* Which training a checkpoint belongs to.
 *
 * A training draws an id when it begins and keeps it through all restarts; each checkpoint contains
 * it. The attempts of one cmn-run continue one training: cmn-run passes the last report of the
 * attempt before in OMPI_CMN_REACHED. So if rank 0 of an attempt runs on another host with its own
 * backup folder, it neither takes another training's checkpoint nor starts from the beginning. All
 * calls are local, for rank 0. */
#ifndef CMN_LINEAGE_H
#define CMN_LINEAGE_H

#include "trainer/checkpoint_contents.h"

/* Returns whether the newest checkpoint belongs to the training that an earlier attempt began; this
 * attempt must then not obey -clear again. */
int cmn_lineage_is_continued(const struct cmn_checkpointing *c);

/* Sets the training's id (from c->file if there is one, else from the earlier attempt, else a new
 * one) and reports it to cmn-run. Returns 0, or -1 with a reason if continuing from c->file, or
 * without a checkpoint, would lose what the earlier attempt has reached. c->file must fit this
 * training. */
int cmn_lineage_begin(struct cmn_checkpointing *c);

/* Reports to cmn-run, as an event of this kind, how far the training has come and on which host.
 * `seen` counts images; iteration -1 means that there is no checkpoint yet. */
void cmn_lineage_tell(const struct cmn_checkpointing *c, const char *kind, long iteration,
                      size_t seen);

#endif
