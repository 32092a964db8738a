/* What the notes of all ranks mean: who is missing. Pure. */
#ifndef CMN_WATCH_VERDICT_H
#define CMN_WATCH_VERDICT_H

#include <stddef.h>

#include "base/status.h"

enum cmn_rank_state {
    CMN_RANK_ALIVE,
    CMN_RANK_STOPPED,     /* by a signal */
    CMN_RANK_TRACED,      /* a debugger has it: such a rank is never missing */
    CMN_RANK_BLOCKED,     /* in the kernel, where no signal reaches it */
    CMN_RANK_DEAD,        /* without having said that it ends */
    CMN_RANK_UNREACHABLE, /* its host does not answer */
    CMN_RANK_UNHEARD,     /* its host answers, and no watchdog there speaks */
    CMN_RANK_GONE,        /* the watchdogs of its host have ended without a word */
    CMN_RANK_UNKNOWN,     /* nothing was ever heard of it */
    CMN_RANK_STATES
};

/* What is known of a rank. */
struct cmn_rank_status {
    int rank;
    char host[64];
    int waiting, ended;
    enum cmn_rank_state state;
    long still, silent; /* milliseconds: no note; no sign of life */
    long iteration, exchanges;
    int layer, bucket;
    char phase[CMN_STATUS_TEXT], detail[CMN_STATUS_DETAIL];
};

/* Whether a rank whose note or sign of life has not changed for `limit` milliseconds is missing. */
int cmn_unresponsive(const struct cmn_rank_status *v, long limit);

enum { CMN_DIAGNOSED_UNRESPONSIVE = 1, CMN_DIAGNOSED_UNREACHABLE };

/* `seen` has all n ranks of a job. Whether it is to end, CMN_DIAGNOSED_UNREACHABLE: since a host does not answer; then `text` says why, in one
 * line. Ranks that wait for others are not missing, however long they wait, as long as anybody else moves. */
int cmn_diagnose(const struct cmn_rank_status *seen, int n, long limit, char *text, size_t bytes);

#endif
