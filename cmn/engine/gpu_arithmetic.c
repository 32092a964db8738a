#include "engine/gpu_arithmetic.h"

#include "base/log.h"

#ifdef GPU

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <curand.h>
#ifdef CUDNN
#include <cudnn.h>
#endif
#include <stdio.h>

#include "mpi/device.h"

int cmn_gpu_arithmetic(int device, char *text, size_t bytes)
{
    struct cudaDeviceProp gpu;
    int runtime = 0, driver = 0, major = 0, minor = 0, patch = 0, random = 0;
    size_t dnn = 0;

    /* cuBLAS promises equal bits on an architecture with as many multiprocessors. */
    if (cmn_device_check(cudaGetDeviceProperties(&gpu, device), "cudaGetDeviceProperties") ||
        cmn_device_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion") ||
        cmn_device_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion")) {
        return -1;
    }
    if (cublasGetProperty(MAJOR_VERSION, &major) || cublasGetProperty(MINOR_VERSION, &minor) ||
        cublasGetProperty(PATCH_LEVEL, &patch) || curandGetVersion(&random)) {
        return cmn_fail("cuBLAS or cuRAND says no version");
    }
#ifdef CUDNN
    dnn = cudnnGetVersion();
#endif
    snprintf(text, bytes,
             "GPU %s, compute capability %d.%d, %d multiprocessors\n"
             "CUDA %d, driver for CUDA %d\n"
             "cuBLAS %d.%d.%d\n"
             "cuRAND %d\n"
             "cuDNN %zu\n",
             gpu.name, gpu.major, gpu.minor, gpu.multiProcessorCount, runtime, driver, major, minor,
             patch, random, dnn);
    return 0;
}

#else

int cmn_gpu_arithmetic(int device, char *text, size_t bytes)
{
    (void)device;
    (void)text;
    (void)bytes;
    return cmn_fail("built without CUDA: make GPU=1");
}

#endif
