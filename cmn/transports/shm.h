/* What transport shm offers beyond struct cmn_transport: the ranks' data and their barrier, for
 * communicators that work in shared memory themselves. `self` is that of cmn_shm. */
#ifndef CMN_TRANSPORTS_SHM_H
#define CMN_TRANSPORTS_SHM_H

#include <stddef.h>

/* Local. Where each rank of the group has its counterpart of the n floats at `data`, which lie in
 * memory of cmn_shm.memory. Valid until the next call. */
float *const *cmn_shm_counterparts(void *self, const float *data, size_t n);

/* Collective, blocking. Zeroed memory for `floats` floats that all ranks of the group have in
 * common, until close. 0, or -1 with a reason. */
int cmn_shm_common(void *self, size_t floats, float **memory);

/* Collective, blocking. As cmn_shm.allreduce, in the group of several ranks; *squares becomes the sum
 * of the squares of the first `upto` sums, the same on all ranks. Each rank makes that of its slice
 * while this is in its caches. */
void cmn_shm_allreduce_squares(void *self, float *data, size_t n, size_t upto, double *squares);

/* Collective, blocking. Returns when all ranks have called it, and shows what they wrote before. */
void cmn_shm_wait(void *self);

#endif
