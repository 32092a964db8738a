/* The CSV file (cmn_csv): RFC 4180, the columns of a kind of command, whole lines at every moment.
 * Local. */
#ifndef CMN_CSV_H
#define CMN_CSV_H

#include "report/row.h"

struct cmn_csv;

/* Opens the file. The rows of an older file that `resume` keeps stay. NULL with a reason. */
struct cmn_csv *cmn_csv_open(const char *file, enum cmn_answer answer,
                             const struct cmn_log_resume *resume);

/* Appends a line. One that cannot be written waits (report/backlog.h). */
void cmn_csv_row(struct cmn_csv *c, const struct cmn_row *row);

/* Blocks until the lines that are written are on the disk; thread-safe. 0, or -1 with errno. */
int cmn_csv_sync(const struct cmn_csv *c);

/* 0, or -1 with a reason when lines are lost. NULL is allowed. */
int cmn_csv_close(struct cmn_csv *c);

#endif
