/* The chart of a training: gnuplot draws its JSON log (darknet cmn chart). Local, blocking. */
#ifndef CMN_CHART_H
#define CMN_CHART_H

#include <stdio.h>

#include "report/row.h"

/* Whether gnuplot is installed, and the picture can be made: what is there may be replaced. 0, or -1
 * with a reason. */
int cmn_chart_check(const char *picture);

/* Draws the rows of the log as a PNG that replaces an older one as a whole. 0, or -1 with a reason. */
int cmn_chart_draw(const char *log, const char *picture);

/* What a chart shows. */
struct cmn_chart {
    const char *title;
    enum cmn_answer answer; /* decides which panels there are */
    const struct cmn_row *row;
    int rows; /* at least 1 */
};

/* Writes gnuplot's script, which draws a PNG to its standard output and names no file. */
void cmn_chart_script(const struct cmn_chart *s, FILE *out);

#endif
