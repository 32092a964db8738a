/* kernels: kernels over gradients on the GPU. Only a build with CUDA has them (kernels.cu). */
#ifndef CMN_KERNELS_H
#define CMN_KERNELS_H

#include <stddef.h>

#include "base/float16.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Local, not blocking, queued on `stream` (a cudaStream_t). Casts n floats at `from`, times
 * `factor`, to 16 bits (CMN_FP16 or CMN_BF16) at `to`, rounded to nearest. The buffers are the
 * GPU's and belong to the caller; they must not overlap. Returns a cudaError_t, 0 if the cast was
 * queued. */
int cmn_kernel_cast_to_16(void *to, const float *from, size_t n, float factor, enum cmn_dtype type,
                          void *stream);

/* Does the same as cmn_kernel_cast_to_16(), but from 16 bits to floats. */
int cmn_kernel_cast_to_32(float *to, const void *from, size_t n, float factor, enum cmn_dtype type,
                          void *stream);

/* Local, not blocking, queued on `stream`. cmn_kernel_channels_last() converts n images of
 * `channels` channels and `pixels` pixels from floats with channels first to bf16 with channels
 * last, rounded to nearest. cmn_kernel_channels_first() converts them back; with `add` it adds to
 * what is there. The buffers are the GPU's and must not overlap. Both return a cudaError_t. */
int cmn_kernel_channels_last(void *to, const float *from, size_t n, size_t channels, size_t pixels,
                             void *stream);
int cmn_kernel_channels_first(float *to, const void *from, size_t n, size_t channels, size_t pixels,
                              int add, void *stream);

/* Local, blocking. Loads the casts of that type to the GPU. Otherwise CUDA loads them with their
 * first launch, which may wait for running work: a sum, which may itself wait for this rank. */
int cmn_kernel_load_casts(enum cmn_dtype type);

/* Local, blocking. Does the same for the kernels that update or compare weights while a sum
 * runs. */
int cmn_kernel_load_update(void);

/* ---- all tensors of a flat buffer together ----
 *
 * All functions are local, not blocking, queued on `stream`, and return a cudaError_t; all pointers
 * are the GPU's. A tensor has a whole number of units of CMN_KERNEL_UNIT floats in a block:
 * tensor[i / CMN_KERNEL_UNIT] is the number of the tensor with float i. */

enum {
    CMN_KERNEL_UNIT = 16, /* floats */
    CMN_KERNEL_PARTS = 64 /* partial sums of each tensor */
};

/* SGD with momentum. With g the sums: u = scale * g + velocity + decay * w; w += rate * u; velocity
 * = momentum * u; g = 0. Without velocity, g becomes momentum * u. A limit other than 0 bounds the
 * weights. */
struct cmn_kernel_sgd {
    float *weights, *velocity, *sums; /* n floats each; velocity may be NULL */
    const unsigned short *tensor;
    const float *scale, *rate, *decay, *limit; /* of each tensor */
    float momentum;
    size_t n;
};
int cmn_kernel_sgd(const struct cmn_kernel_sgd *k, void *stream);

/* Adam's rule: u = scale * g + decay * w; m = b1 * m + (1 - b1) * u; v = b2 * v + (1 - b2) * u * u;
 * w += rate * m * m_scale / (sqrt(v * v_scale) + eps); g = 0. */
struct cmn_kernel_adam {
    float *weights, *m, *v, *sums;
    const unsigned short *tensor;
    const float *scale, *rate, *decay, *limit;
    float b1, b2, eps, m_scale, v_scale;
    size_t n;
};
int cmn_kernel_adam(const struct cmn_kernel_adam *k, void *stream);

/* Sets found[t] to 1 if one of the floats [from, to) of x that belong to tensor t is NaN or
 * infinite. All other entries stay as they are. */
int cmn_kernel_nonfinite(float *found, const unsigned short *tensor, const float *x, size_t from,
                         size_t to, void *stream);

/* Sums the squares of each tensor in CMN_KERNEL_PARTS partial sums. Tensor t has n[t] floats from x
 * + at[t] on, and its partial sums go to part[t * CMN_KERNEL_PARTS + p]. The order of the additions
 * depends only on n[t]. */
int cmn_kernel_squares(double *part, const float *x, const size_t *at, const size_t *n, int tensors,
                       void *stream);

/* Does the same as cmn_kernel_squares() with a hash of the floats' bits and places. */
int cmn_kernel_hash(unsigned long long *part, const float *x, const size_t *at, const size_t *n,
                    int tensors, void *stream);

/* ---- batch normalisation over several ranks ----
 *
 * For n filters a rank sends 2n + 1 floats: two vectors, and the bits of its count of values.
 * Unless a comment says otherwise, the functions are local, not blocking, queued on `stream`, and
 * return a cudaError_t; all pointers are the GPU's. */
int cmn_kernel_pack_statistics(float *to, const float *a, const float *b, size_t n, unsigned count,
                               void *stream);

/* Local, blocking. Loads these kernels to the GPU, as cmn_kernel_load_casts() does. */
int cmn_kernel_load_statistics(void);

/* Merges the statistics that `ranks` ranks have sent, which lie at `from` in the order of the
 * ranks. Sets mean and variance (squares divided by count - less) to those of all values
 * (engine/batch_norm.h). */
int cmn_kernel_merge_statistics(float *mean, float *variance, const float *from, size_t n,
                                int ranks, double less, void *stream);

/* Sets a and b to their sums over the ranks, times this rank's part of all values; this rank has
 * `count` values. */
int cmn_kernel_merge_deltas(float *a, float *b, const float *from, size_t n, int ranks,
                            unsigned count, void *stream);

/* Computes x[i] *= by for n floats. */
int cmn_kernel_scale(float *x, float by, size_t n, void *stream);

/* Computes to[i] = a[i] + by * b[i] for n floats. `to` may be a or b. */
int cmn_kernel_combine(float *to, const float *a, float by, const float *b, size_t n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
