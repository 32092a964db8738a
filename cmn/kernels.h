/* Kernels over gradients on the GPU. Only a build with CUDA has them (kernels.cu). */
#ifndef CMN_KERNELS_H
#define CMN_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the 16 bits are. */
enum cmn_half { CMN_HALF_FP16, CMN_HALF_BF16 };

/* Local, not blocking: queued on `stream` (a cudaStream_t). n floats at `from`, times `factor`, go to n
 * numbers of 16 bits at `to`, rounded to the nearest. The buffers are the GPU's and the caller's; they
 * must not overlap. Returns a cudaError_t, 0 when it was queued. */
int cmn_kernel_narrow(void *to, const float *from, size_t n, float factor, enum cmn_half type,
                      void *stream);

/* As cmn_kernel_narrow, but from 16 bits to floats. */
int cmn_kernel_widen(float *to, const void *from, size_t n, float factor, enum cmn_half type,
                     void *stream);

#ifdef __cplusplus
}
#endif

#endif
