/* The JSON log: an array of rows, whole after every row, as ChainerMN's LogReport. Local. */
#ifndef CMN_JSON_LOG_H
#define CMN_JSON_LOG_H

#include "report/stragglers.h"

struct cmn_json_log;

/* Whether the file may be replaced by a log: it is missing, empty, a log (perhaps with a torn end),
 * or no regular file. 0, or -1 with a reason. */
int cmn_json_log_replaceable(const char *file);

/* Opens the log. The rows of an older log that `resume` keeps stay; of one with a torn end, those
 * before the tear, and a warning says so. NULL with a reason. */
struct cmn_json_log *cmn_json_log_open(const char *file, const struct cmn_log_resume *resume);

/* Appends a row. One that cannot be written is tried again once (report/backlog.h): the file still ends behind
 * the row before. */
void cmn_json_log_row(struct cmn_json_log *j, const struct cmn_row *row,
                      const struct cmn_straggler *s);

/* Blocks until the rows that are written are on the disk; thread-safe. 0, or -1 with errno. */
int cmn_json_log_sync(const struct cmn_json_log *j);

/* 0, or -1 with a reason when rows are lost. NULL is allowed. */
int cmn_json_log_close(struct cmn_json_log *j);

/* Calls each(to, row) for each whole row of a log; rows come without their ranks. 0, or -1 with a
 * reason when the file is no log, or when `each` returns -1. */
int cmn_json_log_read(const char *file, int (*each)(void *to, const struct cmn_row *row), void *to);

#endif
