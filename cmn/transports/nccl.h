/* The GPUs of a group through NCCL, in the background.
 *
 * `self` is what cmn_nccl_open() gave; between a begin and the end that follows, the transport can do
 * nothing else. What goes wrong ends the job. */
#ifndef CMN_TRANSPORTS_NCCL_H
#define CMN_TRANSPORTS_NCCL_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/group.h"

/* Local; the same on all ranks of a node. Why NCCL cannot connect GPUs here, or NULL. */
const char *cmn_nccl_refuses(const struct cmn_topology *t, const struct cmn_options *o);

/* Collective over the group, blocking. The group must outlive it. 0, or -1 with a reason; what a failed
 * open leaves must not be closed. */
int cmn_nccl_open(void **self, const struct cmn_group *group);

/* Collective. NULL is allowed. */
void cmn_nccl_close(void *self);

/* Local, blocking. Zeroed memory of the GPU for `floats` floats that this transport's NCCL is told of, and
 * that of `other`, another transport nccl or NULL. NCCL 2.19 and newer sends from there without a copy
 * of its own; what it does not take serves as any other memory. The transport owns it until close, and
 * `other` is closed before. 0, or -1 with a reason. */
int cmn_nccl_memory(void *self, void *other, size_t floats, float **memory);

/* Local. How often this process has told a NCCL of memory, and how often that did not take it; why
 * not, of the last, or NULL. */
const char *cmn_nccl_registrations(int *blocks, int *refused);

/* Collective, in the same order everywhere, not blocking. What Darknet has asked of the GPU so
 * far makes n floats at `data` this rank's addend; they are the transport's until the end, and
 * become the sum. They travel as `type`: with 16 bits they are divided by `divisor` before the cast,
 * the images that the sum is over, or 0: the number of ranks, so that what fits as a mean fits. A sum
 * that does not all the same is infinite or NaN. */
void cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type, float divisor);

/* As cmn_nccl_begin, but the sum over the ranks of another transport nccl, behind all that was begun
 * on this one; `over` must stay the same until the end. */
void cmn_nccl_begin_over(void *self, void *over, float *data, size_t n, enum cmn_dtype type,
                         float divisor);

/* As cmn_nccl_begin, but of the slices of cmn_slice(), of which rank i owns slice i and ranks from `slices` on
 * none: each goes to its owner as the sum (`sum`), and becomes undefined elsewhere; or from its owner to
 * all. */
void cmn_nccl_begin_slices(void *self, float *data, size_t n, int slices, int sum);

/* Local, blocking. Nothing is begun: brings to the GPU what sums of up to n floats of that type
 * need, which would wait for what was begun otherwise. */
void cmn_nccl_room(void *self, size_t n, enum cmn_dtype type);

/* Local. Floats in each part of a block of n, but for the last: at most 16 parts of at least 1
 * MiB, which as many ranks as divide 1680 (2 to 8, 10, 12, 14, 15, 16, …) can cut into equal slices of
 * whole cache lines. NCCL may add in another order where a call is longer, or a float lies elsewhere in it
 * (NVIDIA/nccl issue 157): who always sums the same parts gets the same bits, whenever they are
 * begun. */
size_t cmn_nccl_chunk(size_t n);

/* Local, not blocking. Gives NCCL what it can take by now, and notices its errors. */
void cmn_nccl_poll(void *self);

/* Collective; blocks until NCCL has taken all that was begun. What Darknet asks of the GPU from here
 * on comes behind that. cmn_nccl_end must follow. */
void cmn_nccl_order(void *self);

/* Collective, blocking. All that was begun is summed. */
void cmn_nccl_end(void *self);

/* Collective, in the same order everywhere. What Darknet has asked of the GPU so far makes n floats at
 * `from`; all ranks' come to `to`, in the order of the ranks, before what Darknet asks for next.
 * Blocks until NCCL has taken the call. What was begun before, by any transport of this process, is
 * given to NCCL first: all ranks call it in one order, so none waits for another one crosswise. */
void cmn_nccl_gather(void *self, float *to, const float *from, size_t n);

/* Local, blocking, within cmn_timeout. All gathers are done; idle(idler), where it is not NULL, is
 * called meanwhile. */
void cmn_nccl_gathered(void *self, void (*idle)(void *self), void *idler);

/* A build without NCCL has none of these: cmn_nccl_refuses() says so, so nobody has a `self` to call them with. */
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
