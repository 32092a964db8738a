/* Convolutions on GPUs in bf16, by cuDNN's graph API. The functions that Darknet calls are not an
 * option: on an H100 they computed gradients in bf16 without tensor cores, ten to a hundred times
 * slower than in 32 bits (tests/gpu/README.md).
 *
 * Darknet's tensors are floats, channels first. Tensor cores need 16 bits, channels last. So one
 * kernel rounds and transposes each operand into `room`, cuDNN computes there, and another kernel
 * casts the result back. A shape gets an execution plan for each of its three results before its
 * first forward pass. If cuDNN has no plan for a result, Darknet's own call computes that result in
 * 32 bits, and a log line says so. */
#include "engine/gpu_convolution.h"

#if defined(GPU) && defined(CUDNN)

#include <cudnn.h>
#include <cudnn_backend.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmn.h"
#include "mpi/device.h"
#include "mpi/kernels.h"

/* The operands: input, filters and output. As the result of an operation, X and W stand for the
 * gradients of the input and of the filters. */
enum { X, W, Y, OPERANDS };

/* Images or filters, their channels, rows and columns; and by rows and columns how the filters move.
 * In a grouped convolution the filters have fewer channels than the input. */
struct shape {
    int size[OPERANDS][4];
    int pad[2], stride[2], dilation[2];
};

struct plan {
    struct shape shape;
    cudnnBackendDescriptor_t result[OPERANDS]; /* the plan for this result; NULL: cuDNN has none */
    cudnnStatus_t why[OPERANDS];               /* why cuDNN has no plan, until it was said */
    /* In `room`, in floats: where each operand lies in 16 bits, then the workspace of the result that
     * needs most, and where that ends. */
    struct operand {
        size_t images, channels, pixels, at;
    } of[OPERANDS];
    size_t workspace, end;
};

static int in_bf16;

/* Plans are in the order of their first use, which is the order of the layers. */
static struct plan *plans;
static size_t n_plans;

/* All descriptors that plans are made of. They are freed together at the end, because cuDNN does
 * not document which of them a plan still needs. */
static cudnnBackendDescriptor_t *parts;
static size_t n_parts;

/* One block that all layers use in turn: the stream orders their use. It grows only in forward
 * passes, because backward needs no more than its forward pass. So it has its final size before
 * NCCL sums run during backward, which cudaFree would wait for. The kernels are loaded by then,
 * too: no sum runs during the first backward. */
static float *room;
static size_t room_floats;

/* The delta that has been in `room` since the gradient of the weights was computed; NULL: none. */
static const void *delta;

static void require_cudnn(cudnnStatus_t status)
{
    if (status) {
        cmn_fatal("cmn_mixed=bf16: cuDNN error: %s", cudnnGetErrorString(status));
    }
}

/* ---- plans ---- */

static cudnnBackendDescriptor_t part(cudnnBackendDescriptorType_t type)
{
    parts = cmn_realloc(parts, n_parts + 1, sizeof *parts);
    require_cudnn(cudnnBackendCreateDescriptor(type, &parts[n_parts]));
    return parts[n_parts++];
}

/* The first error since it was set to CUDNN_STATUS_SUCCESS. While it is an error, the functions
 * below do nothing. */
static cudnnStatus_t status;

static void set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    status = status ? status : cudnnBackendSetAttribute(of, name, type, n, values);
}

static int64_t get(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t most, void *values)
{
    int64_t n = 0;

    status = status ? status : cudnnBackendGetAttribute(of, name, type, most, &n, values);
    return status ? 0 : n < most ? n : most;
}

