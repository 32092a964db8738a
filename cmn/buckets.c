#include "buckets.h"

#include <stdlib.h>

#include "log.h"

struct cmn_bucket *cmn_bucket_next(struct cmn_bucket **list, int *room, int begun,
                                   const struct cmn_pieces *pieces, size_t upto)
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
    *b = (struct cmn_bucket){.from = last ? last->to : 0, .piece = last ? last->piece : 0};
    b->to = b->from;
    /* Small tensors of two layers may be one piece. */
    while (b->piece < pieces->pieces &&
           pieces->piece[b->piece].at + pieces->piece[b->piece].n <= upto) {
        b->to = pieces->piece[b->piece].at + pieces->piece[b->piece].n;
        b->piece++;
    }
    return b;
}
