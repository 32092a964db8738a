/* The block of gradients is cut into shards for the exchange between nodes. One rank of each node,
 * the shard's owner, sends it.
 *
 * Shards depend only on the tensors and the number of owners. So what a compressor does to a shard
 * does not depend on which shards are exchanged together (a bucket). Local. */
#ifndef CMN_SHARDS_H
#define CMN_SHARDS_H

#include <stddef.h>

#include "transports/exchange.h"

struct cmn_shard {
    size_t at, n; /* floats: offset from the block's begin, length */
    int rows;     /* the shard is a row-major matrix of rows × n / rows; 0: it is not a matrix */
    int owner;    /* intra_rank of the rank that sends it, on each node */
    int exact;    /* 1: it is sent unchanged, never through a lossy compressor */
};

struct cmn_shards {
    struct cmn_shard *shard; /* in the order of the block; the metrics are the last shard */
    int shards;
};

/* Tensors of fewer floats are sent unchanged: they are few bytes, and biases and scales matter. */
enum { CMN_SHARD_EXACT_BELOW = 4096 };

/* Cuts the tensors, which lie in `block` in this order, and the metrics behind the block into
 * shards for `owners` ranks of a node. With whole_tensors each tensor of CMN_SHARD_EXACT_BELOW
 * floats or more is one shard. Free with cmn_shards_close(). */
void cmn_shards_open(struct cmn_shards *p, const struct cmn_span *tensor, int tensors,
                     const struct cmn_span *block, size_t metrics, int owners, int whole_tensors);

void cmn_shards_close(struct cmn_shards *p);

#endif
