/* Synchronised batch normalisation (cmn_sync_bn): the statistics of a batch that is spread over
 * ranks. This file knows buffers, not layers.
 *
 * Each rank has, for each of n filters, the mean and the variance of its own values. The statistics
 * of all values follow from these without another pass over the values. Let m be the mean of all
 * values. A rank's sum of squares about m is its sum of squares about its own mean, plus its count
 * times the squared distance of the two means. Unlike with sums of squares about 0, no two large
 * numbers are subtracted. Source: Chan, Golub, LeVeque, "Algorithms for Computing the Sample
 * Variance", 1983. Backward needs two sums per filter: Ioffe, Szegedy, "Batch Normalization", 2015,
 * whose gradients are sums over the batch.
 *
 * Steps: the ranks of a node write their statistics into shared memory and wait for each other.
 * Then each rank reads all of them in the order of the ranks. With several nodes only the first
 * rank of each node reads them; it allgathers the result with the first ranks of the other nodes,
 * combines the nodes' results in the order of the nodes, and writes the result to shared memory for
 * its node. Each node sends 8 * (1 + 2n) bytes to each other node, twice per layer and micro-batch
 * (forward and backward).
 *
 * On GPUs with NCCL, a kernel packs 2n + 1 floats, NCCL gathers them over a communicator of its
 * own, and a kernel merges them in the order of the ranks, in double. All of this is queued behind
 * what Darknet has queued and before what it queues next: the host does not wait. Otherwise the
 * statistics of GPUs go through the host's memory, and a log line says why. */
#ifndef CMN_BATCH_NORM_H
#define CMN_BATCH_NORM_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_batch_norm;

/* Collective, blocking. Returns a handle for layers of at most `filters` filters, whose variances are
 * sums of squares divided by count - less. If the ranks of a node cannot share memory, each rank
 * counts as a node. t and o must outlive the handle. */
struct cmn_batch_norm *cmn_batch_norm_open(const struct cmn_topology *t,
                                           const struct cmn_options *o, size_t filters,
                                           double less);

/* Local. The next exchanges call idle(self) repeatedly while they wait. NULL: they call nothing. */
void cmn_batch_norm_idle(struct cmn_batch_norm *norm, void (*idle)(void *self), void *self);

/* Local, blocking. Waits until the GPU has done all exchanges so far, within cmn_timeout. A wait
 * for the GPU elsewhere would not notice that another rank never comes. Does nothing if the
 * exchanges block. */
void cmn_batch_norm_await(struct cmn_batch_norm *norm);

/* Both functions are collective and, except on GPUs with NCCL, blocking. All ranks call them with
 * the same n and in the same order; counts may differ. The buffers are the caller's, n floats each,
 * in the GPU's memory if topology->device is not -1. All ranks get the same bits, in every run. */

/* Replaces mean and variance of this rank's `count` values by those of all ranks' values. Variances
 * are sums of squares divided by count - less. */
void cmn_batch_norm_forward(struct cmn_batch_norm *norm, float *mean, float *variance, size_t n,
                            double count);

/* Replaces two sums over this rank's values by count / (count of all ranks) times the sums over all
 * ranks' values. A backward pass that divides by its own count then gets the right gradient. */
void cmn_batch_norm_backward(struct cmn_batch_norm *norm, float *mean_delta, float *variance_delta,
                             size_t n, double count);

/* Collective. */
void cmn_batch_norm_close(struct cmn_batch_norm *norm);

/* Local. Returns the number of doubles that describe n filters in an exchange: count, n means, n
 * sums of squares about the mean. */
size_t cmn_batch_norm_doubles(size_t n);

/* Local. *into becomes the description of the values of all `parts` descriptions, combined in their
 * order. */
void cmn_batch_norm_merge(double *into, const double *const *part, int parts, size_t n);

/* Local. *into becomes the plain sums of all `parts` descriptions, added in their order. */
void cmn_batch_norm_add(double *into, const double *const *part, int parts, size_t n);

#endif
