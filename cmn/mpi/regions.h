/* Shared memory of the ranks of a node in regions of equal size: for each place of one rank's
 * region the others have a counterpart at the same place of theirs. */
#ifndef CMN_REGIONS_H
#define CMN_REGIONS_H

#include <stddef.h>

#include "mpi/shared_window.h"

enum { CMN_REGIONS_WINDOWS = 32 };

struct cmn_regions {
    const struct cmn_group *group; /* must outlive this */
    int rank, ranks;
    struct cmn_window *window[CMN_REGIONS_WINDOWS]; /* in the order of the requests */
    int windows;
    float **counterpart; /* what cmn_regions_counterparts() returns: `ranks` pointers */
};

/* Local. */
void cmn_regions_open(struct cmn_regions *r, const struct cmn_group *group);

/* Collective over the group, blocking. Zeroed memory for `floats` floats: this rank's region, or
 * memory common to all ranks. It lasts until cmn_regions_close(). 0, or -1 on all ranks with a
 * reason. */
int cmn_regions_memory(struct cmn_regions *r, size_t floats, float **memory);
int cmn_regions_common(struct cmn_regions *r, size_t floats, float **memory);

/* Local. Where each rank has the counterpart of the n floats at `mine`; NULL when these lie in no
 * region. Valid until the next call. */
float *const *cmn_regions_counterparts(struct cmn_regions *r, const float *mine, size_t n);

/* Local. */
void cmn_regions_close(struct cmn_regions *r);

#endif
