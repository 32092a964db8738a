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
 * pass. Then each rank collects one
 * slice of all ranks' nodes, adds these up to the root, and all get all slices.
 * A rank with k nodes sends, for each 2^20 of n floats or a part of them, k (N-1) messages to N-1
 * other ranks, and its slice by MPI_Allgatherv: (N-1)/N * 4n * (k + 1) bytes in all. In shared memory
 * it sends none.
 *
 * On GPUs all sums are made there, by one kernel, so that no bit depends on where two nodes meet. The
 * messages are the CPU's: slices come through page-locked memory. NCCL's own sums have other orders. */
#ifndef CMN_ORDERED_SUM_H
#define CMN_ORDERED_SUM_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_ordered_sum;

/* Local. The first micro-batch of a rank; that of the rank behind it is the end. Ranks without one
 * come last. */
int cmn_ordered_sum_first(int micro_batches, int rank, int ranks);

/* Local. Sums of `floats` floats over so many micro-batches of all ranks of t->world, which must
 * outlive it. All floats are the CPU's, or the GPU's where t->device is not -1. What fails here and below
 * ends the job. */
struct cmn_ordered_sum *cmn_ordered_sum_open(const struct cmn_topology *t, int micro_batches,
                                             size_t floats);

/* Collective over t->world, blocking, where all its ranks are of one node and use the CPU; before the first micro-batch.
 * The nodes of the tree lie in memory that they share from now on, and are added where they lie: each
 * rank adds a slice of all, and copies the sum. Parts stay those of cmn_ordered_sum_first. 0, or -1 on
 * all ranks with a reason: they send messages then. */
int cmn_ordered_sum_share(struct cmn_ordered_sum *s, const struct cmn_options *options);

/* Local. The next of this rank's micro-batches, in order: x is added, and becomes 0. But with `stays`
 * the last one of the step is added up where it lies, which saves a copy: x is not to be touched then
 * until cmn_ordered_sum_complete() has made the sum of it. */
void cmn_ordered_sum_add(struct cmn_ordered_sum *s, float *x, int stays);

/* Local, between two steps. Rank r has the micro-batches [first[r], first[r + 1]) from now on, and
 * not those of cmn_ordered_sum_first: sums keep their bits. */
void cmn_ordered_sum_divide(struct cmn_ordered_sum *s, const int *first);

/* Collective, blocking. `sum` becomes the sum over all micro-batches, each of which was added; the
 * next ones are those of the next step. It is the x that stays, if one does. */
void cmn_ordered_sum_complete(struct cmn_ordered_sum *s, float *sum);

/* Local. The micro-batches of this step that were added are forgotten: all ranks leave the step out. */
void cmn_ordered_sum_drop(struct cmn_ordered_sum *s);

/* Local. NULL is allowed. */
void cmn_ordered_sum_close(struct cmn_ordered_sum *s);

#endif
