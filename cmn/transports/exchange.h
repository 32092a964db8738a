/* What ranks exchange: blocks of floats that hold tensors one behind the other. */
#ifndef CMN_EXCHANGE_H
#define CMN_EXCHANGE_H

#include <stddef.h>

/* n floats at data. With rows > 0 they are a matrix of rows × n / rows, row by row. */
struct cmn_span {
    float *data;
    size_t n;
    int rows;
};

/* cmn_exact: which micro-batches of a step each rank of the world has, [deal[r], deal[r + 1]), and
 * where its addends lie (transports/sum_tree.h): the last one in the exchange's block and metrics,
 * those before it, in order, from sum[0] on; that is memory of the communicator's, if it gives
 * any, of as many floats, and each rank has the same number of these places. */
struct cmn_addends {
    const int *deal;
    float *const *sum;
};

/* What is exchanged in a step: the gradients one by one, and the block in which all of them lie.
 * The block may hold padding between tensors, which is zero on every rank. The metrics are a few
 * exact sums right behind the block: they may travel with it, but never through a lossy
 * compressor. The buffers are the caller's and the same in every call. They are the CPU's, or the
 * GPU's where topology->device is not -1. */
struct cmn_exchange {
    const struct cmn_span *tensor;
    int tensors;
    struct cmn_span block;
    struct cmn_span metrics;
    /* For step: each tensor's weights lie as far from here as its gradient from the block's
     * begin. */
    float *weights;
    /* For step: an average of the weights, which lie in it as in `weights`, follows them by this
     * part of the difference; NULL: none. */
    float *average;
    float part;
    /* For allreduce: where a communicator that has the sums in its caches anyway puts the sum of
     * the block's squares, the same on all ranks; others leave it as it is. NULL: nobody asks. */
    double *squares;
    const struct cmn_addends *addends; /* NULL: each rank has one, its block */
    /* Of all ranks in a step, or 0. Gradients are sums over images: 16 bits hold the mean. */
    float images;
};

#endif
