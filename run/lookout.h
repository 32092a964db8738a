/* The lookout: which machines there are, and whether they change while a training runs. The process
 * has one. All local. */
#ifndef CMN_RUN_LOOKOUT_H
#define CMN_RUN_LOOKOUT_H

#include "options.h"

/* Reads the list of machines where something may have changed it: the file of -hostfile, or what
 * the command of -discover prints, for which this blocks up to CMN_PROBE_SECONDS. 0; -1 after saying
 * what is wrong: the machines stay as they are. */
int cmn_lookout_read(struct cmn_run_options *o);

/* An attempt begins, on the machines that are used. `check` is what a machine must be able to run
 * before ranks do. */
void cmn_lookout_begin(struct cmn_run_options *o, char *const *check);

/* Does not block; to be called about once a second. Between begin and end it reads the list every
 * -interval seconds, and asks machines on which no rank runs. Returns whether the ranks have to save and end, because other
 * machines are to be used from now on; it has said so then. */
int cmn_lookout_sees_others(void);

/* The attempt has ended. Without a begin this does nothing. */
void cmn_lookout_end(void);

#endif
