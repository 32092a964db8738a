/* The lookout: which machines there are, which of them answer, and while a training runs whether
 * others are to be used. The process has one. All local. */
#ifndef CMN_RUN_LOOKOUT_H
#define CMN_RUN_LOOKOUT_H

#include "options.h"

/* Reads the list of machines where something may have changed it: the file of -hostfile, or what
 * the command of -discover prints, for which this blocks up to 20 s. 0; -1 after saying what is
 * wrong: the machines stay as they are. Comes first: the other functions use the same options. */
int cmn_lookout_read(struct cmn_run_options *o);

/* Blocks up to 20 s: asks all machines at once, each by mpiexec, which starts `sleep 1` there:
 * whatever reaches a machine for a job reaches it for this. 0; -1 when a signal asked to stop
 * meanwhile, or after saying why nothing can be started here. */
int cmn_lookout_ask(void);

/* An attempt begins, on the machines that are used. `check` is what another machine must be able to
 * run before ranks do. */
void cmn_lookout_begin(char *const *check);

/* Does not block; to be called about once a second. Between begin and end it reads the list every
 * -interval seconds, and asks machines on which no rank runs. Returns whether the ranks have to
 * save and end, because other machines are to be used from now on; it has said so then. */
int cmn_lookout_sees_others(void);

/* The attempt has ended. Without a begin this does nothing. */
void cmn_lookout_end(void);

#endif
