/* Draws the chart during a training (cmn_chart). At a row it starts `darknet cmn chart LOG FILE` as
 * a separate process, which draws the JSON log. Local. */
#ifndef CMN_REDRAW_H
#define CMN_REDRAW_H

#include <sys/types.h>

struct cmn_redraw {
    const char *log, *file; /* the caller keeps them; NULL: there is no chart */
    pid_t pid;              /* of the process that draws, or 0 */
    int errors;             /* memfd that takes the process's standard error; valid if pid is set */
    int due;                /* no process has begun to draw the latest row */
    int failed;             /* how many times the chart was not drawn */
};

/* Starts drawing the log and does not wait. If the previous process still runs, this row is drawn
 * together with a later one. */
void cmn_redraw_row(struct cmn_redraw *d);

/* Draws the last rows and blocks until that is done: usually less than a second, 80 s at most. */
void cmn_redraw_finish(struct cmn_redraw *d);

#endif
