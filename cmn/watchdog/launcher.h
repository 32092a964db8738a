/* What Open MPI's own processes (mpiexec, and a daemon on each other host) do about hosts that do
 * not answer, and about stop requests. Local. */
#ifndef CMN_WATCHDOG_LAUNCHER_H
#define CMN_WATCHDOG_LAUNCHER_H

/* Seconds, and a few more, until mpiexec notices by its TCP keepalive that a host does not answer;
 * 0: its keepalive is not set. No rank should end before that: once mpiexec has something to send
 * to that host it waits for an acknowledgement instead, for a quarter of an hour, since
 * unacknowledged data suspend the keepalive. */
long cmn_launcher_notices(void);

/* Asks Open MPI's daemon of this host, which started this process and which nobody else can reach,
 * to end. Does nothing where something else started it. */
void cmn_launcher_end_daemon(void);

/* Whether mpiexec is on another host, where nobody can make it end, and will wait for a host that
 * does not answer until TCP gives up: that of Open MPI 4, without keepalive. */
int cmn_launcher_waits(void);

/* Where the signal that asked this rank to stop came from Open MPI 5's launcher, which reads no
 * output from then on: writes this line to the launcher's own standard error instead. Else
 * nothing: a line on this process's standard error arrives there. */
void cmn_launcher_say_stop(const char *line);

#endif
