/* The rows that a chart draws. Above a limit neighbouring rows are averaged, so that memory and
 * time for drawing stay bounded. Local. */
#ifndef CMN_CHART_ROWS_H
#define CMN_CHART_ROWS_H

#include "report/row.h"

/* Zeroed at first. */
struct cmn_chart_rows {
    struct cmn_row *row; /* in the order of the training, without their ranks */
    int rows;
    int each;    /* rows of the training that became one */
    int in_last; /* the same of the last one so far */
};

void cmn_chart_rows_add(struct cmn_chart_rows *s, const struct cmn_row *row);

void cmn_chart_rows_free(struct cmn_chart_rows *s);

#endif
