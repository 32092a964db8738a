#include "compression/shard_queue.h"

#include <sched.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"

int cmn_shard_queue_open(struct cmn_shard_queue *o, const struct cmn_compressor_plan *plan)
{
    *o = (struct cmn_shard_queue){.plan = plan, .room = plan->shards ? plan->shards : 1};
    o->shard = calloc((size_t)o->room, sizeof *o->shard);
    return o->shard ? 0 : cmn_fail("out of memory");
}

void cmn_shard_queue_close(struct cmn_shard_queue *o)
{
    free(o->shard);
    o->shard = NULL;
}

void cmn_shard_queue_begin(struct cmn_shard_queue *o, int i)
{
    o->shard[(o->first + o->under_way++) % o->room] = i;
}

int cmn_shard_queue_at(const struct cmn_shard_queue *o, int i)
{
    return o->shard[(o->first + i) % o->room];
}

/* Moves on without waiting; how many shards have ended, or -1 with a reason. */
static long end_some(struct cmn_shard_queue *o, void *compressor,
                     const struct cmn_shard_queue_ops *calls)
{
    int is = 1;

    while (o->under_way && (is = calls->over(compressor, cmn_shard_queue_at(o, 0))) > 0) {
        o->first = (o->first + 1) % o->room;
        o->under_way--;
        o->ended++;
    }
    return is < 0 ? -1 : o->ended;
}

long cmn_shard_queue_progress(struct cmn_shard_queue *o, long until, void *compressor,
                              const struct cmn_shard_queue_ops *calls)
{
    const long timeout = o->plan->options->timeout;
    unsigned long long before = 0;
    double since = -1;

    for (;;) {
        if (end_some(o, compressor, calls) < 0) {
            return -1;
        }
        if (o->ended >= until) {
            return o->ended;
        }
        if (since < 0 || calls->moved(compressor) != before) {
            before = calls->moved(compressor);
            since = cmn_clock();
        } else if (cmn_status_timed_out(cmn_clock() - since, timeout)) {
            calls->late(compressor, cmn_shard_queue_at(o, 0), timeout);
            return cmn_fail_in("%s", o->plan->group);
        }
        sched_yield();
    }
}
