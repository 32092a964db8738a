/* Signals, child processes, and waiting for either: one loop, in the main thread alone. All
 * local. */
#ifndef CMN_RUN_PROCESS_H
#define CMN_RUN_PROCESS_H

#include <sys/types.h>

/* Once, before the first process is started. From here on, processes that lose their parent become
 * children of cmn-run; children that exist already are left alone. */
void cmn_signals_open(void);

enum { CMN_READABLE = 1, CMN_CHILD = 2, CMN_STOP = 4, CMN_PAUSE = 8, CMN_CONTINUE = 16 };

/* Blocks until fd is readable (-1: none), a process has ended, a signal asks to stop, to pause
 * (Ctrl-Z) or to continue, or `milliseconds` have passed. Returns which of them. */
int cmn_signals_wait(int fd, int milliseconds);

/* The first signal that asked to stop, or 0. */
int cmn_stop_signal(void);
int cmn_stop_requested(void *unused); /* whether there is one, for cmn_wait_until() */

/* Blocks until done(of) is true or `seconds` have passed, while no job runs: Ctrl-Z pauses cmn-run
 * itself. Returns whether it was true. */
int cmn_wait_until(int (*done)(void *of), void *of, double seconds);

/* Seconds of a clock that nobody sets. */
double cmn_clock(void);

/* ---- processes ---- */

/* Starts a program of PATH in a process group of its own, so that a terminal's Ctrl-C reaches it
 * through cmn-run alone. Its standard input is empty, its standard error is `error`, its standard
 * output is `output` (-1: as cmn-run's). It gets SIGTERM when cmn-run ends, however that comes. The
 * process id, or -1 after saying why. */
pid_t cmn_process_start(char *const *argv, int output, int error);

/* Whether it has ended; *status as of waitpid(). Once for each process: it is forgotten then. Reaps
 * orphans, too. */
int cmn_process_ended(pid_t pid, int *status);

/* The signal that has stopped it since the last call, or 0. */
int cmn_process_stopped(pid_t pid);

/* Kills it with its process group, and forgets it. */
void cmn_process_kill(pid_t pid);

/* Blocks up to `seconds`, then kills: processes on this machine that the job has left behind.
 * Returns how many had to be killed. */
int cmn_process_end_rest(double seconds);

#endif
