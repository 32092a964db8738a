/* The chart of a training (cmn_chart): gnuplot draws it in the background. Local. */
#ifndef CMN_CHART_H
#define CMN_CHART_H

#include "report/chart_script.h"

struct cmn_chart;

/* Makes sure that `file` can be made and that gnuplot can draw; blocks until gnuplot has proved it.
 * The caller keeps the strings of *plan until the chart is closed. NULL with a reason. */
struct cmn_chart *cmn_chart_open(const char *file, const struct cmn_chart_plan *plan);

/* Adds a row of an earlier run: it is drawn with the next one. */
void cmn_chart_add(struct cmn_chart *c, const struct cmn_row *row);

/* Adds a row and starts gnuplot, unless it still draws: then cmn_chart_poll() starts it later, and
 * the rows since then are drawn together. 0, or -1 with a reason when a picture could not be drawn:
 * close the chart then. */
int cmn_chart_row(struct cmn_chart *c, const struct cmn_row *row);

/* Puts a finished picture in place of the previous one, and starts the next. Cheap and non-
 * blocking. Returns as cmn_chart_row(). NULL is allowed. */
int cmn_chart_poll(struct cmn_chart *c);

/* After a -1: whether the disk was the reason, and not gnuplot. Then the chart may stay open, and
 * the next row, or cmn_chart_poll(), draws it again. */
int cmn_chart_may_recover(struct cmn_chart *c);

/* Draws the rows that are not drawn yet; blocks for 10 s at most. Returns as cmn_chart_row(). NULL
 * is allowed. */
int cmn_chart_finish(struct cmn_chart *c);

/* Ends gnuplot if it still draws. NULL is allowed. */
void cmn_chart_close(struct cmn_chart *c);

#endif
