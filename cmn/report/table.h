/* The table on the terminal: a heading and a line per row, like ChainerMN's PrintReport. Local. */
#ifndef CMN_TABLE_H
#define CMN_TABLE_H

#include <stdio.h>

#include "report/row.h"

/* Each prints one line. */
void cmn_table_heading(FILE *out, enum cmn_answer answer);
void cmn_table_row(FILE *out, enum cmn_answer answer, const struct cmn_row *row);

/* Writes seconds in the form 0:07, 1:02:03 or 3 d 04:05. */
void cmn_duration(double seconds, char *text, size_t bytes);

#endif
