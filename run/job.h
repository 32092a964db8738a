/* Runs one attempt: mpiexec from its start to its end. */
#ifndef CMN_RUN_JOB_H
#define CMN_RUN_JOB_H

#include "diagnosis.h"

/* Blocks until mpiexec has ended and nothing of the job runs on this machine. The job's standard
 * error is passed on without the events in it; signals that ask cmn-run to stop are passed to the
 * ranks: docs/use/cmn-run.md. Where the lookout sees other machines, the ranks are asked to save
 * and to end. Fills `observed`. *status is waitpid()'s. Returns 0, or -1 after saying why mpiexec
 * was not started. */
int cmn_job_run(char *const *argv, struct cmn_observed *observed, int *status);

#endif
