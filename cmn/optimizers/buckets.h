/* Overlap: gradients are exchanged while backward still runs.
 *
 * Backward computes gradients from the last layer to the first, in the order of the flat buffer.
 * When it has computed layer i, all floats up to the end of that layer's gradients are final. Once
 * the final floats whose exchange has not begun are at least one bucket, their exchange begins: a
 * bucket ends with a layer. The bucket tuner chooses its size (bucket_tuner.h). What a communicator
 * cuts further does not depend on overlap, so overlap changes no bit of the sums. */
#ifndef CMN_BUCKETS_H
#define CMN_BUCKETS_H

#include "communicators/communicator.h"
#include "engine/gradients.h"
#include "optimizers/bucket_tuner.h"

struct cmn_buckets {
    int layers;
    size_t *final; /* floats of the flat buffer that are final when backward has done layer i */
    struct cmn_bucket_tuner tuner;
    size_t floats; /* the least of a bucket in the current step; 0: no overlap */
    size_t begun;  /* floats whose exchange has begun in the current step */
};

/* Local. `layers` of the network; o->overlap says whether there may be overlap. */
void cmn_buckets_open(struct cmn_buckets *b, const struct cmn_options *o,
                      const struct cmn_gradients *g, int layers);
void cmn_buckets_close(struct cmn_buckets *b);

/* Local. Returns up to which float of the flat buffer the exchange will have begun once backward
 * has computed layer i of a step's last micro-batch; 0: layer i begins nothing. */
size_t cmn_buckets_end(const struct cmn_buckets *b, int i);

/* Collective in order, not blocking. Backward has computed layer i in the last micro-batch of a
 * step: begins the exchange of x by c, with its self, up to cmn_buckets_end(). Returns whether it
 * did. */
int cmn_buckets_begin(struct cmn_buckets *b, const struct cmn_exchange *x,
                      const struct cmn_communicator *c, void *self, int i);

#endif
