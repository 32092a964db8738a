#include "codecs/order.h"

#include <sched.h>
#include <stdlib.h>

#include "log.h"
#include "watch.h"

int cmn_order_open(struct cmn_order *o, const struct cmn_codec_plan *plan)
{
    *o = (struct cmn_order){.plan = plan, .room = plan->pieces ? plan->pieces : 1};
    o->piece = calloc((size_t)o->room, sizeof *o->piece);
    return o->piece ? 0 : cmn_fail("out of memory");
}

void cmn_order_close(struct cmn_order *o)
{
    free(o->piece);
    o->piece = NULL;
}

void cmn_order_begin(struct cmn_order *o, int i)
{
    o->piece[(o->first + o->under_way++) % o->room] = i;
}

int cmn_order_at(const struct cmn_order *o, int i)
{
    return o->piece[(o->first + i) % o->room];
}

/* Moves on without waiting; how many pieces have ended, or -1 with a reason. */
static long end_some(struct cmn_order *o, void *codec, const struct cmn_order_calls *calls)
{
    int is = 1;

    while (o->under_way && (is = calls->over(codec, cmn_order_at(o, 0))) > 0) {
        o->first = (o->first + 1) % o->room;
        o->under_way--;
        o->ended++;
    }
    return is < 0 ? -1 : o->ended;
}

long cmn_order_progress(struct cmn_order *o, long until, void *codec,
                        const struct cmn_order_calls *calls)
{
    const long timeout = o->plan->options->timeout;
    unsigned long long before = 0;
    double since = -1;

    for (;;) {
        if (end_some(o, codec, calls) < 0) {
            return -1;
        }
        if (o->ended >= until) {
            return o->ended;
        }
        if (since < 0 || calls->moved(codec) != before) {
            before = calls->moved(codec);
            since = cmn_clock();
        } else if (cmn_watch_late(cmn_clock() - since, timeout)) {
            calls->late(codec, cmn_order_at(o, 0), timeout);
            return cmn_fail_in("%s", o->plan->group);
        }
        sched_yield();
    }
}
