/* What compressors that hold shards for a while share: shards end in the order in which they were begun, and waiting for
 * them has an end. All local. */
#ifndef CMN_ORDER_H
#define CMN_ORDER_H

#include "compression/compressor.h"

struct cmn_shard_queue {
    const struct cmn_compressor_plan *plan;
    int *shard; /* a ring of `room`, of which `under_way` from `first` on are used */
    int room, first, under_way;
    long ended; /* since open */
};

/* `plan` must outlive it. 0, or -1 with a reason. */
int cmn_shard_queue_open(struct cmn_shard_queue *o, const struct cmn_compressor_plan *plan);
void cmn_shard_queue_close(struct cmn_shard_queue *o);

/* Shard i has been begun; it is not under way yet. */
void cmn_shard_queue_begin(struct cmn_shard_queue *o, int i);

/* The shard that was begun as number i of those under way. */
int cmn_shard_queue_at(const struct cmn_shard_queue *o, int i);

/* What the compressor adds. */
struct cmn_shard_queue_ops {
    /* Moves the compressor on and says whether the first shard has ended: 1, 0, or -1 with a reason. */
    int (*over)(void *compressor, int shard);
    /* A number that changes whenever something has come or gone. */
    unsigned long long (*moved)(const void *compressor);
    /* Notes what the first shard has waited for, so many seconds, and returns -1. */
    int (*late)(void *compressor, int shard, long seconds);
};

/* For struct cmn_compressor.progress. That nothing moves for cmn_timeout seconds of waiting is a failure. */
long cmn_shard_queue_progress(struct cmn_shard_queue *o, long until, void *compressor,
                              const struct cmn_shard_queue_ops *calls);

#endif
