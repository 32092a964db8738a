/* Convolutions on the CPU by oneDNN: switching it on, keeping reordered weights, naming its
 * kernels. The process has one set of them, because Darknet's layers pass no network. */
#ifndef CMN_CONVOLUTION_H
#define CMN_CONVOLUTION_H

#include "cmn.h"

/* The tensors of a product: input or its gradient, weights or their gradient, output or its
 * gradient. Weights are Darknet's floats. So are images, or they are images in NHWC
 * (engine/nhwc_images.h), which after cmn_convolution_use_bf16() are bf16. */
struct cmn_convolution_data {
    void *input;
    float *weights;
    void *output;
    int input_in_nhwc, output_in_nhwc;
    /* The layer is a connected one, in bf16: one image, whose pixels are the rows of Darknet's
     * matrices, so that NHWC is the order of floats, too. */
    int is_connected;
};

/* Local, thread-safe. Computes one of the three products (enum cmn_convolution_result). The output
 * and images in NHWC are overwritten; to other gradients the result is added. From CMN_WEIGHTS to a
 * CMN_INPUT right after it, the same output must not change: it is reordered once for both. Returns
 * 0 where the caller has to compute: while oneDNN is not used, and where oneDNN has only its slow
 * reference for the shape. */
int cmn_convolution_multiply(const struct cmn_convolution *shape, int result,
                             const struct cmn_convolution_data *tensors);

/* Local, thread-safe. Returns whether oneDNN computes all three products of this shape; of `images`
 * only the kinds matter. */
int cmn_convolution_knows(const struct cmn_convolution *shape,
                          const struct cmn_convolution_data *images);

/* Local, thread-safe. Drops all reordered weights that were kept. If `now` is not 0, no layer's
 * weights change until the next call, so weights that are reordered for a product are kept for that
 * layer's next product. The memory is not freed; it is at most twice that of the weights. */
void cmn_convolution_hold_weights(int now);

/* Local. Switches these products on or off. While they are off, and in a program without oneDNN,
 * the caller computes. */
void cmn_convolution_use(int on);

/* Local. Gives oneDNN, and the loops of engine/nhwc_images.h, as many threads as OpenBLAS has. From
 * now on, if `on` is set, the factors of products are rounded to bf16 (7 bits of mantissa), and
 * added up in 32 bits. Returns 0 if the processor, or the program, cannot. Where layers are computed
 * in NHWC, call it before the others. */
int cmn_convolution_use_bf16(int on);

/* Local. Gives the loops of engine/nhwc_images.h one thread until it is called with 0. OpenMP's threads
 * spin when they have nothing to do, and OpenBLAS's would wait for their cores. */
void cmn_convolution_loops_alone(int alone);

/* Local. Returns a line that names the kernels that oneDNN uses on this processor, or "" without
 * oneDNN. The text is static. */
const char *cmn_convolution_kernels(void);

#endif
