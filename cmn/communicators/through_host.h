/* Exchanges gradients on GPUs by a communicator of the CPU.
 *
 * Steps: each final range of the block is copied to page-locked memory of the host, behind the work
 * that Darknet has queued and in parallel with the work that it queues next. When the copy is
 * there, the CPU's communicator begins the exchange of it, with all its features (overlap,
 * cmn_compress). At the end the sums are copied back. So one recipe serves both, and no order of
 * additions and no compressor needs a kernel of its own. A single rank copies nothing.
 * Bytes, block of n floats: 4n each way between a GPU and its host, and those of the CPU's
 * communicator. */
#ifndef CMN_THROUGH_HOST_H
#define CMN_THROUGH_HOST_H

#include "communicators/communicator.h"

struct cmn_through_host;

/* Collective, blocking. Opens `inner` as on the CPU, with copies of *t and *o. Returns 0, or -1
 * with a reason; after a failure *h must not be closed. */
int cmn_through_host_open(struct cmn_through_host **h, const struct cmn_communicator *inner,
                          const struct cmn_topology *t, const struct cmn_options *o);

/* Collective, blocking. Makes room for exchanges of up to `floats` floats; otherwise the first
 * exchange that needs it does. Returns 0, or -1 with a reason. */
int cmn_through_host_room(struct cmn_through_host *h, size_t floats);

/* Do the same as begin, poll, allreduce and state of struct cmn_communicator. Copies run in the
 * background even if `inner` cannot exchange there. */
void cmn_through_host_begin(struct cmn_through_host *h, const struct cmn_exchange *x, size_t upto);
void cmn_through_host_poll(struct cmn_through_host *h);
void cmn_through_host_allreduce(struct cmn_through_host *h, const struct cmn_exchange *x);
int cmn_through_host_state(struct cmn_through_host *h, int i, struct cmn_state *state);

/* Collective. NULL is allowed. */
void cmn_through_host_close(struct cmn_through_host *h);

#endif
