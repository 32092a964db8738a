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

/* Local, not blocking: queued on `stream`. *found, in the GPU's memory, becomes 1 when one of
 * the n floats at x, there too, is NaN or infinite; otherwise it stays as it is. Returns a
 * cudaError_t. */
int cmn_kernel_nonfinite(float *found, const float *x, size_t n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
