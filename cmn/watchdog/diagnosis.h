/* What the statuses of all ranks mean: who is unresponsive. Pure. */
#ifndef CMN_DIAGNOSIS_H
#define CMN_DIAGNOSIS_H

#include <stddef.h>

#include "base/status.h"

enum cmn_rank_state {
    CMN_RANK_ALIVE,
    CMN_RANK_STOPPED,     /* by a signal */
    CMN_RANK_TRACED,      /* a debugger has it: such a rank is never unresponsive */
    CMN_RANK_BLOCKED,     /* in the kernel, where no signal reaches it */
    CMN_RANK_DEAD,        /* without having said that it ends */
    CMN_RANK_UNREACHABLE, /* its host does not answer */
    CMN_RANK_UNHEARD,     /* its host answers, and no watchdog there sends heartbeats */
    CMN_RANK_UNKNOWN,     /* it was never heard */
    CMN_RANK_STATES
};

/* What is known of a rank. */
struct cmn_rank_status {
    int rank;
    char host[64];
    int waiting, ended;
    enum cmn_rank_state state;
    long stalled, silent; /* milliseconds without progress; without a heartbeat */
    long iteration, exchanges;
    int layer, bucket;
    char phase[CMN_STATUS_TEXT], detail[CMN_STATUS_DETAIL];
};

enum { CMN_DIAGNOSED_UNRESPONSIVE = 1, CMN_DIAGNOSED_UNREACHABLE };

/* `seen` has all n ranks of a job. 0: it continues. Else `text` says in one line why it ends;
 * CMN_DIAGNOSED_UNREACHABLE: since a host does not answer. Ranks that wait for others may do so as
 * long as any other rank makes progress. */
int cmn_diagnose(const struct cmn_rank_status *seen, int n, long limit, char *text, size_t bytes);

#endif
