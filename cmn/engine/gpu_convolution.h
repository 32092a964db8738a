/* Convolutions on GPUs in bf16 (cmn_mixed), by cuDNN. Darknet calls cmn_convolve_gpu() of cmn.h,
 * which casts the operands to bf16 and the result back. The process has one set of plans, because
 * Darknet's layers pass no network. */
#ifndef CMN_GPU_CONVOLUTION_H
#define CMN_GPU_CONVOLUTION_H

/* Local. Computes convolutions in bf16 from now on, until cmn_gpu_convolution_close(). Returns 1, or
 * 0 if the program was built without cuDNN. */
int cmn_gpu_convolution_use_bf16(void);

/* Local. Frees the plans and the memory; if there is memory to free, it blocks until all work of
 * the GPU has ended. */
void cmn_gpu_convolution_close(void);

#endif
