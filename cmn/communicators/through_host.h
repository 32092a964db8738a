/* A communicator of the CPU for gradients that lie on GPUs.
 *
 * Steps: each range of the block that is final is copied to page-locked memory of the host, behind
 * Darknet's work and beside what it asks for next. Once it is there, the CPU's communicator begins
 * it with all that it can do (overlap, cmn_compress). At the end the sums are copied back. So
 * there is one recipe for both, and no way of adding or compressing needs a kernel of its own. One
 * rank copies nothing.
 * Bytes, block of n floats: 4n each way between a GPU and its host; else those of the CPU's. */
#ifndef CMN_THROUGH_HOST_H
#define CMN_THROUGH_HOST_H

#include "communicators/communicator.h"

struct cmn_through_host;

/* Collective, blocking. Opens `inner` as on the CPU, with copies of *t and *o. 0, or -1 with a
 * reason; what a failed open leaves must not be closed. */
int cmn_through_host_open(struct cmn_through_host **h, const struct cmn_communicator *inner,
                          const struct cmn_topology *t, const struct cmn_options *o);

/* Collective, blocking. Makes room for exchanges of up to so many floats; without it the first one
 * that is as long does. 0, or -1 with a reason. */
int cmn_through_host_room(struct cmn_through_host *h, size_t floats);

/* As begin, poll, allreduce and state of struct cmn_communicator. Copies run in the background even
 * where `inner` cannot exchange there. */
void cmn_through_host_begin(struct cmn_through_host *h, const struct cmn_exchange *x, size_t upto);
void cmn_through_host_poll(struct cmn_through_host *h);
void cmn_through_host_allreduce(struct cmn_through_host *h, const struct cmn_exchange *x);
int cmn_through_host_state(struct cmn_through_host *h, int i, struct cmn_state *state);

/* Collective. NULL is allowed. */
void cmn_through_host_close(struct cmn_through_host *h);

#endif
