/* Convolutions of GPUs in bf16 (cmn_mixed). Darknet gives them to cuDNN by the last functions of
 * cmn.h, which cast what they are given on its way, and cast back what comes of it. */
#ifndef CMN_GPU_CONVOLUTION_H
#define CMN_GPU_CONVOLUTION_H

/* Local. Convolutions that Darknet describes from now on are computed in bf16, until
 * cmn_gpu_convolution_close(). Without cuDNN nothing happens. */
void cmn_gpu_convolution_use_bf16(void);

/* Local. Whether Darknet has described one since. */
int cmn_gpu_convolution_is_used(void);

/* Local; blocks where there is memory to give back, for all work of the GPU. */
void cmn_gpu_convolution_close(void);

#endif
