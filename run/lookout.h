/* The lookout knows which machines there are, which of them answer, and, while a training runs,
 * whether others are to be used. The process has one. All local. */
#ifndef CMN_RUN_LOOKOUT_H
#define CMN_RUN_LOOKOUT_H

#include "options.h"

/* Reads the list of machines where something may have changed it: the file of -hostfile, or what
 * the command of -discover prints, for which this blocks up to 20 s. Returns 0, or -1 after saying
 * what is wrong: then the machines stay as they are. Must be called first: the other functions use
 * the same options. */
int cmn_lookout_read(struct cmn_run_options *o);

/* Blocks up to 20 s: asks all machines at once, each by mpiexec, which starts `sleep 1` there:
 * whatever reaches a machine for a job reaches it for this. Returns 0, or -1 when a signal asked to
 * stop meanwhile, or after saying why nothing can be started here. */
int cmn_lookout_ask(void);

/* Must be called when an attempt begins, on the machines that are used. `check` is the command that
 * another machine must be able to run before ranks do. */
void cmn_lookout_begin(char *const *check);

/* Does not block; must be called about once a second. Between begin and end it reads the list every
 * -interval seconds, and asks machines on which no rank runs. Returns whether the ranks have to
 * save and end, because other machines are to be used from now on, after saying so. */
int cmn_lookout_sees_others(void);

/* Must be called when the attempt has ended. Without a begin this does nothing. */
void cmn_lookout_end(void);

#endif
