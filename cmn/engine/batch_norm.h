/* Synchronised batch normalisation (cmn_sync_bn): the statistics of a batch that is spread over
 * ranks. Knows buffers, no layers.
 *
 * Each rank has, for each of n filters, the mean and the variance of its own values. The
 * statistics of all values follow from these without another pass over the values: with m the mean
 * of all, a rank's squares about m are its squares about its own mean plus its count times the
 * square of the distance of the two means. Unlike with sums of squares, no two large numbers are
 * subtracted. Source: Chan, Golub, LeVeque, "Algorithms for Computing the Sample Variance", 1983.
 * Backward needs two sums per filter: Ioffe, Szegedy, "Batch Normalization", 2015, whose gradients
 * are sums over the batch.
 *
 * Steps: the ranks of a node write into shared memory, wait for each other, and each reads all
 * of it in the order of the ranks. With several nodes the first rank of each does that,
 * allgathers the result with the other nodes' first ranks, combines it in the order of the
 * nodes, and hands it to its node. Sent: 8 * (1 + 2n) bytes from each node to each other one,
 * twice a layer and micro-batch.
 *
 * On GPUs with NCCL: a kernel packs 2n + 1 floats, NCCL gathers them over a communicator of its own,
 * and a kernel merges them in the order of the ranks, in double, all behind what Darknet has asked
 * for and before what it asks for next: the host does not wait. Otherwise GPUs' statistics go
 * through the host's memory, and a line says why. */
#ifndef CMN_BATCH_NORM_H
#define CMN_BATCH_NORM_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_batch_norm;

/* Collective, blocking. For layers of at most `filters` filters. Where the ranks of a node cannot
 * share memory each rank counts as a node. t and o must outlive it. */
struct cmn_batch_norm *cmn_batch_norm_open(const struct cmn_topology *t,
                                           const struct cmn_options *o, size_t filters);

/* Local. What the next exchanges call again and again while they wait. NULL: they sleep. */
void cmn_batch_norm_idle(struct cmn_batch_norm *norm, void (*idle)(void *self), void *self);

/* Local. Variances are squares divided by count - less. */
void cmn_batch_norm_divide(struct cmn_batch_norm *norm, double less);

/* Local, blocking. The GPU has done the exchanges so far: who waits for it elsewhere would not notice
 * that another rank never comes. Nothing to do where they block. */
void cmn_batch_norm_await(struct cmn_batch_norm *norm);

/* Both collective and, but for GPUs with NCCL, blocking, with the same n and in the same order on all
 * ranks; counts may differ. The buffers are the caller's, n floats each, the GPU's where
 * topology->device is not -1. All ranks get the same bits, in every run. */

/* mean and variance (squares divided by count - 1, or as cmn_batch_norm_divide says) of this rank's
 * `count` values become those of all ranks' values. */
void cmn_batch_norm_forward(struct cmn_batch_norm *norm, float *mean, float *variance, size_t n,
                            double count);

/* Two sums over this rank's values become count / (all ranks' count) times the sums over all
 * ranks' values: what a backward that divides by its own count must start from. */
void cmn_batch_norm_backward(struct cmn_batch_norm *norm, float *mean_delta, float *variance_delta,
                             size_t n, double count);

/* Collective. */
void cmn_batch_norm_close(struct cmn_batch_norm *norm);

/* Local. Doubles that describe n filters in an exchange: count, n means, n sums of squares about
 * the mean. */
size_t cmn_batch_norm_doubles(size_t n);

/* Local. *into becomes the description of all values of the `parts` descriptions, combined in their
 * order. */
void cmn_batch_norm_merge(double *into, const double *const *part, int parts, size_t n);

#endif
