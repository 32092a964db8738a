#ifndef CMN_TERMINAL_H
#define CMN_TERMINAL_H

/* Local. Whether a person watches this process's standard output on a terminal. A rank's own
 * standard output is a pipe or a pseudo terminal of mpiexec, so mpiexec is asked. */
int cmn_terminal_watched(void);

#endif
