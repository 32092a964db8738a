/* The ranks of a node in shared memory: their data, sums of them, and a barrier. `self` is what
 * cmn_shm_open() gave. */
#ifndef CMN_TRANSPORTS_SHM_H
#define CMN_TRANSPORTS_SHM_H

#include <stddef.h>

#include "mpi/group.h"
#include "transports/sum_tree.h"

/* Collective over the group, blocking. The group must outlive it. 0, or -1 with a reason; what a
 * failed open leaves must not be closed. */
int cmn_shm_open(void **self, const struct cmn_group *group);

/* Collective, blocking. Zeroed memory for at least `floats` floats (the largest request of the
 * group counts), aligned to 64 bytes, until close. What is summed lies in it, at the same place on
 * all ranks, at a multiple of 16 bytes. 0, or -1 with a reason. */
int cmn_shm_memory(void *self, size_t floats, float **memory);

/* Collective, blocking. Zeroed memory for `floats` floats that all ranks of the group have in
 * common, until close. 0, or -1 with a reason. */
int cmn_shm_common(void *self, size_t floats, float **memory);

/* Collective, blocking. n floats at `data`, the same n on all ranks, become the sum of all ranks',
 * added in their order: the same bits on all. */
void cmn_shm_allreduce(void *self, float *data, size_t n);

/* The same, in the group of several ranks; *squares becomes the sum of the squares of the first
 * `upto` sums, the same on all ranks. Each rank makes that of its slice while this is in its
 * caches. */
void cmn_shm_allreduce_squares(void *self, float *data, size_t n, size_t upto, double *squares);

/* As cmn_shm_allreduce, added along the tree, whose addends lie in memory of cmn_shm_memory(). */
void cmn_shm_allreduce_tree(void *self, const struct cmn_sum_tree *tree, float *data, size_t n);

/* Local. Where each rank of the group has its counterpart of the n floats at `data`, which lie in
 * memory of cmn_shm_memory(). Valid until the next call. */
float *const *cmn_shm_counterparts(void *self, const float *data, size_t n);

/* Collective, blocking. Returns when all ranks have called it, and shows what they wrote before. */
void cmn_shm_wait(void *self);

/* Collective. */
void cmn_shm_close(void *self);

#endif
