/* Kernels of compressors on a GPU. Only a build with CUDA has them (gpu_kernels.cu).
 *
 * All local, not blocking, queued on `stream` (a cudaStream_t); all pointers are the GPU's; all
 * return a cudaError_t. They do what select.h, topk.c and lowrank.h do on the CPU. */
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

/* What topk selects of a shard. */
struct cmn_kernel_select {
    float *kept, *fresh; /* n floats; fresh is added to kept, and zeroed */
    size_t n, k;
    unsigned *work; /* cmn_kernel_select_work(n) numbers */
    void *wire;     /* what topk sends of it: count[blocks], place[k], value[k] */
};

/* Numbers of work space; local, at once. */
size_t cmn_kernel_select_work(size_t n);

/* The values of cmn_select(), in topk's format; `kept` keeps what they leave of it. The same bits as on the
 * CPU. */
int cmn_kernel_select(const struct cmn_kernel_select *s, void *stream);

/* Adds what a rank has sent to the n floats of a shard. Who adds the ranks one after the other has
 * one order of additions. */
int cmn_kernel_add_selected(float *sum, size_t n, const void *wire, size_t k, void *stream);

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
