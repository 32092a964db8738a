/* regions: shared memory of the ranks of a node, in regions of equal size. Each float of one rank's
 * region has a counterpart at the same place of every other rank's region. */
#ifndef CMN_REGIONS_H
#define CMN_REGIONS_H

#include <stddef.h>

#include "mpi/shared_window.h"

enum { CMN_REGIONS_WINDOWS = 32 };

struct cmn_regions {
    const struct cmn_group *group; /* must outlive this */
    int rank, ranks;
    /* in the order in which they were requested */
    struct cmn_window *window[CMN_REGIONS_WINDOWS];
    int windows;
    float **counterpart; /* `ranks` pointers, the result of cmn_regions_counterparts() */
};

/* Local. */
void cmn_regions_open(struct cmn_regions *r, const struct cmn_group *group);

/* Collective over the group, blocking. Allocate zeroed memory for `floats` floats:
 * cmn_regions_memory() this rank's region, cmn_regions_common() memory that all ranks have in
 * common. It lasts until cmn_regions_close(). Return 0, or -1 on all ranks with a reason. */
int cmn_regions_memory(struct cmn_regions *r, size_t floats, float **memory);
int cmn_regions_common(struct cmn_regions *r, size_t floats, float **memory);

/* Local. Returns, for each rank, the address of the counterpart of the n floats at `mine`; NULL if
 * these lie in no region. Valid until the next call. */
float *const *cmn_regions_counterparts(struct cmn_regions *r, const float *mine, size_t n);

/* Local. */
void cmn_regions_close(struct cmn_regions *r);

#endif
