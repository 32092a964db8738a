/* The block of gradients is cut into shards for the exchange between nodes; each shard has one
 * rank of every node that sends it.
 *
 * Shards follow from the tensors alone, so what a compressor does to a shard does not depend on
 * which shards are exchanged together (a bucket). Local. */
#ifndef CMN_SHARDS_H
#define CMN_SHARDS_H

#include <stddef.h>

#include "transports/exchange.h"

struct cmn_shard {
    size_t at, n; /* floats from the block's begin */
    int rows;     /* the shard is a matrix of rows × n / rows, row by row; 0: it is none */
    int owner;    /* the rank of each node (by intra_rank) that sends it */
    int exact;    /* 1: it travels as it is, never through a lossy compressor */
};

struct cmn_shards {
    struct cmn_shard *shard; /* in the order of the block; the metrics are the last */
    int shards;
};

/* Tensors of fewer floats travel exactly: they are few bytes, and biases and scales matter. */
enum { CMN_SHARD_EXACT_BELOW = 4096 };

/* Cuts the tensors, which lie in the order of `block`, and the metrics behind it for `owners`
 * ranks a node. With whole_tensors each tensor that is not small is one shard. */
void cmn_shards_open(struct cmn_shards *p, const struct cmn_span *tensor, int tensors,
                     const struct cmn_span *block, size_t metrics, int owners, int whole_tensors);

void cmn_shards_close(struct cmn_shards *p);

#endif
