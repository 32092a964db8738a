/* A wish to stop: SIGINT, SIGTERM, or SIGUSR1, which counts as SIGTERM. All local. */
#ifndef CMN_STOP_H
#define CMN_STOP_H

/* From now on these signals are noted instead of ending the process. */
void cmn_stop_catch(void);

/* The signal that came, or 0. */
int cmn_stop_requested(void);

#endif
