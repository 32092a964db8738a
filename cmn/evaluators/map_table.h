/* The mAP table: average precision of each class and their means, as text and as JSON. All
 * local. */
#ifndef CMN_MAP_TABLE_H
#define CMN_MAP_TABLE_H

#include <stdio.h>

#include "evaluators/average_precision.h"

/* A file of cmn_map_table_json() begins with this text. */
#define CMN_MAP_TABLE_HEAD "{\n\t\"images\":"

struct cmn_map_table {
    long images, unlabelled; /* all, and those without a label file */
    int classes;
    char **names; /* NULL: they have none */
    const struct cmn_precision *each, *all;
    const struct cmn_precision_plan *plan;
};

/* Prints a row for each class, and the means. */
void cmn_map_table_print(FILE *out, const struct cmn_map_table *m);

/* The same, with each threshold's average precision, as a JSON object. Closes `out`, whose name is
 * `file`. Ends the job when it cannot be written. */
void cmn_map_table_json(FILE *out, const char *file, const struct cmn_map_table *m);

#endif
