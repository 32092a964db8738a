/* A stand-in for cuDNN's header: what both trees of Darknet ask for of versions 8 and 9, which is
 * the same in them (see cuda_runtime.h). cudnn.c says what is checked. */
#ifndef TESTS_FAKE_CUDNN_H
#define TESTS_FAKE_CUDNN_H

#include <cuda_runtime.h>

#define CUDNN_MAJOR 9
#define CUDNN_MINOR 0
#define CUDNN_PATCHLEVEL 0

typedef enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000
} cudnnStatus_t;
/* Their numbers are NCCL's here, as fake_widen() takes them. */
typedef enum { CUDNN_DATA_HALF = 6, CUDNN_DATA_FLOAT = 7, CUDNN_DATA_BFLOAT16 = 9 } cudnnDataType_t;
typedef enum { CUDNN_TENSOR_NCHW = 0 } cudnnTensorFormat_t;
typedef enum { CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum {
    CUDNN_DEFAULT_MATH = 0,
    CUDNN_TENSOR_OP_MATH = 1,
    CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2,
    CUDNN_FMA_MATH = 3
} cudnnMathType_t;
typedef enum { CUDNN_DETERMINISTIC = 1 } cudnnDeterminism_t;
typedef enum { CUDNN_BATCHNORM_SPATIAL = 1 } cudnnBatchNormMode_t;
/* One type for the algorithms of all three convolutions. */
enum {
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1,
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7,
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED = 5,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED = 5,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT = 7
};
typedef int cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t;
typedef struct {
    int algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionBwdDataAlgoPerf_t,
    cudnnConvolutionBwdFilterAlgoPerf_t;

typedef struct fake_dnn *cudnnHandle_t;
typedef struct fake_tensor *cudnnTensorDescriptor_t, *cudnnFilterDescriptor_t;
typedef struct fake_convolution *cudnnConvolutionDescriptor_t;

/* AlexeyAB's tree describes its pools to cuDNN, and never pools by it. */
typedef void *cudnnPoolingDescriptor_t;
#define cudnnCreatePoolingDescriptor(pooling) CUDNN_STATUS_SUCCESS
#define cudnnSetPooling2dDescriptor(...) CUDNN_STATUS_SUCCESS
#define cudnnDestroyPoolingDescriptor(pooling) CUDNN_STATUS_SUCCESS

#ifdef __cplusplus
extern "C" {
#endif

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
const char *cudnnGetErrorString(cudnnStatus_t status);

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor);
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor);

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter);

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution);

/* The calls about each of the three convolutions have the same form: two operands, how they move, and
 * the result. */
#define FAKE_SHAPES                                                                      \
    cudnnHandle_t handle, cudnnTensorDescriptor_t first, cudnnTensorDescriptor_t second, \
        cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t third
#define FAKE_OPERANDS                                                                            \
    cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t first,                      \
        const void *first_data, cudnnTensorDescriptor_t second, const void *second_data,         \
        cudnnConvolutionDescriptor_t how, int algo, void *space, size_t bytes, const void *beta, \
        cudnnTensorDescriptor_t third, void *third_data
#define FAKE_CONVOLUTION(which)                                                                    \
    cudnnStatus_t cudnnGetConvolution##which##AlgorithmMaxCount(cudnnHandle_t handle, int *most);  \
    cudnnStatus_t cudnnGetConvolution##which##Algorithm_v7(FAKE_SHAPES, int most, int *n,          \
                                                           cudnnConvolutionFwdAlgoPerf_t *found);  \
    cudnnStatus_t cudnnGetConvolution##which##WorkspaceSize(FAKE_SHAPES, int algo, size_t *bytes); \
    cudnnStatus_t cudnnConvolution##which(FAKE_OPERANDS)
FAKE_CONVOLUTION(Forward);
FAKE_CONVOLUTION(BackwardData);
FAKE_CONVOLUTION(BackwardFilter);

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha,
                                           cudnnTensorDescriptor_t dy_shape, const void *dy,
                                           const void *beta, cudnnTensorDescriptor_t db_shape,
                                           void *db);

#define FAKE_NORMALISATION_FORWARD                                                                \
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,         \
        cudnnTensorDescriptor_t x_shape, const void *x, cudnnTensorDescriptor_t y_shape, void *y, \
        cudnnTensorDescriptor_t channels, const void *scale, const void *bias, double factor,     \
        void *running_mean, void *running_variance, double epsilon, void *saved_mean,             \
        void *saved_inverse
#define FAKE_NORMALISATION_BACKWARD                                                             \
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,       \
        const void *alpha_sums, const void *beta_sums, cudnnTensorDescriptor_t x_shape,         \
        const void *x, cudnnTensorDescriptor_t dy_shape, const void *dy,                        \
        cudnnTensorDescriptor_t dx_shape, void *dx, cudnnTensorDescriptor_t channels,           \
        const void *scale, void *d_scale, void *d_bias, double epsilon, const void *saved_mean, \
        const void *saved_inverse
cudnnStatus_t cudnnBatchNormalizationForwardTraining(FAKE_NORMALISATION_FORWARD);
cudnnStatus_t cudnnBatchNormalizationBackward(FAKE_NORMALISATION_BACKWARD);

#ifdef __cplusplus
}
#endif

#endif
