/* What each rank has of a training on its way to rank 0, whose checkpoint holds it, and back. Knows bytes with names.
 *
 * What a rank has like rank 0 is neither sent nor stored twice. */
#ifndef CMN_CHECKPOINT_RANKS_H
#define CMN_CHECKPOINT_RANKS_H

#include <stddef.h>

#include "checkpoint/checkpoint.h"
#include "mpi/topology.h"

/* What becomes of a part where the ranks are not those that wrote it. */
enum cmn_merge {
    CMN_MERGE_FIRST, /* rank 0's */
    CMN_MERGE_SUM,   /* floats: the sum over the old ranks */
    CMN_MERGE_MEAN,  /* floats: their mean */
    CMN_MERGE_ROWS,  /* all ranks' rows one behind the other, cut anew */
    CMN_MERGE_DROP   /* nothing: it belongs to its rank */
};

struct cmn_checkpoint_item {
    char name[CMN_SECTION_NAME];
    enum cmn_merge merge;
    void *data; /* the caller's */
    size_t bytes;
    float scale;      /* FIRST, SUM: other ranks' floats are multiplied by it; 0: they become 0 */
    size_t row_bytes; /* ROWS */
    size_t first_row; /* of all ranks' */
    int of_exchange;  /* it means nothing to another communicator, or on other nodes */
    int optional;     /* a file may be without it, and that is no damage */
    size_t got;       /* scatter: bytes that were there; what was not is left as it was */
};

/* Collective, blocking. All ranks' parts become sections of `to` (rank 0; NULL elsewhere). The snapshot may fail to take them: then *kept
 * becomes 0, with a reason, and the others are as if nothing had happened. 0, or -1 with a reason. */
int cmn_checkpoint_gather(const struct cmn_checkpoint_item *part, int parts,
                          struct cmn_snapshot *to, int *kept, const struct cmn_topology *t);

/* Who wrote the file. */
struct cmn_checkpoint_origin {
    int ranks;
    int same;  /* as many as now: each gets its own */
    int alike; /* on the same nodes, by the same communicator */
};

/* Collective, blocking. Fills parts from a file (rank 0's; NULL elsewhere), and got. 0, or -1 with a reason. */
int cmn_checkpoint_scatter(struct cmn_checkpoint_item *part, int parts,
                           const struct cmn_checkpoint_file *from,
                           const struct cmn_checkpoint_origin *by, const struct cmn_topology *t);

#endif
