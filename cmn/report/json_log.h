/* The JSON log: an array of rows with the keys of ChainerMN's LogReport. The file is valid JSON
 * after every row. Local. */
#ifndef CMN_JSON_LOG_H
#define CMN_JSON_LOG_H

#include "report/stragglers.h"

struct cmn_json_log;

/* Checks whether a log may replace the file: it is missing, empty, a log (perhaps with a torn end),
 * or not a regular file. 0, or -1 with a reason. */
int cmn_json_log_replaceable(const char *file);

/* Opens the log. Rows of an older log stay if `resume` keeps them. If the older log has a torn end,
 * a warning says so, and only rows before the tear can stay. NULL with a reason. */
struct cmn_json_log *cmn_json_log_open(const char *file, const struct cmn_log_resume *resume);

/* Appends a row. A row that cannot be written is tried again once (report/backlog.h); meanwhile the
 * file ends after the previous row. */
void cmn_json_log_row(struct cmn_json_log *j, const struct cmn_row *row,
                      const struct cmn_straggler *s);

/* Blocks until all rows written so far are on the disk. Thread-safe. 0, or -1 with errno. */
int cmn_json_log_sync(const struct cmn_json_log *j);

/* Closes and frees the log. 0, or -1 with a reason when rows are lost. NULL is allowed. */
int cmn_json_log_close(struct cmn_json_log *j);

/* Calls each(to, row) for each complete row of a log; the rows lack the times of the ranks. 0, or
 * -1 with a reason when the file is not a log, or when `each` returns -1. */
int cmn_json_log_read(const char *file, int (*each)(void *to, const struct cmn_row *row), void *to);

#endif
