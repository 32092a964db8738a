/* The mAP table: average precision of each class and the means, as text and as JSON. All calls are
 * local. */
#ifndef CMN_MAP_TABLE_H
#define CMN_MAP_TABLE_H

#include <stdio.h>

#include "evaluators/average_precision.h"

/* A file of cmn_map_table_json() begins with this text. */
#define CMN_MAP_TABLE_HEAD "{\n\t\"images\":"

struct cmn_map_table {
    long images, unlabelled; /* number of all images; of those without a label file */
    int classes;
    char **names; /* NULL: the classes have no names */
    const struct cmn_precision *each, *all;
    const struct cmn_precision_plan *plan;
};

/* Prints a row for each class, and the means. */
void cmn_map_table_print(FILE *out, const struct cmn_map_table *m);

/* Writes the same as a JSON object, with the average precision at each threshold. Closes `out`,
 * whose name is `file`. Ends the job if it cannot be written. */
void cmn_map_table_json(FILE *out, const char *file, const struct cmn_map_table *m);

#endif
