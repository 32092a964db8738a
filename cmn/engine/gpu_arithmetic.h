/* What computes on this rank's GPU (cmn_exact): its model, and the versions of NVIDIA's libraries. Equal
 * ones give equal bits, as far as NVIDIA promises any. */
#ifndef CMN_GPU_ARITHMETIC_H
#define CMN_GPU_ARITHMETIC_H

#include <stddef.h>

/* Local. Lines of text about the GPU with that number, of which each ends with a newline. 0, or -1 with
 * a reason. */
int cmn_gpu_arithmetic(int device, char *text, size_t bytes);

#endif
