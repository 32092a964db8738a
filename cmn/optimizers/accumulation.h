/* Gradient accumulation along the tree of cmn_exact (transports/sum_tree.h): a rank adds up the
 * gradients of its micro-batches of a step as far as whole subtrees go, like a counter in binary,
 * so it keeps at most 2 log2(n) sums of n micro-batches, each of which is made in one pass. The
 * last micro-batch stays where it is, in the flat buffer. These sums are the rank's addends, and
 * the communicator adds those of all ranks. */
#ifndef CMN_ACCUMULATION_H
#define CMN_ACCUMULATION_H

#include <stddef.h>

#include "communicators/communicator.h"

struct cmn_accumulation;

/* Collective, blocking. Sums of `floats` floats over so many micro-batches of all ranks, dealt out
 * as cmn_sum_tree_first() says, in memory of the communicator c (with its self), if it gives any.
 * t, c and self must outlive it. What fails here and below ends the job. */
struct cmn_accumulation *cmn_accumulation_open(const struct cmn_topology *t,
                                               const struct cmn_communicator *c, void *self,
                                               int micro_batches, size_t floats);

/* Collective, between two steps. Rank r has the micro-batches [deal[r], deal[r + 1]) from now on.
 * Blocks where a rank needs more sums for that. */
void cmn_accumulation_deal(struct cmn_accumulation *a, const int *deal);

/* Local. What an exchange is to be told. */
const struct cmn_addends *cmn_accumulation_addends(const struct cmn_accumulation *a);

/* Local. Takes the next of this rank's micro-batches, in order; x becomes 0, but stays as it is
 * with the last one of a step. */
void cmn_accumulation_add(struct cmn_accumulation *a, float *x);

/* Local. Ends the job unless all of this rank's micro-batches of the step were added. The next
 * ones are those of the next step. */
void cmn_accumulation_end_step(struct cmn_accumulation *a);

/* Local. How many ranks have no micro-batch. */
int cmn_accumulation_idle(const struct cmn_accumulation *a);

/* Local, before the communicator is closed. NULL is allowed. */
void cmn_accumulation_close(struct cmn_accumulation *a);

#endif
