#include "engine/gpu_convolution.h"

#if defined(GPU) && defined(CUDNN)

#include <cudnn.h>

#include "base/fatal.h"
#include "base/log.h"
#include "cmn.h"
#include "mpi/device.h"
#include "mpi/kernels.h"

/* Images, filters and what becomes of them, or their gradients. */
enum { X, W, Y, OPERANDS };

/* A convolution's operands in 16 bits. */
struct operands {
    void *at[OPERANDS];
    size_t n[OPERANDS];
};

static int in_bf16, is_used;

/* One block for all layers, one after the other: the stream orders them. It grows in forward passes alone,
 * as backward needs what its forward pass has needed: so it has its size before sums of NCCL
 * travel during backward, which cudaFree would wait for. The kernels are there by then, too: no sum
 * travels during the first backward. */
static float *room;
static size_t room_floats;

static void require(int failed)
{
    if (failed) {
        cmn_fail_in("cmn_mixed=bf16");
        cmn_fatal_reason();
    }
}

static void require_cudnn(cudnnStatus_t status)
{
    if (status) {
        cmn_fatal("cmn_mixed=bf16: cuDNN error: %s", cudnnGetErrorString(status));
    }
}

static struct operands operands_of(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                   cudnnTensorDescriptor_t y)
{
    enum { ALIGNED = 64 }; /* floats, as cudaMalloc aligns */
    struct operands o;
    size_t bytes[OPERANDS], at[OPERANDS], floats = 0;

    require_cudnn(cudnnGetTensorSizeInBytes(x, &bytes[X]));
    require_cudnn(cudnnGetFilterSizeInBytes(w, &bytes[W]));
    require_cudnn(cudnnGetTensorSizeInBytes(y, &bytes[Y]));
    for (int i = 0; i < OPERANDS; i++) {
        o.n[i] = bytes[i] / sizeof(short);
        at[i] = floats;
        floats += (bytes[i] / sizeof(float) + ALIGNED) / ALIGNED * ALIGNED;
    }
    if (floats > room_floats) {
        cmn_device_free(room); /* waits for who uses it */
        room = NULL;
        require(cmn_device_memory(&room, floats));
        room_floats = floats;
    }
    for (int i = 0; i < OPERANDS; i++) {
        o.at[i] = room + at[i];
    }
    return o;
}

static void take(const struct operands *o, int i, const void *from)
{
    require(cmn_device_check(
        cmn_kernel_cast_to_16(o->at[i], from, o->n[i], 1, CMN_BF16, cmn_device_stream()),
        "a cast to bf16"));
}

/* Where cuDNN has computed: to = operand + beta * to. Darknet has a beta of 0 or 1. */
static cudnnStatus_t give(const struct operands *o, int i, void *to, const void *beta,
                          cudnnStatus_t status)
{
    float factor = *(const float *)beta;
    void *stream = cmn_device_stream();

    if (status || (factor != 0 && factor != 1)) {
        return status ? status : CUDNN_STATUS_NOT_SUPPORTED;
    }
    require(cmn_device_check(factor == 0
                                 ? cmn_kernel_cast_to_32(to, o->at[i], o->n[i], 1, CMN_BF16, stream)
                                 : cmn_kernel_add_16(to, o->at[i], o->n[i], CMN_BF16, stream),
                             "a cast from bf16"));
    return status;
}

static const float none = 0;

cudnnDataType_t cmn_convolution_type(void)
{
    is_used = in_bf16;
    return in_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

cudnnStatus_t cmn_convolution_forward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t x_shape, const void *x,
                                      cudnnFilterDescriptor_t w_shape, const void *w,
                                      cudnnConvolutionDescriptor_t how,
                                      cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes,
                                      const void *beta, cudnnTensorDescriptor_t y_shape, void *y)
{
    struct operands o;

    if (!in_bf16) {
        return cudnnConvolutionForward(handle, alpha, x_shape, x, w_shape, w, how, algo, workspace,
                                       bytes, beta, y_shape, y);
    }
    o = operands_of(x_shape, w_shape, y_shape);
    take(&o, X, x);
    take(&o, W, w);
    return give(&o, Y, y, beta,
                cudnnConvolutionForward(handle, alpha, x_shape, o.at[X], w_shape, o.at[W], how,
                                        algo, workspace, bytes, &none, y_shape, o.at[Y]));
}

cudnnStatus_t cmn_convolution_backward_filter(cudnnHandle_t handle, const void *alpha,
                                              cudnnTensorDescriptor_t x_shape, const void *x,
                                              cudnnTensorDescriptor_t dy_shape, const void *dy,
                                              cudnnConvolutionDescriptor_t how,
                                              cudnnConvolutionBwdFilterAlgo_t algo, void *workspace,
                                              size_t bytes, const void *beta,
                                              cudnnFilterDescriptor_t dw_shape, void *dw)
{
    struct operands o;

    if (!in_bf16) {
        return cudnnConvolutionBackwardFilter(handle, alpha, x_shape, x, dy_shape, dy, how, algo,
                                              workspace, bytes, beta, dw_shape, dw);
    }
    o = operands_of(x_shape, dw_shape, dy_shape);
    take(&o, X, x);
    take(&o, Y, dy);
    return give(&o, W, dw, beta,
                cudnnConvolutionBackwardFilter(handle, alpha, x_shape, o.at[X], dy_shape, o.at[Y],
                                               how, algo, workspace, bytes, &none, dw_shape,
                                               o.at[W]));
}

cudnnStatus_t cmn_convolution_backward_data(cudnnHandle_t handle, const void *alpha,
                                            cudnnFilterDescriptor_t w_shape, const void *w,
                                            cudnnTensorDescriptor_t dy_shape, const void *dy,
                                            cudnnConvolutionDescriptor_t how,
                                            cudnnConvolutionBwdDataAlgo_t algo, void *workspace,
                                            size_t bytes, const void *beta,
                                            cudnnTensorDescriptor_t dx_shape, void *dx)
{
    struct operands o;

    if (!in_bf16) {
        return cudnnConvolutionBackwardData(handle, alpha, w_shape, w, dy_shape, dy, how, algo,
                                            workspace, bytes, beta, dx_shape, dx);
    }
    o = operands_of(dx_shape, w_shape, dy_shape);
    take(&o, W, w);
    take(&o, Y, dy);
    return give(&o, X, dx, beta,
                cudnnConvolutionBackwardData(handle, alpha, w_shape, o.at[W], dy_shape, o.at[Y],
                                             how, algo, workspace, bytes, &none, dx_shape,
                                             o.at[X]));
}

void cmn_gpu_convolution_use_bf16(void)
{
    in_bf16 = 1;
}

int cmn_gpu_convolution_is_used(void)
{
    return is_used;
}

void cmn_gpu_convolution_close(void)
{
    if (room) {
        cmn_device_free(room);
    }
    room = NULL;
    room_floats = 0;
    in_bf16 = is_used = 0;
}

#else

void cmn_gpu_convolution_use_bf16(void)
{
}

int cmn_gpu_convolution_is_used(void)
{
    return 0;
}

void cmn_gpu_convolution_close(void)
{
}

#endif
