/* One try: mpiexec from its start to its end. */
#ifndef CMN_RUN_JOB_H
#define CMN_RUN_JOB_H

#include "verdict.h"

/* Blocking, until it has ended and nothing of it is left on this machine. Its standard error is ours, read line by line on the way; signals that
 * ask us to stop are passed on: see docs/cmn-run.md. `facts` gets what was said. *status is waitpid()'s. 0, or -1 after saying why it was not
 * started. */
int cmn_job_run(char *const *argv, struct cmn_host_info *facts, int *status);

#endif
