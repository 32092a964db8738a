/* Signals, and the ends of processes, one at a time and in the main loop alone: nothing interrupts anything. All local. */
#ifndef CMN_RUN_EVENTS_H
#define CMN_RUN_EVENTS_H

#include <sys/types.h>

/* Once, before the first process is started. Processes that lose their parent become ours; children that are there already are left alone. 0, or -1 after saying why. */
int cmn_trace_events_open(void);

enum { CMN_READABLE = 1, CMN_CHILD = 2, CMN_STOP = 4, CMN_PAUSE = 8, CMN_CONTINUE = 16 };

/* Blocks until there is something to read from fd (-1: none), a process has ended, a signal has come that asks to stop, to pause
 * (Ctrl-Z) or to continue, or so many milliseconds have passed (-1: for ever). Returns which of them. */
int cmn_trace_events_wait(int fd, int milliseconds);

/* The same while no job runs that would have to pause, too: pauses by itself. */
int cmn_trace_events_wait_alone(int fd, int milliseconds);

/* The first signal that asked to stop, or 0. */
int cmn_trace_events_stop(void);

/* ---- processes ---- */

/* Starts a program of PATH in a process group of its own, so that a terminal's Ctrl-C reaches it through us alone; its standard input
 * is empty, standard error is `error` and standard output is `output` (-1: ours). It gets SIGTERM when we end, however that comes. The
 * process id, or -1 after saying why. */
pid_t cmn_process_start(char *const *argv, int output, int error);

/* Whether it has ended; *status as of waitpid(). Only once for each, then it is forgotten. Takes the status of orphans, too. */
int cmn_process_ended(pid_t pid, int *status);

/* The signal that has stopped it since the last call, or 0. */
int cmn_process_stopped(pid_t pid);

/* Kills it with its process group, and forgets it. */
void cmn_process_kill(pid_t pid);

/* Blocking, up to `seconds`, then they are killed: processes on this machine that what we started has left behind. Returns how many had to be
 * killed. */
int cmn_process_rest(int seconds);

#endif
