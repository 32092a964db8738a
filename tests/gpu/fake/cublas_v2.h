/* A stand-in for cuBLAS's header (see cuda_runtime.h): what Darknet's gemm.c and cuda.c ask for. */
#ifndef TESTS_FAKE_CUBLAS_H
#define TESTS_FAKE_CUBLAS_H

typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 } cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef struct fake_blas *cublasHandle_t;

#ifdef __cplusplus
extern "C" {
#endif

cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const float *alpha,
                           const float *a, int lda, const float *b, int ldb, const float *beta,
                           float *c, int ldc);

#ifdef __cplusplus
}
#endif

#endif
