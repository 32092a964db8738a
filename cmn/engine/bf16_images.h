/* bf16_images: what a training's layers do with images of bf16 whose channels lie together, as
 * oneDNN's convolutions read and write them: image, row, column, channel. A value is rounded to the
 * nearest bf16, ties to even, when it is stored; everything is computed in floats. Calls are local
 * and blocking, need cmn_channels_fast(1) of engine/channels.h, use oneDNN's threads, and give the
 * same bits with any number of them. */
#ifndef CMN_BF16_IMAGES_H
#define CMN_BF16_IMAGES_H

#include <stddef.h>
#include <stdint.h>

/* The channels of one pixel lie together, and so do the pixels of all images. */
struct cmn_pixels {
    size_t pixels; /* of all images */
    int channels;
};

/* A channel's values are mapped to factor * x + term, and those not above 0 then multiplied by
 * `slope`: 1 is the linear activation, 0 relu, and 0.1 Darknet's leaky. */
struct cmn_map {
    const float *factor, *term; /* of each channel */
    float slope;
};

/* Writes 1 + 2 * channels numbers to `to`: the number of pixels, each channel's mean, and each
 * channel's sum of squared distances from its mean (cmn_batch_norm_merge()). */
void cmn_pixels_statistics(const struct cmn_pixels *p, const uint16_t *x, double *to);

/* Writes the mapped values to `to`, which may be `x`, or as floats to `floats` if `to` is NULL. */
void cmn_pixels_map(const struct cmn_pixels *p, const struct cmn_map *m, const uint16_t *x,
                    uint16_t *to, float *floats);

/* `delta` is the gradient of mapped values of x. Writes 2 * channels numbers to `to`: the sums of
 * the gradients before the activation, and of their products with x - mean. */
void cmn_pixels_sum_deltas(const struct cmn_pixels *p, const struct cmn_map *m, const float *mean,
                           const uint16_t *x, const uint16_t *delta, double *to);

/* Replaces each gradient of a mapped value by by_delta * d + by_x * x + constant, where d is the
 * gradient before the activation. The three have a number for each channel. */
void cmn_pixels_map_deltas(const struct cmn_pixels *p, const struct cmn_map *m,
                           const float *by_delta, const float *by_x, const float *constant,
                           const uint16_t *x, uint16_t *delta);

/* to = the activation of a * x + b * y, n values; `to` may be x or y. */
void cmn_pixels_add(size_t n, float a, const uint16_t *x, float b, const uint16_t *y, float slope,
                    uint16_t *to);

/* Multiplies n gradients by the activation's: by `slope` where the output is not above 0. */
void cmn_pixels_activation_deltas(size_t n, const uint16_t *output, float slope, uint16_t *delta);

/* Sets those of n values to 0 whose random number is below `probability`, and multiplies the others
 * by `scale`. */
void cmn_pixels_drop(size_t n, const float *random, float probability, float scale, uint16_t *x);

/* Copies the first min(from, to) channels of each of n pixels; `from` and `to` are the channels of
 * the two images. Adds them to what is there if `adds` is set. */
void cmn_pixels_copy(size_t n, const uint16_t *x, int from, uint16_t *y, int to, int adds);

/* Windows of an image: of pooling, where each becomes a pixel of the output; of upsampling, where
 * each pixel of the small image, which has the sizes of the output here, becomes a window. */
struct cmn_windows {
    int images, channels, height, width, out_height, out_width;
    int size, stride_y, stride_x;
    int top, left; /* row and column of the first window; negative inside of padding */
};

/* Writes the largest value of each window, and to `which` its number in the window, row by row:
 * the first one of equal values, where 0 is larger than -0. */
void cmn_windows_max(const struct cmn_windows *w, const uint16_t *x, uint16_t *to, uint16_t *which);

/* Gives each gradient to the value that was its window's largest. Overwrites `to`, or adds. */
void cmn_windows_max_deltas(const struct cmn_windows *w, const uint16_t *delta,
                            const uint16_t *which, int adds, uint16_t *to);

/* Writes each pixel of the small image, times `scale`, to all of its window. Windows do not overlap. */
void cmn_windows_spread(const struct cmn_windows *w, float scale, const uint16_t *x, uint16_t *to);

/* Writes the sum of each window, times `scale`, to a pixel of the small image, or adds it. */
void cmn_windows_spread_deltas(const struct cmn_windows *w, float scale, const uint16_t *delta,
                               int adds, uint16_t *to);

#endif
