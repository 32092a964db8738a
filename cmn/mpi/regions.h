/* Memory of the ranks of a node, given out in equal parts: what one rank has at a place of its part, the
 * others have at the same place of theirs. */
#ifndef CMN_REGIONS_H
#define CMN_REGIONS_H

#include <stddef.h>

#include "mpi/shared_window.h"

enum { CMN_REGIONS_WINDOWS = 8 };

struct cmn_regions {
    const struct cmn_group *group; /* must outlive this */
    int rank, ranks;
    struct cmn_window *window[CMN_REGIONS_WINDOWS]; /* in the order of their requests */
    int windows;
    float **part, **cursor;
};

/* Local. 0, or -1 with a reason. */
int cmn_regions_open(struct cmn_regions *p, const struct cmn_group *group);

/* Collective over the group, blocking. Zeroed memory for this rank, or for all in common. It lasts until
 * cmn_regions_close(). 0, or -1 on all ranks with a reason. */
int cmn_regions_memory(struct cmn_regions *p, size_t floats, float **memory);
int cmn_regions_common(struct cmn_regions *p, size_t floats, float **memory);

/* Local. Whether n floats at `mine` lie in memory that cmn_regions_memory() gave; then p->part[] says where
 * each rank has its own. */
int cmn_regions_find(struct cmn_regions *p, float *mine, size_t n);

/* Local. p->part[], each moved on by `at` floats; valid until the next call. */
float *const *cmn_regions_at(struct cmn_regions *p, size_t at);

/* Local. Closes what was opened, also after a failed cmn_regions_open(). */
void cmn_regions_close(struct cmn_regions *p);

#endif
