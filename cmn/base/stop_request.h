/* A request to stop: SIGINT, SIGTERM, or SIGUSR1, which counts as SIGTERM. All local. */
#ifndef CMN_STOP_REQUEST_H
#define CMN_STOP_REQUEST_H

/* From here on these signals leave a request instead of ending the process. */
void cmn_stop_catch(void);

/* The calling thread gets none of them from now on, unless it is the main thread: a handler ends
 * a read early, and half of a label file looks like a whole one. Threads that it starts inherit
 * this. */
void cmn_stop_leave_to_main(void);

/* The signal that came, or 0. */
int cmn_stop_requested(void);

#endif
