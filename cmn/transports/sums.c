#include "transports/sums.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/memory.h"
#include "base/status.h"
#include "transports/rounds.h"

struct cmn_sums {
    MPI_Comm comm;
    int ranks;
    long timeout;            /* seconds; 0: no limit */
    enum cmn_exchange_by by; /* as CMN_DEBUG_EXCHANGE has it */
    struct cmn_pairwise *pairwise;
    struct cmn_rounds *rounds; /* NULL: all sums go by pairwise */
    long begun;
    long slices; /* jobs of pairwise that are no sums */
};

struct cmn_sums *cmn_sums_open(MPI_Comm comm, const struct cmn_options *o, int waits)
{
    struct cmn_sums *s = cmn_calloc(1, sizeof *s);

    s->comm = comm;
    MPI_Comm_size(comm, &s->ranks);
    s->timeout = waits ? 0 : o->timeout;
    s->by = (enum cmn_exchange_by)o->exchange;
    s->pairwise = cmn_pairwise_open(comm, s->timeout);
    if ((s->by ? s->by : cmn_schedule_for(s->ranks, 0)) != CMN_EXCHANGE_PAIRWISE) {
        s->rounds = cmn_rounds_open(comm);
    }
    return s;
}

void cmn_sums_close(struct cmn_sums *s)
{
    if (s) {
        cmn_pairwise_close(s->pairwise);
        cmn_rounds_close(s->rounds);
    }
    free(s);
}

void cmn_sums_begin(struct cmn_sums *s, const struct cmn_sum *sum)
{
    const struct cmn_pairwise_job job = {.data = sum->data,
                                         .n = sum->n,
                                         .slices = s->ranks,
                                         .what = CMN_REDUCE_SCATTER | CMN_ALLGATHER,
                                         .dtype = sum->dtype,
                                         .error = sum->error};
    size_t each = sum->dtype == CMN_FP32 ? sizeof(float) : sizeof(uint16_t);

    s->begun++;
    if (s->rounds) {
        cmn_rounds_begin(s->rounds, &job,
                         s->by ? s->by : cmn_schedule_for(s->ranks, (double)sum->n * (double)each));
    } else {
        cmn_pairwise_begin(s->pairwise, &job);
    }
}

/* Advances without waiting; returns how many sums have ended since open. */
static long advance(struct cmn_sums *s)
{
    return s->rounds ? cmn_rounds_progress(s->rounds)
                     : cmn_pairwise_progress(s->pairwise, 0) - s->slices;
}

unsigned long long cmn_sums_sent(const struct cmn_sums *s)
{
    return cmn_pairwise_sent(s->pairwise) + (s->rounds ? cmn_rounds_sent(s->rounds) : 0);
}

void cmn_sums_stalled(const struct cmn_sums *s, long seconds)
{
    int missing = s->rounds ? cmn_rounds_missing(s->rounds) : -1;

    if (missing >= 0) {
        cmn_nothing_from(s->comm, missing, seconds);
    } else if (!s->rounds) {
        cmn_pairwise_stalled(s->pairwise, seconds);
    }
    cmn_fatal_lost("exchange: no message was sent for %ld s (cmn_timeout)", seconds);
}

long cmn_sums_progress(struct cmn_sums *s, long until)
{
    unsigned long long before = 0;
    double since = 0;

    for (;;) {
        long ended = advance(s);
        unsigned long long now = cmn_sums_sent(s) + (unsigned long long)ended + 1;
        if (ended >= until) {
            return ended;
        }
        if (now != before) {
            before = now;
            since = s->timeout ? cmn_clock() : 0;
        } else if (s->timeout && cmn_status_timed_out(cmn_clock() - since, s->timeout)) {
            cmn_sums_stalled(s, s->timeout);
        }
        sched_yield();
    }
}

void cmn_sums_run(struct cmn_sums *s, float *data, size_t n)
{
    const struct cmn_sum sum = {.data = data, .n = n, .dtype = CMN_FP32};

    cmn_sums_begin(s, &sum);
    cmn_sums_progress(s, s->begun);
}

void cmn_sums_run_slices(struct cmn_sums *s, float *data, size_t n, int slices, int what)
{
    cmn_pairwise_run(s->pairwise, data, n, slices, what);
    s->slices++;
}
