/* The ranks of a node sum floats in place, in shared memory.
 *
 * Steps of a sum: a barrier; each rank sums its slice of all ranks' data and writes the sum to all
 * of them; a barrier. No bytes are sent. */
#include "transports/shm.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "mpi/regions.h"
#include "mpi/shared_window.h"

/* With fewer floats than this the barriers dominate the time, and ordinary stores are faster. */
enum { SMALL = 16384 };

/* Floats that are summed and then squared together, while they are in a cache. */
enum { BLOCK = 4096 };

struct shm {
    struct cmn_regions regions;
    struct cmn_window *barrier; /* a window that holds only the barrier */
    struct cmn_stores stores;   /* chooses the kind of store for sums */
    /* Holds a double: this rank's part of a sum of squares. NULL until it is needed. */
    float *partial;
    int rank, ranks;
};

int cmn_shm_open(void **self, const struct cmn_group *group)
{
    struct shm *s = cmn_calloc(1, sizeof *s);

    *self = s;
    MPI_Comm_rank(group->comm, &s->rank);
    MPI_Comm_size(group->comm, &s->ranks);
    cmn_regions_open(&s->regions, group);
    return cmn_window_open(&s->barrier, group, 0, 0);
}

int cmn_shm_memory(void *self, size_t floats, float **memory)
{
    struct shm *s = self;

    return cmn_regions_memory(&s->regions, floats, memory);
}

int cmn_shm_common(void *self, size_t floats, float **memory)
{
    struct shm *s = self;

    return cmn_regions_common(&s->regions, floats, memory);
}

float *const *cmn_shm_counterparts(void *self, const float *data, size_t n)
{
    struct shm *s = self;
    float *const *all = cmn_regions_counterparts(&s->regions, data, n);

    if (!all) {
        cmn_fatal("shm: %zu floats do not lie in the shared memory of this node", n);
    }
    return all;
}

void cmn_shm_wait(void *self)
{
    const struct shm *s = self;

    cmn_window_barrier(s->barrier);
}

static int nothing_to_do(const struct shm *s, size_t n)
{
    return s->ranks == 1 || n == 0;
}

/* Returns whether this call uses non-temporal stores. sum_ends() measures how long the sum took. */
static int sum_begins(struct shm *s, size_t n, double *began)
{
    *began = cmn_clock();
    return n >= SMALL && cmn_stores_non_temporal(&s->stores);
}

static void sum_ends(struct shm *s, size_t n, double began)
{
    if (n >= SMALL) {
        cmn_stores_took(&s->stores, cmn_clock() - began, n);
    }
}

void cmn_shm_allreduce(void *self, float *data, size_t n)
{
    struct shm *s = self;
    size_t at, count;
    double began;
    int non_temporal;

    if (nothing_to_do(s, n)) {
        return;
    }
    cmn_slice(n, s->ranks, s->rank, &at, &count);
    cmn_shm_wait(s);
    non_temporal = sum_begins(s, n, &began);
    cmn_reduce_broadcast(cmn_shm_counterparts(s, data + at, count), s->ranks, s->rank, non_temporal,
                         count);
    sum_ends(s, n, began);
    cmn_shm_wait(s);
}

void cmn_shm_allreduce_tree(void *self, const struct cmn_sum_tree *tree, float *data, size_t n)
{
    struct shm *s = self;
    size_t at, count;

    cmn_slice(n, s->ranks, s->rank, &at, &count);
    cmn_shm_wait(s);
    for (size_t end = at + count; at < end; at += BLOCK) {
        size_t some = end - at < BLOCK ? end - at : BLOCK;
        float *const *all = cmn_shm_counterparts(s, data + at, some);
        cmn_sum_tree_add(tree, at, some, data + at);
        for (int i = 0; i < s->ranks; i++) {
            if (i != s->rank) {
                memcpy(all[i], data + at, some * sizeof *data);
            }
        }
    }
    cmn_shm_wait(s);
}

/* Sums the floats [from, to) over all ranks, block by block. Returns the sum of the squares of the
 * sums below float `upto`. */
static double sum_and_square(struct shm *s, float *data, size_t from, size_t to, size_t upto,
                             int non_temporal)
{
    double squares = 0;

    for (size_t at = from; at < to; at += BLOCK) {
        size_t n = to - at < BLOCK ? to - at : BLOCK, below = at < upto ? upto - at : 0;
        cmn_reduce_broadcast(cmn_shm_counterparts(s, data + at, n), s->ranks, s->rank, non_temporal,
                             n);
        squares += cmn_sum_of_squares_near(data + at, below < n ? below : n);
    }
    return squares;
}

void cmn_shm_allreduce_squares(void *self, float *data, size_t n, size_t upto, double *squares)
{
    struct shm *s = self;
    size_t at, count;
    double mine, began;
    float *const *all;
    int non_temporal;

    if (!s->partial && cmn_regions_memory(&s->regions, sizeof mine / sizeof(float), &s->partial)) {
        cmn_fatal_reason();
    }
    cmn_slice(n, s->ranks, s->rank, &at, &count);
    cmn_shm_wait(s);
    non_temporal = sum_begins(s, n, &began);
    mine = sum_and_square(s, data, at, at + count, upto, non_temporal);
    sum_ends(s, n, began);
    memcpy(s->partial, &mine, sizeof mine);
    cmn_shm_wait(s);
    /* Other ranks do not overwrite their `partial` before all ranks have entered the next call. */
    all = cmn_shm_counterparts(s, s->partial, sizeof mine / sizeof(float));
    *squares = 0;
    for (int i = 0; i < s->ranks; i++) {
        memcpy(&mine, all[i], sizeof mine);
        *squares += mine;
    }
}

void cmn_shm_close(void *self)
{
    struct shm *s = self;

    cmn_window_close(s->barrier);
    cmn_regions_close(&s->regions);
    free(s);
}
