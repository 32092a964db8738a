/* Kernels over gradients on the GPU. Only a build with CUDA has them (kernels.cu). */
#ifndef CMN_KERNELS_H
#define CMN_KERNELS_H

#include <stddef.h>

#include "base/float16.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Local, not blocking: queued on `stream` (a cudaStream_t). Casts n floats at `from`, times
 * `factor`, to 16 bits (CMN_FP16 or CMN_BF16) at `to`, rounded to nearest. The buffers are the
 * GPU's and the caller's; they must not overlap. Returns a cudaError_t, 0 when it was queued. */
int cmn_kernel_cast_to_16(void *to, const float *from, size_t n, float factor, enum cmn_dtype type,
                          void *stream);

/* As cmn_kernel_cast_to_16, but from 16 bits to floats. */
int cmn_kernel_cast_to_32(float *to, const void *from, size_t n, float factor, enum cmn_dtype type,
                          void *stream);

/* Local, not blocking, queued on `stream`. n images of so many channels and pixels, as floats with
 * channels first at `from`, become bf16 with channels last at `to`, rounded to nearest. The other one
 * is the way back: it writes, or adds to what is there. The buffers are the GPU's and must not overlap. Return
 * a cudaError_t. */
int cmn_kernel_channels_last(void *to, const float *from, size_t n, size_t channels, size_t pixels,
                             void *stream);
int cmn_kernel_channels_first(float *to, const void *from, size_t n, size_t channels, size_t pixels,
                              int add, void *stream);

/* Local, blocking. Brings the casts of that type to the GPU. CUDA does so with their first launch
 * otherwise, which may wait for what runs there: a sum, which may wait for this rank. */
int cmn_kernel_load_casts(enum cmn_dtype type);

/* Loads the kernels that update weights, or compare them, while a sum runs. */
int cmn_kernel_load_update(void);

/* ---- all tensors of a flat buffer at once ----
 *
 * All local, not blocking, queued on `stream`; all pointers are the GPU's; all return a
 * cudaError_t. A tensor has a whole number of units of a block: tensor[i / CMN_KERNEL_UNIT] is the
 * number of that with float i. */

enum {
    CMN_KERNEL_UNIT = 16, /* floats */
    CMN_KERNEL_PARTS = 64 /* of each tensor, where something is summed over it */
};

/* With g the sums: u = scale * g + velocity + decay * w; w += rate * u; velocity = momentum * u;
 * g = 0. Without velocity g is momentum * u then. A limit that is not 0 bounds the weights. */
struct cmn_kernel_sgd {
    float *weights, *velocity, *sums; /* blocks of n floats; velocity may be NULL */
    const unsigned short *tensor;
    const float *scale, *rate, *decay, *limit; /* of each tensor */
    float momentum;
    size_t n;
};
int cmn_kernel_sgd(const struct cmn_kernel_sgd *k, void *stream);

/* Adam's rule: u = scale * g + decay * w; m = b1 * m + (1 - b1) * u; v = b2 * v + (1 - b2) * u * u; w
 * += rate * m * m_scale / (sqrt(v * v_scale) + eps); g = 0. */
struct cmn_kernel_adam {
    float *weights, *m, *v, *sums;
    const unsigned short *tensor;
    const float *scale, *rate, *decay, *limit;
    float b1, b2, eps, m_scale, v_scale;
    size_t n;
};
int cmn_kernel_adam(const struct cmn_kernel_adam *k, void *stream);

/* found[t] becomes 1 where one of the floats [from, to) of x in tensor t is NaN or infinite; all
 * others stay as they are. */
int cmn_kernel_nonfinite(float *found, const unsigned short *tensor, const float *x, size_t from,
                         size_t to, void *stream);

/* Tensor t has n[t] floats behind x + at[t]. part[t * CMN_KERNEL_PARTS + p] becomes the sum of the
 * squares of some of them, added in an order that depends on n[t] alone; all parts are the sum. */
int cmn_kernel_squares(double *part, const float *x, const size_t *at, const size_t *n, int tensors,
                       void *stream);

/* As cmn_kernel_squares, with a hash of the floats' bits and places. */
int cmn_kernel_hash(unsigned long long *part, const float *x, const size_t *at, const size_t *n,
                    int tensors, void *stream);

/* ---- batch normalisation over several ranks ----
 *
 * For n filters a rank sends 2n + 1 floats: two vectors, and the bits of its count of values. All
 * local, not blocking, queued on `stream`; all pointers are the GPU's; all return a cudaError_t. */
int cmn_kernel_pack_statistics(float *to, const float *a, const float *b, size_t n, unsigned count,
                               void *stream);

/* Local, blocking. Brings these kernels to the GPU, as cmn_kernel_load_casts(). */
int cmn_kernel_load_statistics(void);

/* What `ranks` ranks have sent lies behind `from`, in their order. mean and variance (squares divided
 * by count - less) become those of all values (engine/batch_norm.h). */
int cmn_kernel_merge_statistics(float *mean, float *variance, const float *from, size_t n,
                                int ranks, double less, void *stream);

/* a and b become their sums over the ranks, times this rank's part of all values, `count` of
 * them. */
int cmn_kernel_merge_deltas(float *a, float *b, const float *from, size_t n, int ranks,
                            unsigned count, void *stream);

/* x[i] *= by, for n floats. */
int cmn_kernel_scale(float *x, float by, size_t n, void *stream);

/* to[i] = a[i] + by * b[i], for n floats; `to` may be one of them. */
int cmn_kernel_combine(float *to, const float *a, float by, const float *b, size_t n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
