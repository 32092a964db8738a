/* The GPU: which one, its memory, and what MPI knows of it. In a build without CUDA everything here
 * is there too, and says so. Nothing here needs a device before it is asked for one. */
#ifndef CMN_DEVICE_H
#define CMN_DEVICE_H

#include <stddef.h>

#include "mpi/topology.h"

/* Local. Whether this is a build with CUDA. */
int cmn_device_built(void);

/* Local. GPUs that this process may use, 0 without CUDA, driver or device. */
int cmn_device_count(void);

/* Collective over all ranks, blocking. `device` is the number of the GPU that Darknet uses here, or -1. Makes
 * it t->device when all ranks use one, or none does, and no two ranks of the node use the same one
 * (unless `share`). 0, or -1 with a reason on the ranks that are to blame. */
int cmn_device_agree(struct cmn_topology *t, int device, int share);

/* Local, blocking. Zeroed memory for `floats` floats on the current GPU; the caller frees it with
 * cmn_device_free(). 0, or -1 with a reason. */
int cmn_device_memory(float **memory, size_t floats);
void cmn_device_free(float *memory);

/* Local, blocking: n floats are there, and whatever Darknet had asked of the GPU before is done,
 * when the call returns. 0, or -1 with a reason. */
int cmn_device_write(float *device, const float *host, size_t n);
int cmn_device_read(float *host, const float *device, size_t n);
int cmn_device_copy(float *device, const float *from_device, size_t n);

/* Local, not blocking. *found, of the GPU's memory, becomes 1 when one of the n floats at x, as they are once whatever Darknet has asked of
 * the GPU is done, is NaN or infinite. 0, or -1 with a reason. */
int cmn_device_look(float *found, const float *x, size_t n);

/* Local, blocking: until whatever Darknet had asked of the GPU is done; meanwhile calls work(self) again and again, at least
 * once. 0, or -1 with a reason, which may be work's. */
int cmn_device_wait(int (*work)(void *self), void *self);

/* Local. 0 when `code`, a cudaError_t, is cudaSuccess; else notes "<what>: <CUDA's text>" and returns -1. */
int cmn_device_check(int code, const char *what);

/* Local, the same on all ranks. Why MPI cannot be given the buffers of t (one clause that says what to
 * use instead), or NULL. */
const char *cmn_device_refuses_mpi(const struct cmn_topology *t);

#endif
