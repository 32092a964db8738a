/* What people see of a training: table, progress bar, JSON log, CSV and chart, written by rank 0 alone.
 * Names of columns are those of ChainerMN's PrintReport and LogReport. All local. */
#ifndef CMN_REPORT_H
#define CMN_REPORT_H

#include <stddef.h>

#include "config/commands.h"
#include "config/options.h"

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
    long skipped;                   /* by cmn_nonfinite=skip, since the training began */
    const struct cmn_rank_times *rank;
    int ranks; /* 0: not known */
};

/* Up to where logs of earlier runs keep their rows. */
struct cmn_kept {
    long iteration; /* of the last row, as the run that wrote it counted */
    double epoch;   /* of that row; 0: not known */
    int same_list;  /* those runs had this run's list, so epochs tell which row was first */
};

struct cmn_report;

struct cmn_report_plan {
    enum cmn_report_mode mode;
    enum cmn_answer answer;  /* of the command: columns that say nothing about it are left out */
    const char *name;        /* of the training */
    const char *json;        /* a whole array after every row */
    const char *csv, *chart; /* file names, or "" */
    long first;              /* iteration to go on from */
    struct cmn_kept kept;
    long total; /* iterations that are expected, 0: not known */
};

/* The strings must outlive the report. NULL with a reason when something cannot be set up. */
struct cmn_report *cmn_report_open(const struct cmn_report_plan *plan);

/* Writes one row. 0, or -1 with a reason when the JSON log cannot be written; when CSV or chart cannot, a line says so and
 * they end there. */
int cmn_report_row(struct cmn_report *r, const struct cmn_row *row);

/* Takes the progress bar away, so that something else can be printed. `r` may be NULL. */
void cmn_report_clear(struct cmn_report *r);

/* Redraws the progress bar, at most ten times a second, on a terminal only; looks after the chart. */
void cmn_report_progress(struct cmn_report *r, long iteration, double epoch, double images_per_s);

/* Ends the report and gives Darknet its standard output back. Waits some seconds at most for the chart. */
void cmn_report_close(struct cmn_report *r);

/* ---- report/columns.c: what a row holds, in the order in which table, JSON log and CSV have it; all local ---- */

struct cmn_column {
    const char *name;
    size_t at;          /* of struct cmn_row: a double, or `iteration` */
    int optional;       /* a negative value is none: not known */
    unsigned answers;   /* 1 << cmn_answer of each kind of command that has it; 0: all have it */
    int width;          /* in the table; 0: it is not there */
    const char *format; /* in the table */
};

/* cmn_column_at(0) … until NULL. */
const struct cmn_column *cmn_column_at(int i);

/* Whether a command of that kind has the column; its value in a row, and whether there is one. */
int cmn_column_of(const struct cmn_column *c, enum cmn_answer answer);
double cmn_column_get(const struct cmn_column *c, const struct cmn_row *row);
void cmn_column_set(const struct cmn_column *c, struct cmn_row *row, double value);
int cmn_column_known(const struct cmn_column *c, const struct cmn_row *row);

/* The row without the columns that a command of that kind does not have. */
struct cmn_row cmn_row_for(const struct cmn_row *row, enum cmn_answer answer);

/* Whether anything stays; and whether a row of this epoch (0: not known) and iteration does. Where it does, so do all rows
 * before it in the log: iterations, which are counted anew with other ranks, need not ascend. */
int cmn_kept_any(const struct cmn_kept *k);
int cmn_kept_holds(const struct cmn_kept *k, double epoch, double iteration);

/* report/table.c: a heading line and one line of a row; `text` of `bytes` is filled. */
void cmn_table_heading(enum cmn_answer answer, char *text, size_t bytes);
void cmn_table_row(enum cmn_answer answer, const struct cmn_row *row, char *text, size_t bytes);

/* Seconds as people read them: 0:07, 1:02:03, 3 d 04:05. */
void cmn_duration(double seconds, char *text, size_t bytes);

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

/* Whether a log may be written there: the file is missing, empty, a log that may be torn, or no regular file. 0, or -1 with a
 * reason. */
int cmn_json_replaceable(const char *file);

/* Of an older log the rows that `kept` holds stay, of a torn one those before the tear, and a line says so. Who kills this
 * process leaves them. NULL with a reason. */
struct cmn_json *cmn_json_open(const char *file, const struct cmn_kept *kept);
int cmn_json_row(struct cmn_json *j, const struct cmn_row *row, const struct cmn_straggler *s);
void cmn_json_close(struct cmn_json *j);

/* Calls `each` with each row of a log, without the ranks. 0; -1 with a reason when the file holds no log, or `each` has
 * returned -1. */
int cmn_json_read(const char *file, int (*each)(void *to, const struct cmn_row *row), void *to);

/* report/csv.c: RFC 4180, the columns of `answer`. Of an older file the rows that `kept` holds stay. Whole lines at
 * every moment. 0, or -1 (NULL) with a reason. */
struct cmn_csv;
struct cmn_csv *cmn_csv_open(const char *file, enum cmn_answer answer, const struct cmn_kept *kept);
int cmn_csv_row(struct cmn_csv *c, const struct cmn_row *row);
void cmn_csv_close(struct cmn_csv *c);

#endif
