/* Sums over the ranks of a node in shared memory, and a barrier. `self` is the handle from
 * cmn_shm_open(). */
#ifndef CMN_TRANSPORTS_SHM_H
#define CMN_TRANSPORTS_SHM_H

#include <stddef.h>

#include "mpi/group.h"
#include "transports/sum_tree.h"

/* Collective over the group, blocking. The group must outlive the transport. Returns 0, or -1 with
 * a reason; after a failure *self must not be closed. */
int cmn_shm_open(void **self, const struct cmn_group *group);

/* Collective, blocking. Allocates zeroed shared memory for at least `floats` floats (the largest
 * request of the group counts), aligned to 64 bytes; the transport owns it until close. Floats to
 * be summed must lie in such memory, at the same offset on all ranks, at a multiple of 16 bytes.
 * Returns 0, or -1 with a reason. */
int cmn_shm_memory(void *self, size_t floats, float **memory);

/* Collective, blocking. Allocates zeroed memory for `floats` floats that is common to all ranks of
 * the group; the transport owns it until close. Returns 0, or -1 with a reason. */
int cmn_shm_common(void *self, size_t floats, float **memory);

/* Collective, blocking. Replaces n floats at `data` (the same n on all ranks) by their sum over all
 * ranks, added in the order of the ranks: the same bits on all. */
void cmn_shm_allreduce(void *self, float *data, size_t n);

/* Does the same as cmn_shm_allreduce(), in a group of several ranks, and sets *squares to the sum
 * of the squares of the first `upto` sums, the same on all ranks. Each rank squares its slice while
 * the slice is in its caches. */
void cmn_shm_allreduce_squares(void *self, float *data, size_t n, size_t upto, double *squares);

/* Does the same as cmn_shm_allreduce(), but adds along the tree. The tree's addends must lie in
 * memory of cmn_shm_memory(). */
void cmn_shm_allreduce_tree(void *self, const struct cmn_sum_tree *tree, float *data, size_t n);

/* Local. Returns, for each rank of the group, the address of its counterpart of the n floats at
 * `data`. They must lie in memory of cmn_shm_memory(). The array is valid until the next call. */
float *const *cmn_shm_counterparts(void *self, const float *data, size_t n);

/* Collective, blocking. A barrier, which also makes the ranks' earlier writes visible. */
void cmn_shm_wait(void *self);

/* Collective. */
void cmn_shm_close(void *self);

#endif
