#include "communicators/buckets.h"

#include <stdlib.h>

#include "base/log.h"

struct cmn_bucket *cmn_bucket_next(struct cmn_bucket **list, int *room, int begun,
                                   const struct cmn_shards *shards, size_t upto)
{
    const struct cmn_bucket *last;
    struct cmn_bucket *b;

    if (begun == *room) {
        int more = *room ? 2 * *room : 64;
        b = realloc(*list, (size_t)more * sizeof *b);
        if (!b) {
            cmn_fail("out of memory");
            return NULL;
        }
        *list = b;
        *room = more;
    }
    last = begun ? &(*list)[begun - 1] : NULL;
    b = &(*list)[begun];
    *b = (struct cmn_bucket){.from = last ? last->to : 0, .shard = last ? last->shard : 0};
    b->to = b->from;
    /* Small tensors of two layers may be one shard. */
    while (b->shard < shards->shards &&
           shards->shard[b->shard].at + shards->shard[b->shard].n <= upto) {
        b->to = shards->shard[b->shard].at + shards->shard[b->shard].n;
        b->shard++;
    }
    return b;
}
