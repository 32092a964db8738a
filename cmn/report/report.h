/* The report of a training on rank 0: table, progress bar, JSON log, chart and TensorBoard's event
 * file. Local. */
#ifndef CMN_REPORT_H
#define CMN_REPORT_H

#include "config/options.h"
#include "report/row.h"

struct cmn_report;

struct cmn_report_plan {
    enum cmn_report_mode mode;
    enum cmn_answer answer;       /* kind of command, which decides on the columns */
    const char *json;             /* file name of the JSON log */
    const char *chart;            /* file name, or "" */
    const char *tensorboard;      /* folder, or "" */
    const char *graph, *timeline; /* file names, or ""; written elsewhere, compared here */
    long first;                   /* iteration from which the training resumes */
    struct cmn_log_resume resume;
    long total; /* expected iterations; 0: unknown */
};

/* Opens all outputs; ends the job when one of them cannot be opened. With cmn_report=quiet, or
 * cmn_report=table on a terminal, Darknet's standard output is discarded until the report is
 * closed. The plan's strings must live until then. */
struct cmn_report *cmn_report_open(const struct cmn_report_plan *plan);

/* Writes one row. If an output cannot be written, one warning says so and the training continues: a
 * row of a log is tried again with the next one, and the chart is drawn at a later row. */
void cmn_report_row(struct cmn_report *r, const struct cmn_row *row);

/* Erases the progress bar before something else is printed. NULL is allowed. */
void cmn_report_clear(struct cmn_report *r);

/* Redraws the progress bar, at most ten times per second and only on a terminal. */
void cmn_report_progress(struct cmn_report *r, long iteration, double epoch, double images_per_s);

/* Blocks until the rows that were written to the logs are on the disk. If that fails, the next
 * cmn_report_row() warns. Thread-safe while the report is open. NULL is allowed. */
void cmn_report_sync(struct cmn_report *r);

/* Closes all outputs and restores the standard output. Waits for the last chart. 0, or -1 with a
 * reason when rows of a log are lost. NULL is allowed. */
int cmn_report_close(struct cmn_report *r);

#endif
