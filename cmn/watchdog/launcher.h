/* What a host that does not answer means to Open MPI's own processes. Local. */
#ifndef CMN_LAUNCHER_H
#define CMN_LAUNCHER_H

/* Seconds, and a few more, until mpiexec notices by its TCP keepalive that a host does not answer;
 * 0: its keepalive is not set. No rank should end before that: once mpiexec has something to send
 * to that host it waits for an acknowledgement instead, for a quarter of an hour, since
 * unacknowledged data suspend the keepalive. */
long cmn_launcher_notices(void);

/* Asks Open MPI's daemon of this host, which started this process and which nobody else can reach,
 * to end. Does nothing where something else started it. */
void cmn_launcher_end(void);

#endif
