/* Sums in a fixed order (cmn_exact): the gradients of a step's micro-batches are added along one
 * binary tree over their numbers, whoever has computed them. Any number of ranks gets the same bits.
 *
 * A node of the tree has the micro-batches [a, b). Its left child ends at a plus the largest power
 * of two below b - a, and it is the sum left + right. Of 6 micro-batches:
 *
 *     ((0 + 1) + (2 + 3)) + (4 + 5)
 *
 * A rank computes consecutive micro-batches and adds them up as far as whole nodes go, like a
 * counter in binary: it keeps at most 2 log2(n) sums of n micro-batches, each of which is made in one
 * pass. Then, in two levels, the ranks of a node of the network continue with that in their shared memory,
 * and nodes exchange the rest (ordered_levels.h). Where memory is not to be shared each rank counts as
 * a node of its own. */
#ifndef CMN_ORDERED_SUM_H
#define CMN_ORDERED_SUM_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_ordered_sum;

/* Local. The first micro-batch of a rank; that of the rank behind it is the end. Ranks without one
 * come last. */
int cmn_ordered_sum_first(int micro_batches, int rank, int ranks);

/* Collective over t->world, blocking. Sums of `floats` floats over so many micro-batches of all ranks of
 * t->world, which must outlive it: all ranks send messages to all. What fails here and below ends the
 * job. */
struct cmn_ordered_sum *cmn_ordered_sum_open(const struct cmn_topology *t, int micro_batches,
                                             size_t floats);

/* Collective over t->world, blocking; before the first micro-batch. Sums are made in two
 * levels from now on (ordered_levels.h has `first_alone`). options must outlive the sums. 0, or -1 on all
 * ranks with one reason: all ranks send messages to all then. */
int cmn_ordered_sum_share(struct cmn_ordered_sum *s, const struct cmn_options *options,
                          int first_alone);

/* Local. How the ranks add up, for the first line of a training; NULL: there is one rank. */
const char *cmn_ordered_sum_how(const struct cmn_ordered_sum *s);

/* Local. Adds the next of this rank's micro-batches, in order; x becomes 0. The last one of a step is
 * added up in place, which saves a copy: the caller leaves x as it is until
 * cmn_ordered_sum_complete() has made the step's sum of it. */
void cmn_ordered_sum_add(struct cmn_ordered_sum *s, float *x);

/* Local, with two levels and cmn_overlap=on; blocks as cmn_ordered_sum_add() may. Of the step's last micro-batch of
 * this rank the floats below `upto` are final: they are added up, and exchanged when all ranks of the
 * node have come so far. `upto` grows from call to call; cmn_ordered_sum_add() must follow. Before an earlier
 * micro-batch it does nothing. */
void cmn_ordered_sum_fill(struct cmn_ordered_sum *s, float *x, size_t upto);

/* Local, not blocking. Advances what was begun. */
void cmn_ordered_sum_poll(struct cmn_ordered_sum *s);

/* Collective over t->world, between two steps. Rank r has the micro-batches [first[r], first[r + 1]) from
 * now on, and not those of cmn_ordered_sum_first: sums keep their bits. Blocks where two levels need more
 * shared memory for that. 0, or -1 on all ranks with one reason: it cannot be had, and all ranks
 * send messages to all from now on. */
int cmn_ordered_sum_divide(struct cmn_ordered_sum *s, const int *first);

/* Collective, blocking. `sum` becomes the sum over all micro-batches, each of which was added; the
 * next ones are those of the next step. It is the x of the last one, where this rank has any. */
void cmn_ordered_sum_complete(struct cmn_ordered_sum *s, float *sum);

/* Local. The micro-batches of this step that were added are forgotten: all ranks leave the step out. Ends the
 * job behind a cmn_ordered_sum_fill() of the step: what was sent is not called back. */
void cmn_ordered_sum_drop(struct cmn_ordered_sum *s);

/* Local. NULL is allowed. */
void cmn_ordered_sum_close(struct cmn_ordered_sum *s);

#endif
