/* Work that is late, on a GPU. */
#ifndef TESTS_GPU_LATE_H
#define TESTS_GPU_LATE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Local, not blocking, queued on `stream` (a cudaStream_t): a kernel that spins for so many cycles
 * of the GPU, and behind it one that copies n floats. `from` is page-locked memory, and stays as
 * it is until then. Returns a cudaError_t. */
int late_copy(float *to, const float *from, size_t n, long long cycles, void *stream);

#ifdef __cplusplus
}
#endif

#endif
