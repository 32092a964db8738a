/* What a row of the report holds, and its columns in the order in which table and JSON log have
 * them. Column names are those of ChainerMN's PrintReport and LogReport. All local. */
#ifndef CMN_ROW_H
#define CMN_ROW_H

#include <stddef.h>

#include "config/commands.h"

/* Where one rank spent its time since the previous row, in seconds. */
struct cmn_rank_times {
    char host[64];
    double compute, load;
    double
        wait; /* from backward's end to the end of the exchange: other ranks, the link, the sum */
};

/* A negative value means "unknown" where a column is optional. */
struct cmn_row {
    double epoch;
    long iteration;
    double loss;                             /* optional; may be NaN */
    double accuracy;                         /* optional */
    double validation_loss;                  /* optional: no validation in this row; may be NaN */
    double validation_accuracy;              /* optional: the validation counts no classes */
    double validation_map, validation_map95; /* optional: mAP@0.5 and mAP@0.5:0.95, 0 to 1 */
    double lr;
    double images_per_s;
    double elapsed;                 /* seconds since the training began */
    double compute, exchange, load; /* fractions of the row's time on rank 0, 0 to 1 */
    long steps;                     /* since the previous row */
    long skipped;                   /* by cmn_nonfinite=skip, since the training began */
    long clipped;                   /* by cmn_clip, since then */
    const struct cmn_rank_times *rank;
    int ranks; /* 0: unknown */
};

struct cmn_column {
    const char *name;
    size_t at;          /* offset in struct cmn_row: a double, or `iteration` */
    int optional;       /* a negative value means unknown */
    unsigned answers;   /* 1 << cmn_answer of each kind of command that has it; 0: all have it */
    int width;          /* in the table; 0: the table leaves it out */
    const char *format; /* in the table */
};

/* Column i; NULL behind the last. */
const struct cmn_column *cmn_column_at(int i);

/* Whether commands of that kind have the column. */
int cmn_column_of(const struct cmn_column *c, enum cmn_answer answer);

double cmn_column_get(const struct cmn_column *c, const struct cmn_row *row);
void cmn_column_set(const struct cmn_column *c, struct cmn_row *row, double value);

/* Whether the row has a value for it. */
int cmn_column_known(const struct cmn_column *c, const struct cmn_row *row);

/* A value as the logs have it: seven digits, the precision of a float. */
double cmn_log_number(double value);

/* A copy in which the columns that such a command lacks are unknown. */
struct cmn_row cmn_row_for(const struct cmn_row *row, enum cmn_answer answer);

/* The row from which a training resumes: the JSON log keeps earlier runs' rows up to it. All
 * zero: nothing is kept. */
struct cmn_log_resume {
    long iteration; /* of the last row that is kept, as the run that wrote it counted */
    double epoch;   /* of that row; 0: unknown */
    int same_list;  /* earlier runs had this run's list of images, so epochs order the rows */
};

/* Whether any row is kept. */
int cmn_log_resumes(const struct cmn_log_resume *r);

/* Whether the row of this epoch (0: unknown) and iteration is kept, and with it every row before it
 * in the log: iterations are counted anew with another number of ranks, so they need not ascend. */
int cmn_log_keeps(const struct cmn_log_resume *r, double epoch, double iteration);

#endif
