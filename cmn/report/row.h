/* A row of the report, and its columns in the order of the table and the JSON log. Column names are
 * those of ChainerMN's PrintReport and LogReport. All local. */
#ifndef CMN_ROW_H
#define CMN_ROW_H

#include <stddef.h>

#include "config/commands.h"

/* How one rank spent its time since the previous row, in seconds. */
struct cmn_rank_times {
    char host[64];
    double compute, load;
    double wait; /* end of backward to end of exchange: other ranks, link, sum */
};

/* A negative value means "unknown" where a column is optional. */
struct cmn_row {
    double epoch;
    long iteration;
    double loss;     /* optional; may be NaN */
    double accuracy; /* optional; 0 to 1 */
    /* The validation's values are unknown if it did not run for this row; its accuracy is also
     * unknown if it counts no classes. */
    double validation_loss;                  /* optional; may be NaN */
    double validation_accuracy;              /* optional; 0 to 1 */
    double validation_map, validation_map95; /* optional; mAP@0.5 and mAP@0.5:0.95, 0 to 1 */
    double lr;
    double images_per_s;
    double elapsed;                 /* seconds since the training began */
    double compute, exchange, load; /* fractions of the row's time on rank 0, 0 to 1 */
    long steps;                     /* since the previous row */
    long skipped; /* steps skipped by cmn_nonfinite=skip since the training began */
    long clipped; /* steps clipped by cmn_clip since the training began */
    struct cmn_rank_times *rank;
    int ranks; /* length of rank; 0: the times are unknown */
};

struct cmn_column {
    const char *name;
    size_t at;          /* offset in struct cmn_row of a double or of `iteration` */
    int optional;       /* a negative value means "unknown" */
    unsigned answers;   /* bits 1 << cmn_answer: kinds of commands that have it; 0: all kinds */
    int width;          /* characters in the table; 0: the table leaves it out */
    const char *format; /* in the table */
};

/* Returns column i; NULL after the last one. */
const struct cmn_column *cmn_column_at(int i);

/* Returns whether commands of that kind have the column. */
int cmn_column_of(const struct cmn_column *c, enum cmn_answer answer);

double cmn_column_get(const struct cmn_column *c, const struct cmn_row *row);
void cmn_column_set(const struct cmn_column *c, struct cmn_row *row, double value);

/* Returns whether the row has a value for the column. */
int cmn_column_known(const struct cmn_column *c, const struct cmn_row *row);

/* Rounds a value to seven digits, about the precision of a float, as the logs have it. */
double cmn_log_number(double value);

/* Returns a copy in which the columns that such a command lacks are unknown. */
struct cmn_row cmn_row_for(const struct cmn_row *row, enum cmn_answer answer);

/* The row from which a training resumes: the JSON log keeps the rows of earlier runs up to it. All
 * zero: no row is kept. */
struct cmn_log_resume {
    long iteration; /* of the last row to keep, as the run that wrote it counted */
    double epoch;   /* of that row; 0: unknown */
    int same_list;  /* earlier runs had the same list of images, so epochs order the rows */
};

/* Returns whether any row is kept. */
int cmn_log_resumes(const struct cmn_log_resume *r);

/* Returns whether the row of this epoch (0: unknown) and iteration is kept, and with it every row
 * before it in the log. Iterations need not ascend: with another number of ranks they are counted
 * anew. */
int cmn_log_keeps(const struct cmn_log_resume *r, double epoch, double iteration);

#endif
