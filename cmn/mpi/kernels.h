/* kernels: kernels over gradients on the GPU. Only a build with CUDA has them (kernels.cu).
 *
 * All functions are local and, unless a comment says otherwise, not blocking: the kernel is queued
 * behind Darknet's work. All pointers are the GPU's. Errors end the job. */
#ifndef CMN_KERNELS_H
#define CMN_KERNELS_H

#include <stddef.h>

#include "base/float16.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocking. Loads all kernels that may have their first launch while a sum runs: CUDA loads a kernel
 * then, which may wait for running work, that is for the sum, which may itself wait for this rank. */
void cmn_kernel_load(void);

/* Queued on `stream` (a cudaStream_t). Cast n floats, times `factor`, to 16 bits (CMN_FP16 or
 * CMN_BF16), rounded to nearest, and back. The buffers must not overlap. */
void cmn_kernel_cast_to_16(void *to, const float *from, size_t n, float factor, enum cmn_dtype type,
                           void *stream);
void cmn_kernel_cast_to_32(float *to, const void *from, size_t n, float factor, enum cmn_dtype type,
                           void *stream);

/* cmn_kernel_channels_last() converts n images of `channels` channels and `pixels` pixels from
 * floats with channels first to bf16 with channels last, rounded to nearest.
 * cmn_kernel_channels_first() converts them back; with `add` it adds to what is there. The buffers
 * must not overlap. */
void cmn_kernel_channels_last(void *to, const float *from, size_t n, size_t channels,
                              size_t pixels);
void cmn_kernel_channels_first(float *to, const void *from, size_t n, size_t channels,
                               size_t pixels, int add);

/* ---- all tensors of a flat buffer together ----
 *
 * A tensor has a whole number of units of CMN_KERNEL_UNIT floats in a block:
 * tensor[i / CMN_KERNEL_UNIT] is the number of the tensor with float i. */

enum {
    CMN_KERNEL_UNIT = 16, /* floats */
    CMN_KERNEL_PARTS = 64 /* partial sums of each tensor */
};

/* An update reads these of each tensor; `tensor` has the tensor of each unit of the flat buffer. */
struct cmn_kernel_table {
    const unsigned short *tensor;
    const float *scale, *rate, *decay, *limit;
};

/* SGD with momentum. With g the sums: u = scale * g + velocity + decay * w; w += rate * u; velocity
 * = momentum * u; g = 0. Without velocity, g becomes momentum * u. A limit other than 0 bounds the
 * weights. */
struct cmn_kernel_sgd {
    float *weights, *velocity, *sums; /* n floats each; velocity may be NULL */
    struct cmn_kernel_table of;
    float momentum;
    size_t n;
};
void cmn_kernel_sgd(const struct cmn_kernel_sgd *k);

/* Adam's rule: u = scale * g + decay * w; m = b1 * m + (1 - b1) * u; v = b2 * v + (1 - b2) * u * u;
 * w += rate * m * m_scale / (sqrt(v * v_scale) + eps); g = 0. */
struct cmn_kernel_adam {
    float *weights, *m, *v, *sums;
    struct cmn_kernel_table of;
    float b1, b2, eps, m_scale, v_scale;
    size_t n;
};
void cmn_kernel_adam(const struct cmn_kernel_adam *k);

/* Sets found[t] to 1 if one of the floats [from, to) of x that belong to tensor t is NaN or
 * infinite. All other entries stay as they are. */
void cmn_kernel_nonfinite(float *found, const unsigned short *tensor, const float *x, size_t from,
                          size_t to);

/* Sets sum[t] to the sum of the squares of tensor t, which has n[t] floats from x + at[t] on. Behind
 * the sums there is room for CMN_KERNEL_PARTS partial sums of each tensor. The order of the
 * additions depends only on n[t]. */
void cmn_kernel_squares(double *sum, const float *x, const size_t *at, const size_t *n,
                        size_t tensors);

/* Does the same as cmn_kernel_squares() with a hash of the floats' bits and places. */
void cmn_kernel_hash(unsigned long long *sum, const float *x, const size_t *at, const size_t *n,
                     size_t tensors);

/* ---- batch normalisation over several ranks ----
 *
 * For n filters a rank sends 2n + 1 floats: two vectors, and the bits of its count of values. */
void cmn_kernel_pack_statistics(float *to, const float *a, const float *b, size_t n,
                                unsigned count);

/* Merges the statistics that `ranks` ranks have sent, which lie at `from` in the order of the
 * ranks. Sets mean and variance (squares divided by count - less) to those of all values
 * (engine/batch_norm.h). */
void cmn_kernel_merge_statistics(float *mean, float *variance, const float *from, size_t n,
                                 int ranks, double less);

/* Sets a and b to their sums over the ranks, times this rank's part of all values; this rank has
 * `count` values. */
void cmn_kernel_merge_deltas(float *a, float *b, const float *from, size_t n, int ranks,
                             unsigned count);

/* Computes x[i] *= by for n floats. */
void cmn_kernel_scale(float *x, float by, size_t n);

/* Computes to[i] = a[i] + by * b[i] for n floats. `to` may be a or b. */
void cmn_kernel_combine(float *to, const float *a, float by, const float *b, size_t n);

#ifdef __cplusplus
}
#endif

#endif
