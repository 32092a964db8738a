/* The picture of a training (cmn_chart), drawn by gnuplot in a process of its own. All local. */
#ifndef CMN_CHART_H
#define CMN_CHART_H

#include <stdio.h>

#include "report/report.h"

/* ---- report/series.c: what is drawn ---- */

/* Rows in the order of a training. Where there are more than a picture can show, several become one, so that memory and
 * time for drawing have a limit. Zeroed at first. */
struct cmn_series {
    struct cmn_row *row; /* without their ranks */
    int rows;
    int each, in_last; /* so many rows became one; and the last one so far */
};

/* 0, or -1 with a reason when memory is short. */
int cmn_series_add(struct cmn_series *s, const struct cmn_row *row);
void cmn_series_free(struct cmn_series *s);

/* ---- report/plot.c: how ---- */

/* The strings must outlive what is given it. */
struct cmn_plot {
    const char *title;
    enum cmn_answer answer;
    long total; /* iterations that are expected, 0: not known */
};

/* Writes a script for gnuplot, which draws to its standard output. It holds no name of a file. Without rows it draws a
 * picture without curves: who can draw that can draw all. */
void cmn_plot_script(const struct cmn_plot *plot, const struct cmn_series *s, FILE *out);

/* ---- report/chart.c: by whom, and when ---- */

struct cmn_chart;

/* Makes sure that `file` can be made and that gnuplot can draw; waits for that. Strings of *plot must outlive the chart. NULL
 * with a reason. */
struct cmn_chart *cmn_chart_open(const char *file, const struct cmn_plot *plot);

/* A row of an earlier part of the training: it is drawn with the next one. 0, or -1 with a reason. */
int cmn_chart_add(struct cmn_chart *c, const struct cmn_row *row);

/* Has the file drawn anew in the background, unless that is being done: then cmn_chart_poll() does it later, and rows
 * in between are drawn together. 0, or -1 with a reason when it could not be drawn: then nothing more will be. */
int cmn_chart_row(struct cmn_chart *c, const struct cmn_row *row);

/* Puts a picture that is ready in the place of the one before; for often. As cmn_chart_row(). `c` may be NULL. */
int cmn_chart_poll(struct cmn_chart *c);

/* Draws what is not drawn yet and waits for it, some seconds at most. As cmn_chart_row(). `c` may be NULL. */
int cmn_chart_finish(struct cmn_chart *c);

/* A drawing under way is given up. `c` may be NULL. */
void cmn_chart_close(struct cmn_chart *c);

#endif
