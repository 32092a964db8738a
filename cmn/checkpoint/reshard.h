/* What a rank gets of a checkpoint: its own tensor, or one made of those of all the ranks that
 * wrote it. Local. */
#ifndef CMN_CHECKPOINT_RESHARD_H
#define CMN_CHECKPOINT_RESHARD_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/reader.h"

struct cmn_merged; /* of all old ranks' tensors; kept, as each rank asks for it */

struct cmn_reshard {
    const struct cmn_checkpoint_file *from;
    const struct cmn_checkpoint_origin *by;
    struct cmn_merged *merged; /* NULL to begin with */
};

/* The bytes that `rank` is to get for an item, whose data are not looked at. *bytes: how many; 0:
 * nothing. They belong to r or to the file. A file that lacks it ends the job. */
const void *cmn_reshard_find(struct cmn_reshard *r, const struct cmn_checkpoint_item *item,
                             int rank, size_t *bytes);

/* Frees what was merged. */
void cmn_reshard_end(struct cmn_reshard *r);

#endif
