/* How the block of gradients is cut for the exchange between nodes: shards, and which rank of a node sends each.
 *
 * Shards follow from the tensors alone, so what a compressor does to a shard does not depend on which shards are
 * exchanged together (a bucket). Pure bookkeeping: all local. */
#ifndef CMN_PIECES_H
#define CMN_PIECES_H

#include <stddef.h>

/* n floats at data; a matrix of rows × n / rows, row by row, or, with rows = 0, none. */
struct cmn_span {
    float *data;
    size_t n;
    int rows;
};

struct cmn_shard {
    size_t at, n; /* floats from the block's begin */
    int rows;     /* the shard is a matrix of rows × n / rows, row by row; 0: it is none */
    int owner;    /* the rank of each node (by intra_rank) that sends it */
    int whole;    /* 1: travels as it is, never through a lossy compressor */
};

struct cmn_shards {
    struct cmn_shard *shard; /* in the order of the block; the metrics is the last */
    int shards;
};

/* Tensors below this many floats travel whole: they are few bytes, and biases and scales matter. */
enum { CMN_SHARD_WHOLE = 4096 };

/* Cuts the tensors, which lie in the order of `block`, and the metrics behind it for `owners` ranks a node. With whole_tensors
 * each tensor that is not small is one shard. 0, or -1 with a reason. */
int cmn_shards_open(struct cmn_shards *p, const struct cmn_span *tensor, int tensors,
                    const struct cmn_span *block, size_t metrics, int owners, int whole_tensors);

void cmn_shards_close(struct cmn_shards *p);

#endif
