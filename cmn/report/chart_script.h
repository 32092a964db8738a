/* The chart as a script for gnuplot. Local. */
#ifndef CMN_CHART_SCRIPT_H
#define CMN_CHART_SCRIPT_H

#include <stdio.h>

#include "report/chart_rows.h"

/* What the chart shows. The caller keeps the strings. */
struct cmn_chart_plan {
    const char *title;
    enum cmn_answer answer;
    long total; /* expected iterations; 0: unknown */
};

/* Writes the script, which draws a PNG to gnuplot's standard output and names no file. Without rows
 * it draws a picture without curves, which shows that gnuplot can draw. */
void cmn_chart_script(const struct cmn_chart_plan *plan, const struct cmn_chart_rows *s, FILE *out);

#endif