static void set_part(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t value)
{
    set(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish_part(cudnnBackendDescriptor_t it)
{
    status = status ? status : cudnnBackendFinalize(it);
}

static cudnnBackendDescriptor_t tensor(int64_t name, const int sizes[4])
{
    cudnnBackendDescriptor_t it = part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t size[] = {sizes[0], sizes[1], sizes[2], sizes[3]}, row = size[1] * size[3];
    const int64_t step[] = {row * size[2], 1, row, size[1]}, aligned = 16;
    const cudnnDataType_t type = CUDNN_DATA_BFLOAT16;

    set(it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(it, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(it, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, step);
    set(it, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
    finish_part(it);
    return it;
}

static cudnnBackendDescriptor_t movement(const struct shape *s)
{
    cudnnBackendDescriptor_t it = part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int64_t pad[] = {s->pad[0], s->pad[1]}, stride[] = {s->stride[0], s->stride[1]};
    const int64_t dilation[] = {s->dilation[0], s->dilation[1]}, dimensions = 2;
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;

    set(it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
    set(it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(it, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(it, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    finish_part(it);
    return it;
}

/* Our name of the operation with this result, and cuDNN's of it and of its attributes. */
static const struct {
    const char *name;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, how, operand[OPERANDS];
} operations[OPERANDS] = {
    [X] = {"backward to the input",
           CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
           {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}},
    [W] = {"backward to the weights",
           CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
           {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}},
    [Y] = {"forward",
           CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}},
};

/* Builds a graph of one operation. */
static cudnnBackendDescriptor_t graph_of(cudnnHandle_t handle, const struct shape *s, int result)
{
    cudnnBackendDescriptor_t graph = part(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendDescriptor_t operation = part(operations[result].type);
    const float one = 1, none = 0;

    set(operation, operations[result].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(operation, operations[result].beta, CUDNN_TYPE_FLOAT, 1, &none);
    set_part(operation, operations[result].how, movement(s));
    for (int i = X; i < OPERANDS; i++) {
        set_part(operation, operations[result].operand[i], tensor(i + 1, s->size[i]));
    }
    finish_part(operation);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    finish_part(graph);
    return graph;
}

enum { PROPOSALS = 16 };

/* Returns how many engines cuDNN proposes, the fastest first by its own estimate. Returns 0 and
 * sets `status` on an error. */
static int64_t propose(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                       cudnnBackendDescriptor_t proposal[PROPOSALS])
{
    cudnnBackendDescriptor_t guess = part(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);

    status = CUDNN_STATUS_SUCCESS;
    set_part(guess, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(guess, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish_part(guess);
    for (int i = 0; i < PROPOSALS; i++) {
        proposal[i] = part(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    return get(guess, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, PROPOSALS,
               proposal);
}

static cudnnBackendDescriptor_t plan_of_proposal(cudnnHandle_t handle,
                                                 cudnnBackendDescriptor_t proposal, int64_t *bytes)
{
    cudnnBackendDescriptor_t plan = part(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    status = CUDNN_STATUS_SUCCESS;
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposal);
    finish_part(plan);
    get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, bytes);
    return plan;
}

/* Returns the plan of the first proposal whose workspace is at most `most` bytes. Returns NULL if
 * there is none, and `status` says why. */
static cudnnBackendDescriptor_t plan_result(cudnnHandle_t handle, const struct shape *s, int result,
                                            size_t *bytes)
{
    const int64_t most = 2000000000; /* bytes, the same limit as Darknet's */
    const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t graph, proposal[PROPOSALS];
    cudnnStatus_t why = CUDNN_STATUS_NOT_SUPPORTED;

    status = CUDNN_STATUS_SUCCESS;
    graph = graph_of(handle, s, result);
    if (status) {
        return NULL;
    }
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        int64_t n = propose(graph, modes[m], proposal), needs = 0;
        why = status ? status : why;
        for (int64_t i = 0; i < n; i++) {
            cudnnBackendDescriptor_t plan = plan_of_proposal(handle, proposal[i], &needs);
            if (!status && needs <= most) {
                *bytes = (size_t)needs > *bytes ? (size_t)needs : *bytes;
                return plan;
            }
            why = status ? status : why;
        }
    }
    status = why;
    return NULL;
}

static struct shape shape_of(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                             cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t y)
{
    struct shape s;
    int *in = s.size[X], *filters = s.size[W], *out = s.size[Y], step[4];
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    cudnnConvolutionMode_t mode;

    require_cudnn(cudnnGetTensor4dDescriptor(x, &type, &in[0], &in[1], &in[2], &in[3], &step[0],
                                             &step[1], &step[2], &step[3]));
    require_cudnn(cudnnGetFilter4dDescriptor(w, &type, &format, &filters[0], &filters[1],
                                             &filters[2], &filters[3]));
    require_cudnn(cudnnGetTensor4dDescriptor(y, &type, &out[0], &out[1], &out[2], &out[3], &step[0],
                                             &step[1], &step[2], &step[3]));
    require_cudnn(cudnnGetConvolution2dDescriptor(how, &s.pad[0], &s.pad[1], &s.stride[0],
                                                  &s.stride[1], &s.dilation[0], &s.dilation[1],
                                                  &mode, &type));
    return s;
}

/* Returns the floats of so many bytes in `room`, with the alignment of cudaMalloc(). */
static size_t place(size_t bytes)
{
    enum { ALIGNED = 64 }; /* floats */

    return (bytes / sizeof(float) + ALIGNED) / ALIGNED * ALIGNED;
}

/* Returns the plan of a shape, which it makes if needed. The search begins behind the plan that was
 * found last, so mostly it succeeds immediately. */
static struct plan *plan_of(cudnnHandle_t handle, const struct shape *s)
{
    static size_t last;
    struct plan *p;
    size_t bytes = 0, at = 0;

    for (size_t i = 0; i < n_plans; i++) {
        last = (last + 1) % n_plans;
        if (!memcmp(&plans[last].shape, s, sizeof *s)) {
            return &plans[last];
        }
    }
    plans = cmn_realloc(plans, n_plans + 1, sizeof *plans);
    last = n_plans;
    p = &plans[n_plans++];
    memset(p, 0, sizeof *p);
    p->shape = *s;
    for (int i = X; i < OPERANDS; i++) {
        const int *size = s->size[i];
        size_t images = (size_t)size[0], channels = (size_t)size[1];
        size_t pixels = (size_t)size[2] * (size_t)size[3];
        p->of[i] = (struct operand){images, channels, pixels, at};
        at += place(images * channels * pixels * sizeof(short));
        p->result[i] = plan_result(handle, s, i, &bytes);
        p->why[i] = status;
    }
    p->workspace = at;
    p->end = at + place(bytes);
    return p;
}

/* ---- operands ---- */

static void make_room(size_t floats)
{
    if (floats > room_floats) {
        cmn_device_free(room); /* waits for all work that uses it */
        room = NULL;
        room_floats = 0;
        if (cmn_device_memory(&room, floats)) {
            cmn_fail_in("cmn_mixed=bf16");
            cmn_fatal_reason();
        }
        room_floats = floats;
    }
}

/* Returns the plan of a convolution, if this result is computed in bf16, or NULL. */
static const struct plan *begin(int result, cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t how,
                                cudnnTensorDescriptor_t y)
{
    const int *input, *filters;
    struct shape s;
    struct plan *p;

    if (!in_bf16) {
        return NULL;
    }
    s = shape_of(x, w, how, y);
    p = plan_of(handle, &s);
    if (p->result[result]) {
        make_room(p->end);
        return p;
    }
    if (p->why[result]) { /* nobody asks for the first layer's input */
        input = s.size[X];
        filters = s.size[W];
        cmn_say("cmn_mixed=bf16: cuDNN has no way for %d x %d x %d by %d filters of %d x %d "
                "(%s): 32 bits there (%s)",
                input[3], input[2], input[1], filters[0], filters[3], filters[2],
                operations[result].name, cudnnGetErrorString(p->why[result]));
        p->why[result] = CUDNN_STATUS_SUCCESS;
    }
    return NULL;
}

static void take(const struct plan *p, int i, const void *from)
{
    const struct operand *o = &p->of[i];

    cmn_kernel_channels_last(room + o->at, from, o->images, o->channels, o->pixels);
}

static cudnnStatus_t execute(cudnnHandle_t handle, const struct plan *p, int result)
{
    const int64_t names[] = {X + 1, W + 1, Y + 1};
    void *const at[] = {room + p->of[X].at, room + p->of[W].at, room + p->of[Y].at};
    void *const workspace = room + p->workspace;
    cudnnBackendDescriptor_t pack;

    require_cudnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    status = CUDNN_STATUS_SUCCESS;
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, OPERANDS, names);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, OPERANDS, at);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finish_part(pack);
    status = status ? status : cudnnBackendExecute(handle, p->result[result], pack);
    cudnnBackendDestroyDescriptor(pack);
    return status;
}

/* Computes the result and stores it: to = result + beta * to. Darknet's beta is 0 or 1. */
static cudnnStatus_t give(cudnnHandle_t handle, const struct plan *p, int i, void *to,
                          const void *beta)
{
    const struct operand *o = &p->of[i];
    float factor = *(const float *)beta;
    cudnnStatus_t done =
        factor != 0 && factor != 1 ? CUDNN_STATUS_NOT_SUPPORTED : execute(handle, p, i);

    if (!done) {
        cmn_kernel_channels_first(to, room + o->at, o->images, o->channels, o->pixels, factor != 0);
    }
    return done;
}

cudnnStatus_t cmn_convolution_forward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t x_shape, const void *x,
                                      cudnnFilterDescriptor_t w_shape, const void *w,
                                      cudnnConvolutionDescriptor_t how,
                                      cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes,
                                      const void *beta, cudnnTensorDescriptor_t y_shape, void *y)
{
    const struct plan *p;

    delta = NULL;
    p = begin(Y, handle, x_shape, w_shape, how, y_shape);
    if (!p) {
        return cudnnConvolutionForward(handle, alpha, x_shape, x, w_shape, w, how, algo, workspace,
                                       bytes, beta, y_shape, y);
    }
    take(p, X, x);
    take(p, W, w);
    return give(handle, p, Y, y, beta);
}

cudnnStatus_t cmn_convolution_backward_filter(cudnnHandle_t handle, const void *alpha,
                                              cudnnTensorDescriptor_t x_shape, const void *x,
                                              cudnnTensorDescriptor_t dy_shape, const void *dy,
                                              cudnnConvolutionDescriptor_t how,
                                              cudnnConvolutionBwdFilterAlgo_t algo, void *workspace,
                                              size_t bytes, const void *beta,
                                              cudnnFilterDescriptor_t dw_shape, void *dw)
{
    const struct plan *p;

    delta = NULL;
    p = begin(W, handle, x_shape, dw_shape, how, dy_shape);
    if (!p) {
        return cudnnConvolutionBackwardFilter(handle, alpha, x_shape, x, dy_shape, dy, how, algo,
                                              workspace, bytes, beta, dw_shape, dw);
    }
    take(p, X, x);
    take(p, Y, dy);
    delta = dy; /* if Darknet computes the gradient of the input at all, it does so next */
    return give(handle, p, W, dw, beta);
}

cudnnStatus_t cmn_convolution_backward_data(cudnnHandle_t handle, const void *alpha,
                                            cudnnFilterDescriptor_t w_shape, const void *w,
                                            cudnnTensorDescriptor_t dy_shape, const void *dy,
                                            cudnnConvolutionDescriptor_t how,
                                            cudnnConvolutionBwdDataAlgo_t algo, void *workspace,
                                            size_t bytes, const void *beta,
                                            cudnnTensorDescriptor_t dx_shape, void *dx)
{
    const void *there = delta;
    const struct plan *p;

    delta = NULL;
    p = begin(X, handle, dx_shape, w_shape, how, dy_shape);
    if (!p) {
        return cudnnConvolutionBackwardData(handle, alpha, w_shape, w, dy_shape, dy, how, algo,
                                            workspace, bytes, beta, dx_shape, dx);
    }
    take(p, W, w);
    if (there != dy) {
        take(p, Y, dy);
    }
    return give(handle, p, X, dx, beta);
}

int cmn_gpu_convolution_use_bf16(void)
{
    in_bf16 = 1;
    return 1;
}

void cmn_gpu_convolution_close(void)
{
    while (n_parts) {
        cudnnBackendDestroyDescriptor(parts[--n_parts]);
    }
    free(parts);
    free(plans);
    parts = NULL;
    plans = NULL;
    n_plans = 0;
    cmn_device_free(room);
    room = NULL;
    room_floats = 0;
    in_bf16 = 0;
    delta = NULL;
}

#else

int cmn_gpu_convolution_use_bf16(void)
{
    return 0;
}

void cmn_gpu_convolution_close(void)
{
}

#endif
