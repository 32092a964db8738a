/* Compressors that hold shards for a while share this: shards end in the order in which they were
 * begun, and waiting for them has a time limit. Local. */
#ifndef CMN_SHARD_QUEUE_H
#define CMN_SHARD_QUEUE_H

#include "compression/compressor.h"

struct cmn_shard_queue {
    const struct cmn_compressor_plan *plan; /* must outlive it */
    int *shard; /* a ring of `room`, of which `in_flight` from `first` on are used */
    int room, first, in_flight;
    long ended; /* since open */
};

void cmn_shard_queue_open(struct cmn_shard_queue *q, const struct cmn_compressor_plan *plan);
void cmn_shard_queue_close(struct cmn_shard_queue *q);

/* Appends shard i. */
void cmn_shard_queue_add(struct cmn_shard_queue *q, int i);

/* The shard at place i of those in flight. */
int cmn_shard_queue_at(const struct cmn_shard_queue *q, int i);

/* What the compressor adds. */
struct cmn_shard_queue_ops {
    /* Advances the compressor, and says whether the first shard has ended. */
    int (*ended)(void *compressor, int shard);
    /* A number that changes whenever a message was sent or has arrived. */
    unsigned long long (*moved)(const void *compressor);
    /* Ends the job: names what the first shard has waited for, so many seconds. */
    void (*stalled)(const void *compressor, int shard, long seconds);
};

/* For struct cmn_compressor.progress. Nothing moved for cmn_timeout seconds: calls `stalled`. */
long cmn_shard_queue_progress(struct cmn_shard_queue *q, long until, void *compressor,
                              const struct cmn_shard_queue_ops *ops);

#endif
