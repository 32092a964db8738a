/* What the notes of all ranks mean: who is missing. Pure. */
#ifndef CMN_WATCH_VERDICT_H
#define CMN_WATCH_VERDICT_H

#include <stddef.h>

#include "watch.h"

enum cmn_watch_state {
    CMN_WATCH_ALIVE,
    CMN_WATCH_STOPPED,     /* by a signal */
    CMN_WATCH_TRACED,      /* a debugger has it: such a rank is never missing */
    CMN_WATCH_BLOCKED,     /* in the kernel, where no signal reaches it */
    CMN_WATCH_DEAD,        /* without having said that it ends */
    CMN_WATCH_UNREACHABLE, /* its host does not answer */
    CMN_WATCH_UNHEARD,     /* its host answers, and no watchdog there speaks */
    CMN_WATCH_GONE,        /* the watchdogs of its host have ended without a word */
    CMN_WATCH_UNKNOWN,     /* nothing was ever heard of it */
    CMN_WATCH_STATES
};

/* What is known of a rank. */
struct cmn_watch_view {
    int rank;
    char host[64];
    int waiting, ended;
    enum cmn_watch_state state;
    long still, silent; /* milliseconds: no note; no sign of life */
    long iteration, exchanges;
    int layer, bucket;
    char phase[CMN_WATCH_TEXT], detail[CMN_WATCH_DETAIL];
};

/* Whether a rank whose note or sign of life has not changed for `limit` milliseconds is missing. */
int cmn_watch_missing(const struct cmn_watch_view *v, long limit);

enum { CMN_WATCH_MISSING = 1, CMN_WATCH_CUT };

/* `seen` has all n ranks of a job. Whether it is to end, CMN_WATCH_CUT: since a host does not answer; then `text` says why, in one
 * line. Ranks that wait for others are not missing, however long they wait, as long as anybody else moves. */
int cmn_watch_verdict(const struct cmn_watch_view *seen, int n, long limit, char *text,
                      size_t bytes);

#endif
