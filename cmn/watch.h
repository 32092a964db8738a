/* What this process does now, for the one who notices that nothing moves. Local, thread-safe. */
#ifndef CMN_WATCH_H
#define CMN_WATCH_H

/* `what` (a static text) begins now, and should take no longer than cmn_timeout. NULL: what comes now may take as
 * long as it likes. */
void cmn_watch(const char *what);

/* Seconds since cmn_watch, and its text; 0 and NULL when it was told NULL, or nothing yet. */
double cmn_watch_since(const char **what);

#endif
