#include "mpi/regions.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"

void cmn_regions_open(struct cmn_regions *r, const struct cmn_group *group)
{
    memset(r, 0, sizeof *r);
    r->group = group;
    MPI_Comm_rank(group->comm, &r->rank);
    MPI_Comm_size(group->comm, &r->ranks);
    r->counterpart = cmn_calloc((size_t)r->ranks, sizeof *r->counterpart);
}

static struct cmn_window *new_window(struct cmn_regions *r, size_t bytes, size_t common)
{
    if (r->windows == CMN_REGIONS_WINDOWS) {
        cmn_fatal("shared memory: more than %d regions", CMN_REGIONS_WINDOWS);
    }
    if (cmn_window_open(&r->window[r->windows], r->group, bytes, common)) {
        return NULL;
    }
    return r->window[r->windows++];
}

int cmn_regions_memory(struct cmn_regions *r, size_t floats, float **memory)
{
    const struct cmn_window *w = new_window(r, floats * sizeof **memory, 0);

    *memory = w ? cmn_window_part(w, r->rank) : NULL;
    return w ? 0 : -1;
}

int cmn_regions_common(struct cmn_regions *r, size_t floats, float **memory)
{
    const struct cmn_window *w = new_window(r, 0, floats * sizeof **memory);

    *memory = w ? cmn_window_common(w) : NULL;
    return w ? 0 : -1;
}

float *const *cmn_regions_counterparts(struct cmn_regions *r, const float *mine, size_t n)
{
    for (int i = 0; i < r->windows; i++) {
        const struct cmn_window *w = r->window[i];
        if (cmn_window_holds(w, mine, n * sizeof *mine)) {
            size_t at = (size_t)(mine - (const float *)cmn_window_part(w, r->rank));
            for (int k = 0; k < r->ranks; k++) {
                r->counterpart[k] = (float *)cmn_window_part(w, k) + at;
            }
            return r->counterpart;
        }
    }
    return NULL;
}

void cmn_regions_close(struct cmn_regions *r)
{
    for (int i = 0; i < r->windows; i++) {
        cmn_window_close(r->window[i]);
    }
    free(r->counterpart);
    memset(r, 0, sizeof *r);
}
