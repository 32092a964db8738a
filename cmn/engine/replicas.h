/* Replicas of a network: every rank has one, with the same shape and weights. This file compares
 * them, broadcasts rank 0's, and merges the statistics of batch normalisation. An error ends the
 * job unless a comment says otherwise. */
#ifndef CMN_REPLICAS_H
#define CMN_REPLICAS_H

#include "engine/gradients.h"
#include "mpi/topology.h"

struct cmn_net;
struct cmn_nonfinite;

/* Local. Returns a text with one line per layer and tensor, and then `options`. Two networks with the
 * same text can exchange their tensors. The caller frees it. */
char *cmn_replicas_describe(const struct cmn_gradients *g, const struct cmn_net *net,
                            const char *options);

/* Collective, blocking. Compares with rank 0 the tensors, the layers and then `options` (lines of
 * text with everything else that must be equal). A rank that differs ends the job with a message
 * that names the first difference. */
void cmn_replicas_compare(const struct cmn_gradients *g, const struct cmn_net *net,
                          const char *options, const struct cmn_topology *t);

/* Collective, blocking. Broadcasts rank 0's tensors of all kinds, images seen and count of
 * updates. */
void cmn_replicas_broadcast(const struct cmn_gradients *g, struct cmn_net *net,
                            const struct cmn_topology *t);

/* Collective, blocking. Replaces the rolling statistics by those of all ranks' images: the mean of
 * means is weighted by the images of each rank (g->images). The variance is the weighted mean of
 * variances plus the spread of the ranks' means about the common mean (law of total variance). If
 * all ranks have the same statistics, no bit changes. */
void cmn_replicas_average_statistics(const struct cmn_gradients *g, const struct cmn_topology *t);

/* Collective, blocking, for cmn_exact. Computes the rolling statistics as one process would that
 * computes all micro-batches in their order. `rolling` holds the statistics before the step, and
 * becomes the result, as do the network's statistics. `added` holds, for each of this rank's
 * micro-batches, the statistics that it left when it started from zeros. Both have the layout of
 * cmn_gradients_pack(). Rank r has computed the micro-batches [first[r], first[r + 1]). */
void cmn_replicas_roll_statistics(const struct cmn_gradients *g, const struct cmn_topology *t,
                                  float *rolling, const float *added, const int *first);

/* Collective, blocking, if there are such values. Replaces the CMN_FOLLOWED values by their means
 * over all ranks, with the same bits on all of them. */
void cmn_replicas_average_followed(const struct cmn_gradients *g, const struct cmn_topology *t);

/* Collective, blocking. Replaces the weights by their means over all ranks. */
void cmn_replicas_average_weights(const struct cmn_gradients *g, const struct cmn_topology *t);

/* Collective, blocking. Compares the bits of all weights over the ranks by a hash of each tensor
 * (XXH3; on GPUs a hash that is computed there). Returns 0, or -1 with a reason, which is the same
 * on every rank: it names the ranks whose weights differ from those of most ranks, and the first
 * tensor that differs. *bad becomes the lowest layer's tensor with a weight that is NaN or
 * infinite; its name is NULL if there is none. */
int cmn_replicas_verify(const struct cmn_gradients *g, const struct cmn_net *net,
                        const struct cmn_topology *t, struct cmn_nonfinite *bad);

#endif
