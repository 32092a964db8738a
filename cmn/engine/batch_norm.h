/* Statistics of a batch that is spread over ranks, for batch normalisation (cmn_sync_bn). Knows buffers, no layers.
 *
 * Each rank has, for each of n filters, the mean and the variance of its own values. Those of all values follow from them
 * without another look at the values: with m the mean of all, each rank's squares about m are its squares about its own mean,
 * and its count times the square of the distance of the means. Nothing large is subtracted from anything large, as it would be with
 * sums of squares. Source: Chan, Golub, LeVeque, "Algorithms for Computing the Sample Variance", 1983; that N ranks need
 * nothing else backward than two sums per filter: Ioffe, Szegedy, "Batch Normalization", 2015, whose gradients are sums over the batch.
 *
 * Steps: the ranks of a node write into shared memory, meet, and each takes all of it in the order of the ranks. With several
 * nodes the first rank of each does that, sends it to the others', takes theirs in the order of the nodes, and hands the result to its node.
 * On the wire: 8 * (1 + 2n) bytes from each node to each other one, twice a layer and pass. */
#ifndef CMN_NORM_H
#define CMN_NORM_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_batch_norm;

/* Collective, blocking. For layers of at most `filters` filters. With cmn_intra=mpi nothing is shared: each rank counts as a node. t and
 * o must outlive it. 0, or -1 with a reason; to be closed in either case. */
int cmn_batch_norm_open(struct cmn_batch_norm **norm, const struct cmn_topology *t,
                        const struct cmn_options *o, size_t filters);

/* Local. What the next exchanges do while they wait, again and again, instead of sleeping: 0, or -1 with a reason. NULL: sleep. */
void cmn_batch_norm_idle(struct cmn_batch_norm *norm, int (*idle)(void *self), void *self);

/* All collective and blocking, with the same n and in the same order on all ranks; counts may differ. The buffers are the caller's, n
 * floats each, the GPU's where topology->device is not -1. The same bits on all ranks and in every run.
 * 0, or -1 with a reason. */

/* mean and variance (squares divided by count - 1) of this rank's `count` values become those of all ranks' values. */
int cmn_batch_norm_forward(struct cmn_batch_norm *norm, float *mean, float *variance, size_t n,
                           double count);

/* What Darknet is going to divide by this rank's count becomes the sum over all ranks times count / all ranks' counts: it
 * is then divided by the count of all. */
int cmn_batch_norm_backward(struct cmn_batch_norm *norm, float *mean_delta, float *variance_delta,
                            size_t n, double count);

/* Collective. NULL is allowed. */
void cmn_batch_norm_close(struct cmn_batch_norm *norm);

/* Local. Doubles of what describes n filters: the count, n means, n sums of squares about the means. */
size_t cmn_batch_norm_doubles(size_t n);

/* Local. Makes one such description of several, in their order. Equal means and squares per count stay as they are. `into` is none of
 * the parts. */
void cmn_batch_norm_merge(double *into, const double *const *part, int parts, size_t n);

#endif
