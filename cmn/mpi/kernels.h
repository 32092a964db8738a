/* Kernels over gradients on the GPU. Only a build with CUDA has them (kernels.cu). */
#ifndef CMN_KERNELS_H
#define CMN_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the 16 bits are. */
enum cmn_float16 { CMN_HALF_FP16, CMN_HALF_BF16 };

/* Local, not blocking: queued on `stream` (a cudaStream_t). n floats at `from`, times `factor`, go to n
 * numbers of 16 bits at `to`, rounded to the nearest. The buffers are the GPU's and the caller's; they
 * must not overlap. Returns a cudaError_t, 0 when it was queued. */
int cmn_kernel_narrow(void *to, const float *from, size_t n, float factor, enum cmn_float16 type,
                      void *stream);

/* As cmn_kernel_narrow, but from 16 bits to floats. */
int cmn_kernel_widen(float *to, const void *from, size_t n, float factor, enum cmn_float16 type,
                     void *stream);

/* Local, not blocking: queued on `stream`. *found, in the GPU's memory, becomes 1 when one of the n floats at x, there too, is NaN or
 * infinite; otherwise it stays as it is. Returns a cudaError_t. */
int cmn_kernel_nonfinite(float *found, const float *x, size_t n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
