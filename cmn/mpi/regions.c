#include "mpi/regions.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

int cmn_regions_open(struct cmn_regions *p, const struct cmn_group *group)
{
    memset(p, 0, sizeof *p);
    p->group = group;
    MPI_Comm_rank(group->comm, &p->rank);
    MPI_Comm_size(group->comm, &p->ranks);
    p->part = calloc((size_t)p->ranks, sizeof *p->part);
    p->cursor = calloc((size_t)p->ranks, sizeof *p->cursor);
    return p->part && p->cursor ? 0 : cmn_fail("out of memory");
}

static struct cmn_window *new_window(struct cmn_regions *p, size_t bytes, size_t common)
{
    if (p->windows == CMN_REGIONS_WINDOWS) {
        cmn_fail("shm: more than %d pieces of memory", CMN_REGIONS_WINDOWS);
        return NULL;
    }
    if (cmn_window_open(&p->window[p->windows], p->group, bytes, common)) {
        return NULL;
    }
    return p->window[p->windows++];
}

int cmn_regions_memory(struct cmn_regions *p, size_t floats, float **memory)
{
    const struct cmn_window *w = new_window(p, floats * sizeof **memory, 0);

    *memory = w ? cmn_window_part(w, p->rank) : NULL;
    return w ? 0 : -1;
}

int cmn_regions_common(struct cmn_regions *p, size_t floats, float **memory)
{
    const struct cmn_window *w = new_window(p, 0, floats * sizeof **memory);

    *memory = w ? cmn_window_common(w) : NULL;
    return w ? 0 : -1;
}

int cmn_regions_find(struct cmn_regions *p, float *mine, size_t n)
{
    for (int i = 0; i < p->windows; i++) {
        const struct cmn_window *w = p->window[i];
        if (cmn_window_holds(w, mine, n * sizeof *mine)) {
            size_t at = (size_t)(mine - (float *)cmn_window_part(w, p->rank));
            for (int k = 0; k < p->ranks; k++) {
                p->part[k] = (float *)cmn_window_part(w, k) + at;
            }
            return 1;
        }
    }
    return 0;
}

float *const *cmn_regions_at(struct cmn_regions *p, size_t at)
{
    for (int k = 0; k < p->ranks; k++) {
        p->cursor[k] = p->part[k] + at;
    }
    return p->cursor;
}

void cmn_regions_close(struct cmn_regions *p)
{
    for (int i = 0; i < p->windows; i++) {
        cmn_window_close(p->window[i]);
    }
    free(p->part);
    free(p->cursor);
    memset(p, 0, sizeof *p);
}
