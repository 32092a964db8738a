/* nhwc_images: what a training's layers do with images in the order NHWC (image, row, column,
 * channel), in which oneDNN's convolutions read and write them; as floats, or as bf16, to which a
 * value is rounded when it is stored, to nearest, ties to even. Everything is computed in floats.
 * Calls are local and blocking, use oneDNN's threads, and give the same bits with any number of
 * them and on any processor. Those for bf16 need cmn_channels_fast(1) of engine/channels.h. */
#ifndef CMN_NHWC_IMAGES_H
#define CMN_NHWC_IMAGES_H

#include <stddef.h>

/* The pixels of all images, whose channels lie together. */
struct cmn_pixels {
    size_t pixels;
    int channels;
};

/* A channel's values are mapped to factor * x + term, and those not above 0 then multiplied by
 * `slope`: 1 is the linear activation, 0 relu, and 0.1 Darknet's leaky. */
struct cmn_map {
    const float *factor, *term; /* of each channel */
    float slope;
};

/* Windows of an image: of pooling, where each becomes a pixel of the output; of upsampling, where
 * each pixel of the small image, which has the sizes of the output here, becomes a window. */
struct cmn_windows {
    int images, channels, height, width, out_height, out_width;
    int size, stride_y, stride_x;
    int top, left; /* row and column of the first window; negative inside of padding */
};

/* The functions for images of floats, or of bf16. */
struct cmn_nhwc_images {
    size_t bytes; /* of a value */

    /* Writes 1 + 2 * channels numbers to `to`: the number of pixels, each channel's mean, and each
     * channel's sum of squared distances from its mean (cmn_batch_norm_merge()). */
    void (*statistics)(const struct cmn_pixels *p, const void *x, double *to);

    /* Writes the mapped values to `to`, which may be `x`, or to `floats` if `to` is NULL. */
    void (*map)(const struct cmn_pixels *p, const struct cmn_map *m, const void *x, void *to,
                float *floats);

    /* `delta` is the gradient of mapped values of x. Writes 2 * channels numbers to `to`: the sums
     * of the gradients before the activation, and of their products with x - mean. */
    void (*sum_deltas)(const struct cmn_pixels *p, const struct cmn_map *m, const float *mean,
                       const void *x, const void *delta, double *to);

    /* Replaces each gradient of a mapped value by by_delta * d + by_x * x + constant, where d is
     * the gradient before the activation. The three have a number for each channel. */
    void (*map_deltas)(const struct cmn_pixels *p, const struct cmn_map *m, const float *by_delta,
                       const float *by_x, const float *constant, const void *x, void *delta);

    /* to = the activation of a * x + b * y, n values; `to` may be x or y. */
    void (*add)(size_t n, float a, const void *x, float b, const void *y, float slope, void *to);

    /* Multiplies n gradients by the activation's: by `slope` where the output is not above 0. */
    void (*activation_deltas)(size_t n, const void *output, float slope, void *delta);

    /* Sets those of n values to 0 whose random number is below `probability`, and multiplies the
     * others by `scale`. */
    void (*drop)(size_t n, const float *random, float probability, float scale, void *x);

    /* Copies the first min(from, to) channels of each of n pixels; `from` and `to` are the channels
     * of the two images. Adds them to what is there if `adds` is set. */
    void (*copy)(size_t n, const void *x, int from, void *y, int to, int adds);

    /* Writes the largest value of each window, and to `which`, which has the size of the output, its
     * number in the window, row by row: the first one of equal values, where 0 of bf16 is larger
     * than -0. */
    void (*max)(const struct cmn_windows *w, const void *x, void *to, void *which);

    /* Gives each gradient to the value that was its window's largest. Overwrites `to`, or adds. */
    void (*max_deltas)(const struct cmn_windows *w, const void *delta, const void *which, int adds,
                       void *to);

    /* Writes each pixel of the small image, times `scale`, to all of its window. Windows do not
     * overlap. */
    void (*spread)(const struct cmn_windows *w, float scale, const void *x, void *to);

    /* Writes the sum of each window, times `scale`, to a pixel of the small image, or adds it. */
    void (*spread_deltas)(const struct cmn_windows *w, float scale, const void *delta, int adds,
                          void *to);
};

extern const struct cmn_nhwc_images cmn_nhwc_floats, cmn_nhwc_bf16;

#endif
