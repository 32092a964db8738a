/* The same with factors of bf16, while what is added up keeps 32 bits; in a process of its own, because
 * oneDNN is limited to other instructions where there are none of bf16 to be had. */
#define IN_BF16
#include "convolution.c"
