/* What people see of a training: table, progress bar and JSON log, written by rank 0 alone.
 * Names of columns are those of ChainerMN's PrintReport and LogReport. All local. */
#ifndef CMN_REPORT_H
#define CMN_REPORT_H

#include <stddef.h>

#include "options.h"

/* What one rank spent its time with since the row before, in seconds. */
struct cmn_rank_times {
    char host[64];
    double compute, load;
    double wait; /* from backward's end to that of the exchange: for others, the link, the sum */
};

struct cmn_row {
    double epoch;
    long iteration;
    double loss;                /* < 0: not known; may be NaN */
    double accuracy;            /* < 0: not known */
    double validation_loss;     /* < 0: no validation in this row; may be NaN */
    double validation_accuracy; /* < 0: the validation counts no classes */
    double validation_map,
        validation_map95; /* mAP@0.5 and @0.5:0.95, 0 to 1; < 0: it counts no boxes */
    double lr;
    double images_per_s;
    double elapsed;                 /* seconds since training began */
    double compute, exchange, load; /* shares of the row's time on rank 0, 0 to 1 */
    long steps;                     /* since the row before */
    const struct cmn_rank_times *rank;
    int ranks; /* 0: not known */
};

struct cmn_report;

/* `json` is the file of the JSON log, a whole array after every row. Of an older log the rows up to
 * iteration `first` are kept: the training goes on there. `total` iterations are expected, 0: not
 * known. NULL with a reason when it cannot be set up. */
struct cmn_report *cmn_report_open(enum cmn_report_mode mode, const char *json, long first,
                                   long total);

/* Writes one row. 0, or -1 with a reason when the JSON log cannot be written. */
int cmn_report_row(struct cmn_report *r, const struct cmn_row *row);

/* Takes the progress bar away, so that something else can be printed. `r` may be NULL. */
void cmn_report_clear(struct cmn_report *r);

/* Redraws the progress bar, at most ten times a second, on a terminal only. */
void cmn_report_progress(struct cmn_report *r, long iteration, double epoch, double images_per_s);

/* Ends the report and gives Darknet its standard output back. */
void cmn_report_close(struct cmn_report *r);

/* report/table.c: a heading line and one line of a row; `text` of `bytes` is filled. */
void cmn_table_heading(char *text, size_t bytes);
void cmn_table_row(const struct cmn_row *row, char *text, size_t bytes);

/* report/ranks.c: who makes the others wait. All local. */

struct cmn_straggler {
    int rank;          /* the slowest of them, -1: there is none */
    int more;          /* others that are late, too */
    const char *by;    /* "compute" or "load": where it loses more */
    double its, usual; /* ms a step that it, and the median of the ranks, spend there */
};

/* Compares each rank's own time, compute and load, with the median of the ranks: with the lower one of two, so that of two
 * ranks it is the quicker one. A rank is late when it takes over a fifth and over 1 ms a step longer, which is a tenth of
 * the step at least, and the ranks that are not late wait the longer for it, by half of that at least. *s becomes the
 * verdict; 0, or -1 with a reason when memory is short. */
int cmn_straggler_find(const struct cmn_rank_times *rank, int ranks, long steps,
                       struct cmn_straggler *s);

/* One line below a row: ms a step of each rank, of more than eight the least and the most, and who straggles. */
void cmn_ranks_line(const struct cmn_rank_times *rank, int ranks, long steps,
                    const struct cmn_straggler *s, char *text, size_t bytes);

/* report/json.c */
struct cmn_json;
struct cmn_json *cmn_json_open(const char *file, long first);
int cmn_json_row(struct cmn_json *j, const struct cmn_row *row, const struct cmn_straggler *s);
void cmn_json_close(struct cmn_json *j);

#endif
