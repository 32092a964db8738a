/* What the ranks exchange: contiguous blocks of floats that hold the tensors one after the
 * other. */
#ifndef CMN_EXCHANGE_H
#define CMN_EXCHANGE_H

#include <stddef.h>

/* n floats at data. With rows > 0 they are a row-major matrix of rows × n / rows. */
struct cmn_span {
    float *data;
    size_t n;
    int rows;
};

/* With cmn_exact, a rank contributes several addends to a sum: partial sums of its micro-batches
 * (transports/sum_tree.h). Rank r of the world has the micro-batches [deal[r], deal[r + 1]) of a
 * step. Its last addend lies in the exchange's block and metrics; the addends before it lie, in
 * order, at sum[0], sum[1] and so on. These places are in the communicator's memory, if it provides
 * memory, are as long as block and metrics, and are equally many on each rank. */
struct cmn_addends {
    const int *deal;
    float *const *sum;
};

/* The buffers of one step's exchange: the gradients one by one, and the block in which all of them
 * lie. The block may hold padding between tensors, which is zero on every rank. The metrics are a
 * few exact sums directly behind the block: they may be sent together with it, but never through a
 * lossy compressor. The caller owns the buffers and passes the same ones in every call. They lie in
 * the CPU's memory, or in the GPU's if topology->device is not -1. */
struct cmn_exchange {
    const struct cmn_span *tensor;
    int tensors;
    struct cmn_span block;
    struct cmn_span metrics;
    /* For step: the weights, laid out like the block: a tensor's weights begin as far behind this
     * address as its gradient begins behind block.data. */
    float *weights;
    /* For step: a moving average of the weights, laid out like `weights`; each step moves it
     * towards the weights by `part` of the difference. NULL: there is none. */
    float *average;
    float part;
    /* For allreduce: receives the sum of the squares of the block, the same on all ranks, if the
     * communicator has the sums in its caches anyway; the other communicators leave it unchanged.
     * NULL: the caller does not need it. */
    double *squares;
    const struct cmn_addends *addends; /* NULL: each rank has one addend, its block */
    /* Images of all ranks in a step, or 0. Gradients are sums over images, so with a 16-bit type
     * the sum is divided by this before the cast: 16 bits hold the mean. */
    float images;
};

#endif
