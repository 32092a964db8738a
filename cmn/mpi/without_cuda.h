/* without_cuda: what device.c uses of CUDA's runtime, for a build without it: every call fails. */
#ifndef CMN_WITHOUT_CUDA_H
#define CMN_WITHOUT_CUDA_H

#include <stddef.h>

typedef enum { cudaSuccess, cudaErrorNotReady, cudaErrorNoDevice } cudaError_t;
typedef void *cudaStream_t, *cudaEvent_t;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaEventDisableTiming, cudaHostAllocDefault, cudaHostRegisterDefault };
enum { cudaStreamNonBlocking };

struct cudaDeviceProp {
    char uuid[16];
    int major;
};

#define cudaStreamLegacy NULL

static inline cudaError_t cmn_without_cuda(const void *first, ...)
{
    (void)first;
    return cudaErrorNoDevice;
}

#define cudaDeviceSynchronize() cmn_without_cuda(NULL)
#define cudaEventCreateWithFlags(...) cmn_without_cuda(__VA_ARGS__)
#define cudaEventDestroy(...) cmn_without_cuda(__VA_ARGS__)
#define cudaEventQuery(...) cmn_without_cuda(__VA_ARGS__)
#define cudaEventRecord(...) cmn_without_cuda(__VA_ARGS__)
#define cudaFree(...) cmn_without_cuda(__VA_ARGS__)
#define cudaFreeHost(...) cmn_without_cuda(__VA_ARGS__)
#define cudaGetDeviceCount(...) cmn_without_cuda(__VA_ARGS__)
#define cudaGetDeviceProperties(...) cmn_without_cuda(__VA_ARGS__)
#define cudaGetErrorString(code) ((void)(code), "built without CUDA: make GPU=1")
#define cudaGetLastError() cmn_without_cuda(NULL)
#define cudaHostAlloc(...) cmn_without_cuda(__VA_ARGS__)
#define cudaHostRegister(...) cmn_without_cuda(__VA_ARGS__)
#define cudaHostUnregister(...) cmn_without_cuda(__VA_ARGS__)
#define cudaMalloc(...) cmn_without_cuda(__VA_ARGS__)
#define cudaMemcpy(...) cmn_without_cuda(__VA_ARGS__)
#define cudaMemcpyAsync(...) cmn_without_cuda(__VA_ARGS__)
#define cudaMemset(...) cmn_without_cuda(__VA_ARGS__)
#define cudaStreamCreateWithFlags(...) cmn_without_cuda(__VA_ARGS__)
#define cudaStreamDestroy(...) cmn_without_cuda(__VA_ARGS__)
#define cudaStreamSynchronize(...) cmn_without_cuda(__VA_ARGS__)
#define cudaStreamWaitEvent(...) cmn_without_cuda(__VA_ARGS__)

#endif
