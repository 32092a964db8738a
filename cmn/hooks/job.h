/* What cmn.c (start and end of the job) and hooks.c (the calls of Darknet's patched source) share. */
#ifndef CMN_JOB_H
#define CMN_JOB_H

#include "trainer/session.h"

/* The job of this process; `on` is 0 unless it takes part in one. */
extern struct cmn_session cmn_job;

/* Local. Exit handlers run last in, first out: from here on the job's own comes before those that libraries have
 * registered by now. CUDA's ends CUDA, and the communicator must be closed before that. */
void cmn_end_first(void);

/* Local. Does not return when the result is negative: ends the job with the reason noted last. */
void cmn_check(int result);

/* Local (hooks.c). The report of a network that its trainer does not free comes to its end. */
void cmn_end_report(void);

#endif
