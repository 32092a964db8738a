/* Waits for signals and child processes in one loop, which runs only in the main thread. All
 * local. */
#ifndef CMN_RUN_PROCESS_H
#define CMN_RUN_PROCESS_H

#include <sys/types.h>

/* Must be called once, before the first process is started. From here on, processes that lose their
 * parent become children of cmn-run; children that exist already are not touched. */
void cmn_signals_open(void);

enum { CMN_READABLE = 1, CMN_CHILD = 2, CMN_STOP = 4, CMN_PAUSE = 8, CMN_CONTINUE = 16 };

/* Blocks until fd is readable (-1: none), a process has ended, a signal asks to stop, to pause
 * (Ctrl-Z) or to continue, or `milliseconds` have passed. Returns which of them. */
int cmn_signals_wait(int fd, int milliseconds);

/* Returns the first signal that asked to stop, or 0. */
int cmn_stop_signal(void);
int cmn_stop_requested(void *unused); /* whether there is one, for cmn_wait_until() */

/* Blocks until done(of) is true or `seconds` have passed, while no job runs: Ctrl-Z pauses cmn-run
 * itself. Returns whether it was true. */
int cmn_wait_until(int (*done)(void *of), void *of, double seconds);

/* Returns the seconds of a clock that nobody sets. */
double cmn_clock(void);

/* ---- processes ---- */

/* Starts a program of PATH in a process group of its own, so that a terminal's Ctrl-C reaches it
 * only through cmn-run. Its standard input is empty, its standard error is `error`, its standard
 * output is `output` (-1: that of cmn-run). It gets SIGTERM when cmn-run ends in any way. Returns
 * the process id, or -1 after saying why. */
pid_t cmn_process_start(char *const *argv, int output, int error);

/* Returns whether it has ended; *status is that of waitpid(). True once for each process, which is
 * forgotten then. Reaps orphans, too. */
int cmn_process_ended(pid_t pid, int *status);

/* Returns the signal that has stopped it since the last call, or 0. */
int cmn_process_stopped(pid_t pid);

/* Kills the process with its group, and forgets it. */
void cmn_process_kill(pid_t pid);

/* Blocks up to `seconds` until no process of the job is left on this machine, then kills those that
 * are. Returns how many. */
int cmn_process_end_rest(double seconds);

#endif
