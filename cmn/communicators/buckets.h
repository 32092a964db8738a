/* Buckets: what of the gradients is exchanged together. Pure bookkeeping. */
#ifndef CMN_BUCKETS_H
#define CMN_BUCKETS_H

#include <stddef.h>
#include <stdint.h>

#include "compression/shards.h"

struct cmn_bucket {
    size_t from, to;         /* floats of the block */
    int shard;               /* the first that does not end in it */
    uint32_t filled, summed; /* numbers of the barriers of the node's ranks */
    long until;              /* shards of the compressor that have ended when it has */
    double began;
};

/* Local. Number `begun` of *list, which has room for *room and is the caller's to free: it begins where the one before ends, and goes
 * as far as whole shards end below `upto`, which may be nowhere. NULL with a reason when memory is short. */
struct cmn_bucket *cmn_bucket_next(struct cmn_bucket **list, int *room, int begun,
                                   const struct cmn_shards *shards, size_t upto);

#endif
