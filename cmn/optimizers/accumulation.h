/* Gradient accumulation along the tree of cmn_exact (transports/sum_tree.h).
 *
 * In a step a rank adds up the gradients of its consecutive micro-batches as far as whole subtrees
 * of the tree go, like a binary counter. So n micro-batches need memory for at most 2 log2(n) sums,
 * and each sum is made in one pass. The gradient of the last micro-batch stays in the flat buffer.
 * These sums are the rank's addends; the communicator adds up the addends of all ranks. */
#ifndef CMN_ACCUMULATION_H
#define CMN_ACCUMULATION_H

#include <stddef.h>

#include "communicators/communicator.h"

struct cmn_accumulation;

/* Collective, blocking. Prepares sums of `floats` floats over `micro_batches` micro-batches of all
 * ranks, distributed by cmn_sum_tree_first(). The sums lie in memory of the communicator c (with
 * its self), if it provides any. t, c and self must outlive the result. An error in any call of
 * this file ends the job. */
struct cmn_accumulation *cmn_accumulation_open(const struct cmn_topology *t,
                                               const struct cmn_communicator *c, void *self,
                                               int micro_batches, size_t floats);

/* Collective, between two steps. Assigns the micro-batches [deal[r], deal[r + 1]) to rank r. Blocks
 * if a rank needs more sums for that. */
void cmn_accumulation_deal(struct cmn_accumulation *a, const int *deal);

/* Local. Returns the addends for struct cmn_exchange; they stay valid until close. */
const struct cmn_addends *cmn_accumulation_addends(const struct cmn_accumulation *a);

/* Local. Adds x, the gradient of this rank's next micro-batch, and sets x to 0. The last one of a
 * step stays in x as it is. */
void cmn_accumulation_add(struct cmn_accumulation *a, float *x);

/* Local. Ends the job unless all of this rank's micro-batches of the step were added. The next call
 * of cmn_accumulation_add() starts a new step. */
void cmn_accumulation_end_step(struct cmn_accumulation *a);

/* Local. Returns how many ranks have no micro-batch. */
int cmn_accumulation_idle(const struct cmn_accumulation *a);

/* Local, before the communicator is closed. NULL is allowed. */
void cmn_accumulation_close(struct cmn_accumulation *a);

#endif
