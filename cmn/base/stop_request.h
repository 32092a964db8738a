/* stop_request: a request to stop, by SIGINT, SIGTERM, or SIGUSR1, which counts as SIGTERM. All
 * local. */
#ifndef CMN_STOP_REQUEST_H
#define CMN_STOP_REQUEST_H

/* Makes these signals leave a request from now on, instead of ending the process. SIGPIPE is
 * ignored from now on. */
void cmn_stop_catch(void);

/* Blocks these signals in the calling thread, unless it is the main thread: a handler ends a read
 * early, and half of a label file looks like a whole one. Threads that it starts inherit this. */
void cmn_stop_leave_to_main(void);

/* Returns the signal that came, SIGINT or SIGTERM, or 0. */
int cmn_stop_requested(void);

/* Returns whether that was SIGTERM itself: somebody on this host has sent it, where a launcher's
 * request for all ranks is SIGUSR1. */
int cmn_stop_is_of_host(void);

#endif
