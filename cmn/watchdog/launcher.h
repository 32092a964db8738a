/* What a host that does not answer means to Open MPI's own processes. Local. */
#ifndef CMN_WATCH_LAUNCHER_H
#define CMN_WATCH_LAUNCHER_H

/* Seconds, and a few more, until mpiexec notices by itself that a host does not answer (its TCP keepalive); 0: it was not asked to
 * notice soon. Once it has something to say to that host it waits for an answer instead, for a quarter of an hour: unanswered
 * data keep TCP from asking for signs of life. So no rank should end before. */
long cmn_launcher_notices(void);

/* Asks Open MPI's daemon of this host, which has started this process and can be told by nobody else, to end. Does nothing where
 * something else has started it. */
void cmn_launcher_end(void);

#endif
