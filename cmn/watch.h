/* What this process does now, for the one who notices that nothing moves. Local, thread-safe. */
#ifndef CMN_WATCH_H
#define CMN_WATCH_H

/* `what` (a static text) begins now, and should take no longer than cmn_timeout. NULL: what comes now may take as
 * long as it likes. */
void cmn_watch(const char *what);

/* How often cmn_watch was called, and its last text: the same number twice means that nothing has ended in between. */
unsigned long cmn_watch_now(const char **what);

#endif
