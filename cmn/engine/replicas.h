/* Replicas of a network: every rank holds one, and they have the same shape and weights.
 * Comparing them, sending rank 0's, merging the statistics of batch normalisation. What fails
 * here ends the job unless said otherwise. */
#ifndef CMN_REPLICAS_H
#define CMN_REPLICAS_H

#include "engine/gradients.h"
#include "mpi/topology.h"

struct cmn_net;
struct cmn_nonfinite;

/* Local. Layers and tensors in words, one a line: two networks with the same text can have each
 * other's tensors. The caller frees. */
char *cmn_replicas_describe(const struct cmn_gradients *g, const struct cmn_net *net);

/* Collective, blocking. Compares the tensors, the layers and then `options` (lines of text: all
 * else that must be equal) with rank 0's. A rank that differs ends the job with a message that
 * names the first difference. */
void cmn_replicas_compare(const struct cmn_gradients *g, const struct cmn_net *net,
                          const char *options, const struct cmn_topology *t);

/* Collective, blocking. Gives every rank rank 0's tensors of all kinds, images seen and count
 * of updates. */
void cmn_replicas_broadcast(const struct cmn_gradients *g, struct cmn_net *net,
                            const struct cmn_topology *t);

/* Collective, blocking. The rolling statistics become those of all ranks' images: means
 * weighted by the images of each rank (g->images); variances, too, plus the spread of the
 * ranks' means about the common one (law of total variance). Where all ranks have the same, no
 * bit changes. */
void cmn_replicas_average_statistics(const struct cmn_gradients *g, const struct cmn_topology *t);

/* Collective, blocking, with cmn_exact. The rolling statistics become what one process makes of
 * `rolling`, those before the step, one of its micro-batches after the other; of this rank's ones
 * `added` holds what each has made of zeros. Both lie as cmn_gradients_pack() has them; `rolling`
 * becomes the result, too. Rank r has computed the micro-batches [first[r], first[r + 1]). */
void cmn_replicas_roll_statistics(const struct cmn_gradients *g, const struct cmn_topology *t,
                                  float *rolling, const float *added, const int *first);

/* Collective, blocking, where there are any. Values that each rank follows become their means over
 * all ranks, the same bits on all of them. */
void cmn_replicas_average_followed(const struct cmn_gradients *g, const struct cmn_topology *t);

/* Collective, blocking. The weights become their means over all ranks. */
void cmn_replicas_average_weights(const struct cmn_gradients *g, const struct cmn_topology *t);

/* Collective, blocking. Compares the bits of all weights over the ranks by a hash of each
 * tensor (XXH3; on GPUs one that is made there). 0, or -1 with a reason, the same on every rank, that names the ranks whose
 * weights are not those of most, and the first tensor in which they differ. *bad becomes the
 * first layer's tensor with a weight that is NaN or infinite; its name is NULL when there is
 * none. */
int cmn_replicas_verify(const struct cmn_gradients *g, const struct cmn_net *net,
                        const struct cmn_topology *t, struct cmn_nonfinite *bad);

#endif
