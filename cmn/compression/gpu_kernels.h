/* Kernels of compressors on a GPU. Only a build with CUDA has them (gpu_kernels.cu).
 *
 * All local, not blocking, queued on `stream` (a cudaStream_t); all pointers are the GPU's; all
 * return a cudaError_t. They do what lowrank.h does on the CPU. */
#ifndef CMN_GPU_KERNELS_H
#define CMN_GPU_KERNELS_H

#include <stddef.h>

#include "compression/lowrank.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Local, blocking. Brings all of them to the GPU: with their first launch that may wait for what runs
 * there. Without a stream. */
int cmn_kernel_load_compressors(void);

/* As the functions of lowrank.h. The order of additions depends on the form alone. */
int cmn_kernel_left(const struct cmn_lowrank *s, float *m, const float *fresh, const float *q,
                    float *p, void *stream);
int cmn_kernel_right(const struct cmn_lowrank *s, const float *m, const float *p, float *q,
                     void *stream);
int cmn_kernel_take(const struct cmn_lowrank *s, float *m, float *sum, const float *p,
                    const float *own, const float *q, void *stream);

#ifdef __cplusplus
}
#endif

#endif
