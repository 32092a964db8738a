/* Sums and gathers over the GPUs of a group by NCCL, in the background.
 *
 * `self` is the handle from cmn_nccl_open(). All transports of a process queue their operations on
 * one stream of their own, so the GPU runs them in the order of the calls. That order must be the
 * same on all ranks, over all their transports: then no two ranks wait for each other in different
 * operations, and no operation keeps another one from the GPU. Errors end the job. */
#ifndef CMN_TRANSPORTS_NCCL_H
#define CMN_TRANSPORTS_NCCL_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/group.h"

/* A build without NCCL does not define these functions. cmn_nccl_refuses() reports that, so nobody
 * has a `self` to call them with. */
#ifdef CMN_NCCL
#define CMN_BY_NCCL
#else
#define CMN_BY_NCCL __attribute__((weak))
#endif

/* The same on all ranks of a node. Returns why NCCL cannot connect these GPUs, or NULL. */
const char *cmn_nccl_refuses(const struct cmn_topology *t);

/* Collective over the group, blocking. The group must outlive the transport. Returns 0, or -1 with
 * a reason; after a failure *self must not be closed. */
CMN_BY_NCCL int cmn_nccl_open(void **self, const struct cmn_group *group);

/* Collective. Closes the transport; NULL is allowed. */
CMN_BY_NCCL void cmn_nccl_close(void *self);

/* Collective, in the same order on all ranks, not blocking, except for the first operation. Sums n
 * floats at `data` over the group, in place. This rank's addend is complete once the GPU has done
 * the work that Darknet has queued so far; the transport owns the floats until cmn_nccl_end(). They
 * are sent as `type`. Before a cast to 16 bits they are divided by `divisor`, the number of images
 * in the sum (0: the number of ranks), so they fit if their mean does. A sum that still overflows
 * becomes infinite or NaN. */
CMN_BY_NCCL void cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type,
                                float divisor);

/* Blocking, while nothing is begun. Loads and allocates on the GPU what sums of up to n floats of
 * this type need. Without it a later cmn_nccl_begin() does so, and may wait for what was begun. */
CMN_BY_NCCL void cmn_nccl_room(void *self, size_t n, enum cmn_dtype type);

/* Returns the number of floats in each part of a block of n floats, except the last part. There are
 * at most 16 parts of at least 1 MiB each. NCCL may add in another order if a call is longer or a
 * float lies elsewhere in it (NVIDIA/nccl issue 157). Summing always the same parts gives the same
 * bits, whenever the parts are begun. */
size_t cmn_nccl_chunk(size_t n);

/* Not blocking. What Darknet queues on the GPU from here on runs after everything that was begun.
 * cmn_nccl_end() must follow. */
CMN_BY_NCCL void cmn_nccl_order(void *self);

/* Collective, blocking, for at most cmn_timeout for each operation. Waits until everything that was
 * begun or gathered is done, and calls idle(idler), if it is not NULL, while it waits. */
CMN_BY_NCCL void cmn_nccl_end(void *self, void (*idle)(void *self), void *idler);

/* Collective, in the same order on all ranks, not blocking, except for the first operation. Gathers n
 * floats from each rank's `from` to `to`, in the order of the ranks. It runs on the GPU after the
 * work that Darknet has queued so far, and before the work that Darknet queues next. */
CMN_BY_NCCL void cmn_nccl_gather(void *self, float *to, const float *from, size_t n);

#endif
