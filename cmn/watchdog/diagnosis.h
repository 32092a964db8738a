/* diagnosis: what the statuses of all ranks mean, and which rank is unresponsive. The function is
 * pure. */
#ifndef CMN_DIAGNOSIS_H
#define CMN_DIAGNOSIS_H

#include <stddef.h>

#include "base/status.h"

enum cmn_rank_state {
    CMN_RANK_ALIVE,
    CMN_RANK_STOPPED,     /* by a signal */
    CMN_RANK_TRACED,      /* by a debugger; such a rank is never unresponsive */
    CMN_RANK_BLOCKED,     /* in the kernel, where no signal reaches it */
    CMN_RANK_DEAD,        /* it has died without having said that it ends */
    CMN_RANK_UNREACHABLE, /* its host does not answer */
    CMN_RANK_UNHEARD,     /* its host answers, but no watchdog there sends heartbeats */
    CMN_RANK_UNKNOWN,     /* no heartbeat of it has ever come */
    CMN_RANK_STATES
};

/* What is known of a rank. */
struct cmn_rank_status {
    int rank;
    char host[64];
    int waiting, ended;
    enum cmn_rank_state state;
    long stalled, silent; /* milliseconds without progress; milliseconds without a heartbeat */
    long iteration, exchanges;
    int layer, bucket;
    char phase[CMN_STATUS_TEXT], detail[CMN_STATUS_DETAIL];
};

enum { CMN_DIAGNOSED_UNRESPONSIVE = 1, CMN_DIAGNOSED_UNREACHABLE };

/* `seen` has all n ranks of a job; `limit` is in milliseconds. Returns 0 if the job continues.
 * Otherwise writes to `text` one line that says why the job ends, and returns
 * CMN_DIAGNOSED_UNREACHABLE if a host does not answer, or CMN_DIAGNOSED_UNRESPONSIVE. Ranks that
 * wait for others may do so as long as any other rank makes progress. */
int cmn_diagnose(const struct cmn_rank_status *seen, int n, long limit, char *text, size_t bytes);

#endif
