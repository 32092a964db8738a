/* Sums and gathers over the GPUs of a group by NCCL, in the background.
 *
 * `self` is the handle from cmn_nccl_open(). Between a begin and the following end the transport
 * can be used for nothing else. Errors end the job. */
#ifndef CMN_TRANSPORTS_NCCL_H
#define CMN_TRANSPORTS_NCCL_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/group.h"

/* Local; the same on all ranks of a node. Returns why NCCL cannot connect these GPUs, or NULL. */
const char *cmn_nccl_refuses(const struct cmn_topology *t, const struct cmn_options *o);

/* Collective over the group, blocking. The group must outlive the transport. Returns 0, or -1 with
 * a reason; after a failure *self must not be closed. */
int cmn_nccl_open(void **self, const struct cmn_group *group);

/* Collective. Closes the transport; NULL is allowed. */
void cmn_nccl_close(void *self);

/* Local, blocking. Allocates zeroed memory for `floats` floats on the GPU and registers it with
 * this transport's NCCL communicator and with that of `other`, another NCCL transport or NULL. NCCL
 * 2.19 and newer sends from registered memory without a copy of its own; memory whose registration
 * fails is used like any other. The transport owns the memory until close, and `other` is closed
 * first. Returns 0, or -1 with a reason. */
int cmn_nccl_memory(void *self, void *other, size_t floats, float **memory);

/* Local. Counts this process's registrations of memory and those that NCCL refused. Returns the
 * reason of the last refusal, or NULL. */
const char *cmn_nccl_registrations(int *blocks, int *refused);

/* Collective, in the same order on all ranks, not blocking. Sums n floats at `data` over the group,
 * in place. This rank's addend is complete once the GPU has done the work that Darknet has queued
 * so far; the transport owns the floats until cmn_nccl_end(). They are sent as `type`. Before a
 * cast to 16 bits they are divided by `divisor`, the number of images in the sum (0: the number of
 * ranks), so they fit if their mean does. A sum that still overflows becomes infinite or NaN. */
void cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type, float divisor);

/* Does the same as cmn_nccl_begin(), but sums over the ranks of another NCCL transport, on this
 * one's stream, after everything begun on this one. `over` must stay the same until the end. */
void cmn_nccl_begin_over(void *self, void *over, float *data, size_t n, enum cmn_dtype type,
                         float divisor);

/* Collective, in the same order on all ranks, not blocking. Works on the `slices` slices of
 * cmn_slice(): rank i owns slice i, and ranks from number `slices` on own none. With `sum` each
 * owner receives the sum of its slice, which becomes undefined on the other ranks; without it each
 * owner's slice is copied to all ranks. Otherwise it does the same as cmn_nccl_begin() with 32
 * bits. */
void cmn_nccl_begin_slices(void *self, float *data, size_t n, int slices, int sum);

/* Local, blocking, while nothing is begun. Loads and allocates on the GPU what sums of up to n
 * floats of this type need. Without it a later cmn_nccl_begin() does so, and may wait for what was
 * begun. */
void cmn_nccl_room(void *self, size_t n, enum cmn_dtype type);

/* Local. Returns the number of floats in each part of a block of n floats, except the last part.
 * There are at most 16 parts of at least 1 MiB each. Numbers of ranks that divide 1680 (2 to 8, 10,
 * 12, 14, 15, 16, …) cut a part into equal slices of whole cache lines. NCCL may add in another
 * order if a call is longer or a float lies elsewhere in it (NVIDIA/nccl issue 157). Summing always
 * the same parts gives the same bits, whenever the parts are begun. */
size_t cmn_nccl_chunk(size_t n);

/* Local, not blocking. Gives NCCL the jobs that it can accept now, and checks NCCL for errors. */
void cmn_nccl_poll(void *self);

/* Collective; blocks until NCCL has accepted everything that was begun. What Darknet queues on the
 * GPU from here on runs after it. cmn_nccl_end() must follow. */
void cmn_nccl_order(void *self);

/* Collective, blocking. Waits until everything that was begun is done. */
void cmn_nccl_end(void *self);

/* Collective, in the same order on all ranks; blocks until NCCL has accepted the call. Gathers n
 * floats from each rank's `from` to `to`, in the order of the ranks. It runs on the GPU after the
 * work that Darknet has queued so far, and before the work that Darknet queues next. What was begun
 * before, on any NCCL transport of this process, is given to NCCL first. All ranks then call NCCL
 * in one order, and no two ranks wait for each other in different operations. */
void cmn_nccl_gather(void *self, float *to, const float *from, size_t n);

/* Local, blocking, for at most cmn_timeout. Waits until all gathers are done, and calls
 * idle(idler), if it is not NULL, while it waits. */
void cmn_nccl_gathered(void *self, void (*idle)(void *self), void *idler);

/* A build without NCCL does not define these functions. cmn_nccl_refuses() reports that, so nobody
 * has a `self` to call them with. */
#ifndef CMN_NCCL
#pragma weak cmn_nccl_open
#pragma weak cmn_nccl_close
#pragma weak cmn_nccl_memory
#pragma weak cmn_nccl_begin
#pragma weak cmn_nccl_begin_over
#pragma weak cmn_nccl_begin_slices
#pragma weak cmn_nccl_room
#pragma weak cmn_nccl_poll
#pragma weak cmn_nccl_order
#pragma weak cmn_nccl_end
#pragma weak cmn_nccl_gather
#pragma weak cmn_nccl_gathered
#endif

#endif
