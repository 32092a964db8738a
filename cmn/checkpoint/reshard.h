/* What a rank gets of a checkpoint: its own part, or one made of the parts of all the ranks that wrote it. All local. */
#ifndef CMN_CHECKPOINT_MERGE_H
#define CMN_CHECKPOINT_MERGE_H

#include "checkpoint/gather.h"

struct cmn_made; /* of all old ranks' sections; kept, as each rank asks for it */

struct cmn_reshard {
    const struct cmn_checkpoint_file *from;
    const struct cmn_checkpoint_origin *by;
    struct cmn_made *made; /* NULL to begin with */
};

/* What `rank` is to get of the part `want`, whose data are not looked at. *data is the merger's, or the file's; NULL: nothing. 0, or -1 with a
 * reason: the file does not hold what it should. */
int cmn_reshard_find(struct cmn_reshard *m, const struct cmn_checkpoint_item *want, int rank,
                     const void **data, size_t *bytes);

/* Frees what was made. */
void cmn_reshard_end(struct cmn_reshard *m);

#endif
