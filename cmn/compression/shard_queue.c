#include "compression/shard_queue.h"

#include <sched.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

void cmn_shard_queue_open(struct cmn_shard_queue *q, const struct cmn_compressor_plan *plan)
{
    *q = (struct cmn_shard_queue){.plan = plan, .room = plan->shards ? plan->shards : 1};
    q->shard = cmn_calloc((size_t)q->room, sizeof *q->shard);
}

void cmn_shard_queue_close(struct cmn_shard_queue *q)
{
    free(q->shard);
    q->shard = NULL;
}

void cmn_shard_queue_add(struct cmn_shard_queue *q, int i)
{
    q->shard[(q->first + q->in_flight++) % q->room] = i;
}

int cmn_shard_queue_at(const struct cmn_shard_queue *q, int i)
{
    return q->shard[(q->first + i) % q->room];
}

long cmn_shard_queue_progress(struct cmn_shard_queue *q, long until, void *compressor,
                              const struct cmn_shard_queue_ops *ops)
{
    const long timeout = q->plan->options->timeout;
    unsigned long long before = 0;
    double since = -1;

    for (;;) {
        while (q->in_flight && ops->ended(compressor, cmn_shard_queue_at(q, 0))) {
            q->first = (q->first + 1) % q->room;
            q->in_flight--;
            q->ended++;
        }
        if (q->ended >= until) {
            return q->ended;
        }
        if (since < 0 || ops->moved(compressor) != before) {
            before = ops->moved(compressor);
            since = cmn_clock();
        } else if (cmn_status_timed_out(cmn_clock() - since, timeout)) {
            ops->stalled(compressor, cmn_shard_queue_at(q, 0), timeout);
        }
        sched_yield();
    }
}
