/* The chart during a training (cmn_chart): `darknet cmn chart LOG FILE`, a process of its own, draws
 * the JSON log at each row. Local. */
#ifndef CMN_REDRAW_H
#define CMN_REDRAW_H

#include <sys/types.h>

struct cmn_redraw {
    const char *log, *file; /* the caller keeps them; NULL: there is no chart */
    pid_t pid;              /* of the process that draws, or 0 */
    int errors;             /* memfd with its standard error */
    int due;                /* there is a row that no process has begun to draw */
    int failed;             /* how often it was not drawn */
};

/* Begins to draw the log, unless the last process still runs: then a later row is drawn together with
 * this one. */
void cmn_redraw_row(struct cmn_redraw *d);

/* Draws the last rows, and waits for that: usually less than a second, 80 s at most. */
void cmn_redraw_finish(struct cmn_redraw *d);

#endif
