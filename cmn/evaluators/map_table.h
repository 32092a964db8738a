/* What people see of a detector's evaluation. All local. */
#ifndef CMN_MAP_H
#define CMN_MAP_H

#include <stdio.h>

#include "evaluators/average_precision.h"

struct cmn_map_table {
    long images, unlabelled; /* and those of them without a label file */
    int classes;
    char **names; /* NULL: they have none */
    const struct cmn_precision *each, *all;
    const struct cmn_precision_plan *plan;
};

/* A table with a row for each class, and the means. */
void cmn_map_table_print(FILE *out, const struct cmn_map_table *m);

/* The same, and each threshold's average precision, as a JSON object. Closes `out`, whose name is `file`. 0, or -1 with a
 * reason. */
int cmn_map_table_json(FILE *out, const char *file, const struct cmn_map_table *m);

#endif
