/* Chooses what a rank gets from a checkpoint: its own tensor, or one that is merged from the
 * tensors of all the ranks that wrote it. Local. */
#ifndef CMN_CHECKPOINT_RESHARD_H
#define CMN_CHECKPOINT_RESHARD_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/reader.h"

struct cmn_merged; /* a merged tensor, kept because each rank asks for it */

struct cmn_reshard {
    const struct cmn_checkpoint_file *from;
    const struct cmn_checkpoint_origin *by;
    struct cmn_merged *merged; /* a list; NULL at first */
};

/* Returns the bytes that `rank` gets for an item, and sets *bytes to their number; NULL and 0 if it
 * gets nothing. r or the file owns them. Does not use item->data. Ends the job if the file has too
 * few bytes for an item that is not optional. */
const void *cmn_reshard_find(struct cmn_reshard *r, const struct cmn_checkpoint_item *item,
                             int rank, size_t *bytes);

/* Frees the merged tensors. */
void cmn_reshard_end(struct cmn_reshard *r);

#endif
