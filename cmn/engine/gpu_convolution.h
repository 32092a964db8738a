/* Convolutions of GPUs in bf16 (cmn_mixed). Darknet gives them to cuDNN by the last functions of
 * cmn.h, which cast what they are given on its way, and cast back what comes of it. */
#ifndef CMN_GPU_CONVOLUTION_H
#define CMN_GPU_CONVOLUTION_H

/* Local. Whether the program was built with cuDNN. */
int cmn_gpu_convolution_built(void);

/* Local. Convolutions are computed in bf16 from now on, until cmn_gpu_convolution_close(). Without
 * cuDNN nothing happens. */
void cmn_gpu_convolution_use_bf16(void);

/* Local; blocks where there is memory to give back, for all work of the GPU. */
void cmn_gpu_convolution_close(void);

#endif
