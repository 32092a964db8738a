/* The chart of a training, which gnuplot draws from the JSON log (darknet cmn chart). Local,
 * blocking. */
#ifndef CMN_CHART_H
#define CMN_CHART_H

#include <stdio.h>

#include "report/row.h"

/* Checks that gnuplot is installed, that files can be made in the picture's folder, and that a file
 * of that name, if there is one, is a chart. 0, or -1 with a reason. */
int cmn_chart_check(const char *picture);

/* Draws the rows of the log as a PNG, which replaces an older one atomically. Removes the variables
 * GNU* from the environment. 0, or -1 with a reason. */
int cmn_chart_draw(const char *log, const char *picture);

/* What a chart shows. */
struct cmn_chart {
    const char *title;
    enum cmn_answer answer; /* decides which panels there are */
    const struct cmn_row *row;
    int rows; /* at least 1 */
};

/* Writes the script for gnuplot. The script names no file: gnuplot writes the PNG to its standard
 * output. */
void cmn_chart_script(const struct cmn_chart *s, FILE *out);

#endif
