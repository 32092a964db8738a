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
#include "engine/darknet_tree.h"
#include "mpi/device.h"
#include "mpi/kernels.h"

/* The operands: input, filters and output, in the order of enum cmn_convolution_result. As the
 * result of an operation, X and W stand for the gradients of the input and of the filters. */
enum { X, W, Y, OPERANDS };

struct plan {
    struct cmn_convolution shape;
    cudnnBackendDescriptor_t result[OPERANDS]; /* the plan for this result; NULL: cuDNN has none */
    cudnnStatus_t why[OPERANDS];               /* why cuDNN has no plan, until it was said */
    /* Images or filters, their channels, rows and columns; where the operand lies in `room` in 16
     * bits, in floats. In a grouped convolution the filters have fewer channels than the input. */
    struct operand {
        int size[4];
        size_t at;
    } of[OPERANDS];
    /* The workspace of the result that needs most, behind the operands, and where that ends. */
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

static cudnnBackendDescriptor_t movement(const struct cmn_convolution *s)
{
    cudnnBackendDescriptor_t it = part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int64_t pad[] = {s->pad, s->pad}, stride[] = {s->stride_y, s->stride_x};
    const int64_t dilation[] = {s->dilation, s->dilation}, dimensions = 2;
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
#define ATTRIBUTE(of, what) CUDNN_ATTR_OPERATION_CONVOLUTION_##of##_##what
#define OPERATION(name, type, of, x, w, y)                                                   \
    {                                                                                        \
        name, CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, ATTRIBUTE(of, ALPHA), \
            ATTRIBUTE(of, BETA), ATTRIBUTE(of, CONV_DESC),                                   \
        {                                                                                    \
            ATTRIBUTE(of, x), ATTRIBUTE(of, w), ATTRIBUTE(of, y)                             \
        }                                                                                    \
    }
static const struct {
    const char *name;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, how, operand[OPERANDS];
} operations[OPERANDS] = {
    [X] = OPERATION("backward to the input", BACKWARD_DATA, BWD_DATA, DX, W, DY),
    [W] = OPERATION("backward to the weights", BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
    [Y] = OPERATION("forward", FORWARD, FORWARD, X, W, Y),
};

/* Builds a graph of one operation. */
static cudnnBackendDescriptor_t graph_of(cudnnHandle_t handle, const struct plan *p, int result)
{
    cudnnBackendDescriptor_t graph = part(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendDescriptor_t operation = part(operations[result].type);
    const float one = 1, none = 0;

    set(operation, operations[result].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(operation, operations[result].beta, CUDNN_TYPE_FLOAT, 1, &none);
    set_part(operation, operations[result].how, movement(&p->shape));
    for (int i = X; i < OPERANDS; i++) {
        set_part(operation, operations[result].operand[i], tensor(i + 1, p->of[i].size));
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
static cudnnBackendDescriptor_t plan_result(cudnnHandle_t handle, const struct plan *p, int result,
                                            size_t *bytes)
{
    const int64_t most = 2000000000; /* bytes, the same limit as Darknet's */
    const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t graph, proposal[PROPOSALS];
    cudnnStatus_t why = CUDNN_STATUS_NOT_SUPPORTED;

    status = CUDNN_STATUS_SUCCESS;
    graph = graph_of(handle, p, result);
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

/* Returns the floats of so many bytes in `room`, with the alignment of cudaMalloc(). */
static size_t place(size_t bytes)
{
    return (bytes / sizeof(float) + 64) / 64 * 64;
}

static size_t pixels_of(const struct operand *o)
{
    return (size_t)o->size[2] * (size_t)o->size[3];
}

static void make_plan(struct plan *p, const struct cmn_convolution *s)
{
    size_t bytes = 0, at = 0;

    *p = (struct plan){
        .shape = *s,
        .of = {[X] = {{s->batch, s->channels, s->height, s->width}, 0},
               [W] = {{s->filters, s->channels / s->groups, s->size, s->size}, 0},
               [Y] = {{s->batch, s->filters, s->out_height, s->out_width}, 0}},
    };
    for (int i = X; i < OPERANDS; i++) {
        struct operand *o = &p->of[i];
        o->at = at;
        at += place((size_t)o->size[0] * (size_t)o->size[1] * pixels_of(o) * sizeof(short));
        p->result[i] = plan_result(cudnn_handle(), p, i, &bytes);
        p->why[i] = status;
    }
    p->workspace = at;
    p->end = at + place(bytes);
}

/* Returns the plan of a shape, which it makes if needed. The search begins behind the plan that was
 * found last, so mostly it succeeds immediately. */
static struct plan *plan_of(const struct cmn_convolution *s)
{
    static size_t last;

    for (size_t i = 0; i < n_plans; i++) {
        last = (last + 1) % n_plans;
        if (!memcmp(&plans[last].shape, s, sizeof *s)) {
            return &plans[last];
        }
    }
    plans = cmn_realloc(plans, n_plans + 1, sizeof *plans);
    last = n_plans;
    make_plan(&plans[n_plans++], s);
    return &plans[last];
}

/* ---- operands ---- */

static void free_room(void)
{
    cmn_device_free(room); /* waits for all work that uses it */
    room = NULL;
    room_floats = 0;
}

static void make_room(size_t floats)
{
    if (floats > room_floats) {
        free_room();
        if (cmn_device_memory(&room, floats)) {
            cmn_fail_in("cmn_mixed=bf16");
            cmn_fatal_reason();
        }
        room_floats = floats;
    }
}

static void take(const struct plan *p, int i, const void *from)
{
    const struct operand *o = &p->of[i];

    cmn_kernel_channels_last(room + o->at, from, (size_t)o->size[0], (size_t)o->size[1],
                             pixels_of(o));
}

/* Computes the result and stores it, or adds it. */
static void give(const struct plan *p, int result, void *to, int add)
{
    const int64_t names[] = {X + 1, W + 1, Y + 1};
    void *const at[] = {room + p->of[X].at, room + p->of[W].at, room + p->of[Y].at};
    void *const workspace = room + p->workspace;
    const struct operand *o = &p->of[result];
    cudnnBackendDescriptor_t pack;

    require_cudnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    status = CUDNN_STATUS_SUCCESS;
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, OPERANDS, names);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, OPERANDS, at);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finish_part(pack);
    require_cudnn(status ? status : cudnnBackendExecute(cudnn_handle(), p->result[result], pack));
    cudnnBackendDestroyDescriptor(pack);
    cmn_kernel_channels_first(to, room + o->at, (size_t)o->size[0], (size_t)o->size[1],
                              pixels_of(o), add);
}

int cmn_convolve_gpu(const struct layer *l, enum cmn_convolution_result result, float *input,
                     float *output)
{
    struct cmn_tree_view view = cmn_tree_view(l);
    const struct cmn_convolution *s = &view.convolution;
    float *of[OPERANDS] = {input, result == CMN_WEIGHTS ? l->weight_updates_gpu : l->weights_gpu,
                           output};
    const void *there = result == CMN_INPUT ? delta : NULL;
    struct plan *p;

    delta = NULL;
    if (!in_bf16) {
        return 0;
    }
    p = plan_of(s);
    if (p->why[result]) { /* nobody asks for the first layer's input */
        cmn_say("cmn_mixed=bf16: cuDNN has no way for %d x %d x %d by %d filters of %d x %d "
                "(%s): 32 bits there (%s)",
                s->width, s->height, s->channels, s->filters, s->size, s->size,
                operations[result].name, cudnnGetErrorString(p->why[result]));
        p->why[result] = CUDNN_STATUS_SUCCESS;
    }
    if (!p->result[result]) {
        return 0;
    }
    make_room(p->end);
    for (int i = X; i < OPERANDS; i++) {
        if (i != (int)result && (i != Y || there != output)) {
            take(p, i, of[i]);
        }
    }
    if (result == CMN_WEIGHTS) {
        delta = output; /* if Darknet computes the gradient of the input at all, it does so next */
    }
    give(p, (int)result, of[result], result != CMN_OUTPUT);
    return 1;
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
    free_room();
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
