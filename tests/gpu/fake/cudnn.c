/* cuDNN on the CPU, over the stand-in's memory: queued behind Darknet's work, and done late.
 *
 * A descriptor that was not set or was destroyed, shapes that do not fit one another, memory that
 * is shorter than its shape, a workspace that is shorter than said or needed, and an output that
 * lies in an input end the process with a line. An algorithm that does not work says so. A convolution
 * has one type: factors are read in it, multiplied and added up in 32 bits, and the result is rounded to
 * it. None of these works in bf16: that is what graphs are for, on a GPU from Ampere on.
 *
 * Whoever asks for algorithms is told of six, the fastest first, as cuDNN does: one wants more
 * memory than the GPU has, one does not work, two do, each with its own kind of products (math),
 * and the last one does not work either. Which of the two is faster depends on the batch, and the
 * faster one for a single image wants more memory. FAKE_ALGORITHMS=none: none works; tensor: none
 * but that with tensor operations.
 *
 * Variance is that of cuDNN: divided by n to normalize, by n - 1 for the running one.
 * FAKE_VARIANCE=darknet: by n - 1 in both, as on Darknet's own path. */
#include <cblas.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn.h"
#include "cudnn_backend.h"
#include "fake.h"

enum { NOT_SET, SET, DESTROYED, ALGORITHMS = 6, NCCL_HALF = 6, NCCL_FLOAT = 7, NCCL_BF16 = 9 };

struct fake_dnn {
    int device;
};
struct fake_tensor {
    int state, type, n, c, h, w;
};
struct fake_filter {
    int state, type, k, c, h, w;
};
struct fake_convolution {
    int state, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, groups, math;
};
struct fake_pooling {
    int state;
};

/* ---- handles and descriptors: those that were destroyed stay, so that their use is seen ---- */

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    (*handle)->device = fake_current("cudnnCreate");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    fake_require_device(handle->device, "cudnnSetStream");
    return !stream || stream == cudaStreamLegacy ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                  : "CUDNN_STATUS_BAD_PARAM";
}

/* `state` of a descriptor that is to be set, or used. */
static void require(const int *state, int set, const char *who)
{
    if (!state || *state == DESTROYED || (set && *state != SET)) {
        fake_die("%s was given a descriptor that %s", who,
                 !state ? "is NULL" : (*state == DESTROYED ? "was destroyed" : "was never set"));
    }
}

static void require_positive(const int *numbers, int n, const char *who)
{
    for (int i = 0; i < n; i++) {
        if (numbers[i] < 1) {
            fake_die("%s was given a size of %d", who, numbers[i]);
        }
    }
}

static void require_type(cudnnDataType_t type, const char *who)
{
    if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16) {
        fake_die("%s was given a type of %d", who, (int)type);
    }
}

static cudnnStatus_t destroy(int *state, const char *who)
{
    require(state, 0, who);
    *state = DESTROYED;
    return CUDNN_STATUS_SUCCESS;
}

#define DESCRIPTOR(name, kind)                                        \
    cudnnStatus_t cudnnCreate##name(cudnn##name##_t *made)            \
    {                                                                 \
        *made = calloc(1, sizeof **made);                             \
        return CUDNN_STATUS_SUCCESS;                                  \
    }                                                                 \
    cudnnStatus_t cudnnDestroy##name(cudnn##name##_t it)              \
    {                                                                 \
        return destroy(it ? &it->state : NULL, "cudnnDestroy" #name); \
    }
DESCRIPTOR(TensorDescriptor, tensor)
DESCRIPTOR(FilterDescriptor, filter)
DESCRIPTOR(ConvolutionDescriptor, convolution)
DESCRIPTOR(PoolingDescriptor, pooling)

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    const char *who = "cudnnSetTensor4dDescriptor";

    (void)format;
    require(tensor ? &tensor->state : NULL, 0, who);
    require_positive((int[]){n, c, h, w}, 4, who);
    require_type(type, who);
    *tensor = (struct fake_tensor){SET, (int)type, n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    const char *who = "cudnnSetFilter4dDescriptor";

    (void)format;
    require(filter ? &filter->state : NULL, 0, who);
    require_positive((int[]){k, c, h, w}, 4, who);
    require_type(type, who);
    *filter = (struct fake_filter){SET, (int)type, k, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

/* Groups and kind of products may be set before the rest, and stay. */
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    const char *who = "cudnnSetConvolution2dDescriptor";
    struct fake_convolution *c = convolution;

    require(c ? &c->state : NULL, 0, who);
    require_positive((int[]){stride_h, stride_w, dilation_h, dilation_w, pad_h + 1, pad_w + 1}, 6,
                     who);
    *c = (struct fake_convolution){SET,        pad_h,      pad_w,     stride_h, stride_w,
                                   dilation_h, dilation_w, c->groups, c->math};
    return mode == CUDNN_CROSS_CORRELATION && compute == CUDNN_DATA_FLOAT ? CUDNN_STATUS_SUCCESS
                                                                          : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups)
{
    require(convolution ? &convolution->state : NULL, 0, "cudnnSetConvolutionGroupCount");
    require_positive(&groups, 1, "cudnnSetConvolutionGroupCount");
    convolution->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math)
{
    require(convolution ? &convolution->state : NULL, 0, "cudnnSetConvolutionMathType");
    convolution->math = (int)math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t nan, int h, int w, int pad_h,
                                          int pad_w, int stride_h, int stride_w)
{
    const char *who = "cudnnSetPooling2dDescriptor";

    (void)mode;
    (void)nan;
    require(pooling ? &pooling->state : NULL, 0, who);
    require_positive((int[]){h, w, stride_h, stride_w, pad_h + 1, pad_w + 1}, 6, who);
    pooling->state = SET;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- convolutions ---- */

enum operation { DATA, FILTER, FORWARD };

struct problem {
    struct fake_tensor x, y;
    struct fake_filter w;
    struct fake_convolution how;
};

static int length(int input, int pad, int size, int stride, int dilation)
{
    return (input + 2 * pad - (dilation * (size - 1) + 1)) / stride + 1;
}

static struct problem problem_of(const struct fake_tensor *x, const struct fake_filter *w,
                                 const struct fake_convolution *how, const struct fake_tensor *y,
                                 const char *who)
{
    struct problem p;
    int groups, h, width;

    require(x ? &x->state : NULL, 1, who);
    require(w ? &w->state : NULL, 1, who);
    require(how ? &how->state : NULL, 1, who);
    require(y ? &y->state : NULL, 1, who);
    p = (struct problem){*x, *y, *w, *how};
    groups = p.how.groups = how->groups ? how->groups : 1;
    h = length(x->h, how->pad_h, w->h, how->stride_h, how->dilation_h);
    width = length(x->w, how->pad_w, w->w, how->stride_w, how->dilation_w);
    if (x->c != w->c * groups || w->k % groups || y->n != x->n || y->c != w->k || y->h != h ||
        y->w != width || x->type != w->type || x->type != y->type) {
        fake_die("%s: %d filters of %d x %d x %d in %d groups do not make of %d x %d x %d images "
                 "%d x %d x %d",
                 who, w->k, w->c, w->h, w->w, groups, x->c, x->h, x->w, y->c, y->h, y->w);
    }
    return p;
}

static size_t size_of(int type)
{
    return type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(short);
}

static size_t tensor_bytes(const struct fake_tensor *t)
{
    return (size_t)t->n * (size_t)t->c * (size_t)t->h * (size_t)t->w * size_of(t->type);
}

static size_t filter_bytes(const struct fake_filter *f)
{
    return (size_t)f->k * (size_t)f->c * (size_t)f->h * (size_t)f->w * size_of(f->type);
}

cudnnStatus_t cudnnGetTensor4dDescriptor(const cudnnTensorDescriptor_t tensor,
                                         cudnnDataType_t *type, int *n, int *c, int *h, int *w,
                                         int *n_step, int *c_step, int *h_step, int *w_step)
{
    require(tensor ? &tensor->state : NULL, 1, __func__);
    *type = (cudnnDataType_t)tensor->type;
    *n = tensor->n;
    *c = tensor->c;
    *h = tensor->h;
    *w = *h_step = tensor->w;
    *c_step = *h * *w;
    *n_step = *c * *c_step;
    *w_step = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilter4dDescriptor(const cudnnFilterDescriptor_t filter,
                                         cudnnDataType_t *type, cudnnTensorFormat_t *format, int *k,
                                         int *c, int *h, int *w)
{
    require(filter ? &filter->state : NULL, 1, __func__);
    *type = (cudnnDataType_t)filter->type;
    *format = CUDNN_TENSOR_NCHW;
    *k = filter->k;
    *c = filter->c;
    *h = filter->h;
    *w = filter->w;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dDescriptor(const cudnnConvolutionDescriptor_t convolution,
                                              int *pad_h, int *pad_w, int *stride_h, int *stride_w,
                                              int *dilation_h, int *dilation_w,
                                              cudnnConvolutionMode_t *mode,
                                              cudnnDataType_t *compute)
{
    const struct fake_convolution *c = convolution;

    require(c ? &c->state : NULL, 1, __func__);
    *pad_h = c->pad_h;
    *pad_w = c->pad_w;
    *stride_h = c->stride_h;
    *stride_w = c->stride_w;
    *dilation_h = c->dilation_h;
    *dilation_w = c->dilation_w;
    *mode = CUDNN_CROSS_CORRELATION;
    *compute = CUDNN_DATA_FLOAT;
    return CUDNN_STATUS_SUCCESS;
}

struct algorithm {
    int algo, status, math;
    size_t memory;
    float time;
};

/* Whether an algorithm with this kind of products does, of those that might. */
static int works(const struct problem *p, int math, const char *which)
{
    return strcmp(which, "none") && (math == CUDNN_TENSOR_OP_MATH || strcmp(which, "tensor")) &&
           p->x.type != CUDNN_DATA_BFLOAT16;
}

/* Algorithm 1 with its tensor operations needs a copy of the weights; 0 all that one filter sees of
 * an image. */
static void algorithms(const struct problem *p, struct algorithm all[ALGORITHMS])
{
    enum { FFT = 2, TILING = 4, DIRECT = 3 };
    static const size_t too_much = 3000000000;
    const char *which = getenv("FAKE_ALGORITHMS");
    struct algorithm small = {1, 0, CUDNN_TENSOR_OP_MATH, filter_bytes(&p->w), 0};
    struct algorithm large = {0, 0, CUDNN_FMA_MATH,
                              (size_t)p->y.h * (size_t)p->y.w * (size_t)p->w.c * (size_t)p->w.h *
                                      (size_t)p->w.w * size_of(p->x.type) * 2 +
                                  filter_bytes(&p->w),
                              0};

    all[0] = (struct algorithm){FFT, 0, CUDNN_DEFAULT_MATH, too_much, 0};
    all[1] = (struct algorithm){TILING, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_TENSOR_OP_MATH, 0, 0};
    all[2] = p->x.n == 1 ? large : small;
    all[3] = p->x.n == 1 ? small : large;
    all[4] = (struct algorithm){1, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_DEFAULT_MATH, 0, 0};
    all[5] = (struct algorithm){DIRECT, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_DEFAULT_MATH, 0, 0};
    for (int i = 0; i < ALGORITHMS; i++) {
        if (!works(p, all[i].math, which ? which : "")) {
            all[i].status = CUDNN_STATUS_NOT_SUPPORTED;
        }
        all[i].time = all[i].status ? -1 : 0.1F * (float)(i + 1);
    }
}

/* The one that has this number and the descriptor's kind of products; NULL: it does not work. */
static const struct algorithm *the_algorithm(const struct problem *p, int algo,
                                             struct algorithm all[ALGORITHMS])
{
    algorithms(p, all);
    for (int i = 0; i < ALGORITHMS; i++) {
        if (all[i].algo == algo && all[i].math == p->how.math && !all[i].status) {
            return &all[i];
        }
    }
    return NULL;
}

static cudnnStatus_t workspace(const struct problem *p, int algo, size_t *bytes)
{
    struct algorithm all[ALGORITHMS];
    const struct algorithm *it = the_algorithm(p, algo, all);

    *bytes = it ? it->memory : 0;
    return it ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

#define FINDERS(which, kind, a, b, d, x, w, y)                                                   \
    cudnnStatus_t cudnnGetConvolution##which##AlgorithmMaxCount(cudnnHandle_t handle, int *most) \
    {                                                                                            \
        fake_require_device(handle->device, "cudnnGetConvolution" #which "AlgorithmMaxCount");   \
        *most = 2 * ALGORITHMS;                                                                  \
        return CUDNN_STATUS_SUCCESS;                                                             \
    }                                                                                            \
    cudnnStatus_t cudnnGetConvolution##which##Algorithm_v7(                                      \
        cudnnHandle_t handle, a first, b second, cudnnConvolutionDescriptor_t convolution,       \
        d third, int most, int *n, kind##AlgoPerf_t *found)                                      \
    {                                                                                            \
        const char *who = "cudnnGetConvolution" #which "Algorithm_v7";                           \
        struct problem p = problem_of(x, w, convolution, y, who);                                \
        struct algorithm all[ALGORITHMS];                                                        \
                                                                                                 \
        fake_require_device(handle->device, who);                                                \
        algorithms(&p, all);                                                                     \
        for (*n = 0; *n < most && *n < ALGORITHMS; ++*n) {                                       \
            const struct algorithm *it = &all[*n];                                               \
            found[*n] = (kind##AlgoPerf_t){                                                      \
                (kind##Algo_t)it->algo, (cudnnStatus_t)it->status, it->time, it->memory,         \
                CUDNN_DETERMINISTIC,    (cudnnMathType_t)it->math, {0}};                         \
        }                                                                                        \
        return CUDNN_STATUS_SUCCESS;                                                             \
    }                                                                                            \
    cudnnStatus_t cudnnGetConvolution##which##WorkspaceSize(                                     \
        cudnnHandle_t handle, a first, b second, cudnnConvolutionDescriptor_t convolution,       \
        d third, kind##Algo_t algo, size_t *bytes)                                               \
    {                                                                                            \
        const char *who = "cudnnGetConvolution" #which "WorkspaceSize";                          \
        struct problem p = problem_of(x, w, convolution, y, who);                                \
                                                                                                 \
        fake_require_device(handle->device, who);                                                \
        return workspace(&p, (int)algo, bytes);                                                  \
    }
FINDERS(Forward, cudnnConvolutionFwd, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
        cudnnTensorDescriptor_t, first, second, third)
FINDERS(BackwardData, cudnnConvolutionBwdData, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
        cudnnTensorDescriptor_t, third, first, second)
FINDERS(BackwardFilter, cudnnConvolutionBwdFilter, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
        cudnnFilterDescriptor_t, first, third, second)

/* The operands are images, filters, and what becomes of them, or their gradients. An operation computes
 * that of its number. */
enum { X, W, Y, OPERANDS };

struct convolution {
    enum operation operation;
    struct problem p;
    float alpha, beta;
    void *operand[OPERANDS], *workspace;
    size_t needed;
    int tf32;          /* factors are rounded */
    int channels_last; /* in memory */
};

static int nccl_type(int type)
{
    return type == CUDNN_DATA_HALF ? NCCL_HALF
                                   : (type == CUDNN_DATA_BFLOAT16 ? NCCL_BF16 : NCCL_FLOAT);
}

/* A copy of n numbers as floats, or n zeros. */
static float *floats(const void *from, size_t n, int type)
{
    float *to = calloc(n + 1, sizeof *to);

    for (size_t i = 0; from && i < n; i++) {
        to[i] = fake_widen(from, i, nccl_type(type));
    }
    return to;
}

/* The same numbers in the other order of channels (c) and pixels; frees x. */
static float *reordered(float *x, size_t n, int c, int pixels, int to_first)
{
    float *to = calloc(n + 1, sizeof *to);
    size_t image = (size_t)c * (size_t)pixels;

    for (size_t i = 0; i < n; i++) {
        size_t first = i % image,
               last = first % (size_t)pixels * (size_t)c + first / (size_t)pixels;
        size_t base = i - first;
        to[to_first ? i : base + last] = x[to_first ? base + last : i];
    }
    free(x);
    return to;
}

static int has_tf32(void)
{
    struct cudaDeviceProp properties;

    cudaGetDeviceProperties(&properties, fake_current("TF32"));
    return properties.major >= 8;
}

static void round_to_tf32(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits = (bits + 0x1000) & ~0x1fffU;
        memcpy(x + i, &bits, sizeof bits);
    }
}

/* to = alpha * result + beta * to, where beta = 0 reads nothing. */
static void blend(void *to, const float *result, size_t n, int type, float alpha, float beta)
{
    for (size_t i = 0; i < n; i++) {
        float old = beta == 0 ? 0 : beta * fake_widen(to, i, nccl_type(type));
        fake_narrow(to, i, alpha * result[i] + old, nccl_type(type));
    }
}

/* Columns of what each number of the output sees in the image, or back: added to the image. */
static void columns(const struct problem *p, float *image, float *column, int back)
{
    const struct fake_convolution *c = &p->how;
    size_t at = 0;

    for (int k = 0; k < p->w.c * p->w.h * p->w.w; k++) {
        int down = k / p->w.w % p->w.h * c->dilation_h - c->pad_h;
        int across = k % p->w.w * c->dilation_w - c->pad_w;
        float *plane = image + (size_t)(k / p->w.w / p->w.h) * (size_t)(p->x.h * p->x.w);
        for (int i = 0; i < p->y.h; i++) {
            for (int j = 0; j < p->y.w; j++, at++) {
                int row = i * c->stride_h + down, x = j * c->stride_w + across;
                int inside = row >= 0 && row < p->x.h && x >= 0 && x < p->x.w;
                if (!back) {
                    column[at] = inside ? plane[row * p->x.w + x] : 0;
                } else if (inside) {
                    plane[row * p->x.w + x] += column[at];
                }
            }
        }
    }
}

static void multiply(const struct problem *p, enum operation operation, float *const number[])
{
    int groups = p->how.groups, m = p->w.k / groups, k = p->w.c * p->w.h * p->w.w;
    int n = p->y.h * p->y.w;
    float *column = malloc(sizeof *column * (size_t)k * (size_t)n);

    for (int i = 0; i < p->x.n * groups; i++) {
        float *image = number[X] + (size_t)i * (size_t)(p->w.c * p->x.h * p->x.w);
        float *out = number[Y] + (size_t)i * (size_t)(m * n);
        float *weights = number[W] + (size_t)(i % groups) * (size_t)(m * k);
        if (operation == DATA) {
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, n, m, 1, weights, k, out, n, 0,
                        column, n);
            columns(p, image, column, 1);
            continue;
        }
        columns(p, image, column, 0);
        if (operation == FORWARD) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, weights, k, column,
                        n, 0, out, n);
        } else {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, k, n, 1, out, n, column, n, 1,
                        weights, k);
        }
    }
    free(column);
}

static void run_convolution(void *arguments)
{
    struct convolution *c = arguments;
    const struct problem *p = &c->p;
    const int channels[] = {p->x.c, p->w.c, p->y.c}, type = p->x.type, to = (int)c->operation;
    const int pixels[] = {p->x.h * p->x.w, p->w.h * p->w.w, p->y.h * p->y.w};
    const size_t n[] = {tensor_bytes(&p->x) / size_of(type), filter_bytes(&p->w) / size_of(type),
                        tensor_bytes(&p->y) / size_of(type)};
    float *number[OPERANDS];

    for (int i = 0; i < OPERANDS; i++) {
        number[i] = floats(i == to ? NULL : c->operand[i], n[i], type);
        number[i] =
            c->channels_last ? reordered(number[i], n[i], channels[i], pixels[i], 1) : number[i];
        if (c->tf32) {
            round_to_tf32(number[i], n[i]);
        }
    }
    if (c->workspace) {
        memset(c->workspace, 0xff, c->needed);
    }
    multiply(p, c->operation, number);
    if (c->channels_last) {
        number[to] = reordered(number[to], n[to], channels[to], pixels[to], 0);
    }
    blend(c->operand[to], number[to], n[to], type, c->alpha, c->beta);
    for (int i = 0; i < OPERANDS; i++) {
        free(number[i]);
    }
}

static void refuse_overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes,
                           const char *who)
{
    if (a < b + b_bytes && b < a + a_bytes) {
        fake_die("%s: what it writes lies in what it reads", who);
    }
}

static cudnnStatus_t queue(struct convolution *c, const char *who, const void *x, const void *w,
                           const void *y, void *space, size_t bytes)
{
    const void *given[] = {x, w, y};
    const size_t of[] = {tensor_bytes(&c->p.x), filter_bytes(&c->p.w), tensor_bytes(&c->p.y)};
    const int to = (int)c->operation;

    c->workspace = fake_device(space, bytes, who);
    for (int i = 0; i < OPERANDS; i++) {
        c->operand[i] = fake_device(given[i], of[i], who);
        if (!given[i]) {
            fake_die("%s was given NULL for a tensor", who);
        }
    }
    for (int i = 0; i < OPERANDS; i++) {
        if (i != to) {
            refuse_overlap(c->operand[to], of[to], c->operand[i], of[i], who);
        }
        refuse_overlap(c->workspace, c->needed, c->operand[i], of[i], who);
    }
    fake_load(who);
    fake_call(who, run_convolution, c, sizeof *c);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t convolve(enum operation operation, const char *who, cudnnHandle_t handle,
                              const void *alpha, const void *beta, const struct problem *p,
                              int algo, const void *x, const void *w, const void *y, void *space,
                              size_t bytes)
{
    struct convolution c = {.operation = operation, .p = *p};
    struct algorithm all[ALGORITHMS];
    const struct algorithm *it = the_algorithm(p, algo, all);

    fake_require_device(handle->device, who);
    c.alpha = *(const float *)alpha;
    c.beta = *(const float *)beta;
    if (!it) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    if (bytes < it->memory || (it->memory && !space)) {
        fake_die("%s: algorithm %d with math %d needs a workspace of %zu bytes, and was given %zu",
                 who, algo, it->math, it->memory, space ? bytes : 0);
    }
    c.needed = it->memory;
    c.tf32 = p->x.type == CUDNN_DATA_FLOAT && it->math != CUDNN_FMA_MATH && has_tf32();
    return queue(&c, who, x, w, y, space, bytes);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t x_shape, const void *x,
                                      cudnnFilterDescriptor_t w_shape, const void *w,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algo, void *workspace_,
                                      size_t bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_shape, void *y)
{
    struct problem p = problem_of(x_shape, w_shape, convolution, y_shape, __func__);

    return convolve(FORWARD, __func__, handle, alpha, beta, &p, (int)algo, x, w, y, workspace_,
                    bytes);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t w_shape, const void *w,
                                           cudnnTensorDescriptor_t dy_shape, const void *dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *workspace_,
                                           size_t bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx_shape, void *dx)
{
    struct problem p = problem_of(dx_shape, w_shape, convolution, dy_shape, __func__);

    return convolve(DATA, __func__, handle, alpha, beta, &p, (int)algo, dx, w, dy, workspace_,
                    bytes);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x_shape, const void *x,
                                             cudnnTensorDescriptor_t dy_shape, const void *dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *workspace_,
                                             size_t bytes, const void *beta,
                                             cudnnFilterDescriptor_t dw_shape, void *dw)
{
    struct problem p = problem_of(x_shape, dw_shape, convolution, dy_shape, __func__);

    return convolve(FILTER, __func__, handle, alpha, beta, &p, (int)algo, x, dw, dy, workspace_,
                    bytes);
}

struct biases {
    struct fake_tensor shape; /* of dy */
    float alpha, beta;
    void *dy, *db;
};

static void run_biases(void *arguments)
{
    const struct biases *b = arguments;
    const struct fake_tensor *t = &b->shape;
    size_t plane = (size_t)t->h * (size_t)t->w, n = (size_t)t->n * (size_t)t->c * plane;
    float *dy = floats(b->dy, n, t->type), *sum = floats(NULL, (size_t)t->c, t->type);

    for (size_t i = 0; i < n; i++) {
        sum[i / plane % (size_t)t->c] += dy[i];
    }
    blend(b->db, sum, (size_t)t->c, t->type, b->alpha, b->beta);
    free(dy);
    free(sum);
}

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha,
                                           cudnnTensorDescriptor_t dy_shape, const void *dy,
                                           const void *beta, cudnnTensorDescriptor_t db_shape,
                                           void *db)
{
    const struct fake_tensor *y = dy_shape, *d = db_shape;
    struct biases b = {.alpha = *(const float *)alpha, .beta = *(const float *)beta};

    fake_require_device(handle->device, __func__);
    require(y ? &y->state : NULL, 1, __func__);
    require(d ? &d->state : NULL, 1, __func__);
    if (d->n != 1 || d->c != y->c || d->h != 1 || d->w != 1 || d->type != y->type) {
        fake_die("%s: images of %d channels do not have %d x %d x %d x %d biases", __func__, y->c,
                 d->n, d->c, d->h, d->w);
    }
    b.shape = *y;
    b.dy = fake_device(dy, tensor_bytes(y), __func__);
    b.db = fake_device(db, tensor_bytes(d), __func__);
    if (!b.dy || !b.db) {
        fake_die("%s was given NULL for a tensor", __func__);
    }
    refuse_overlap(b.db, tensor_bytes(d), b.dy, tensor_bytes(y), __func__);
    fake_load(__func__);
    fake_call(__func__, run_biases, &b, sizeof b);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- batch normalisation ---- */

struct normalisation {
    struct fake_tensor shape;
    float alpha, beta, alpha_sums, beta_sums;
    double factor, epsilon;
    void *x, *y, *dy; /* dy: NULL in the forward pass */
    float *scale, *bias, *mean, *inverse, *running_mean, *running_variance, *d_scale, *d_bias;
};

/* Mean of a channel, and one divided by its deviation; the running ones follow. */
static void set_statistics(const struct normalisation *b, int channel, double n, double mean,
                           double squares)
{
    const char *divisor = getenv("FAKE_VARIANCE");
    double unbiased = squares / (n > 1 ? n - 1 : 1);

    b->mean[channel] = (float)mean;
    b->inverse[channel] =
        (float)(1 / sqrt((divisor && !strcmp(divisor, "darknet") ? unbiased : squares / n) +
                         b->epsilon));
    b->running_mean[channel] =
        (float)((1 - b->factor) * b->running_mean[channel] + b->factor * mean);
    b->running_variance[channel] =
        (float)((1 - b->factor) * b->running_variance[channel] + b->factor * unbiased);
}

static void run_normalisation(void *arguments)
{
    const struct normalisation *b = arguments;
    const struct fake_tensor *t = &b->shape;
    size_t plane = (size_t)t->h * (size_t)t->w, n = (size_t)t->n * (size_t)t->c * plane;
    float *x = floats(b->x, n, t->type), *dy = floats(b->dy, n, t->type), *y = floats(NULL, n, 0);
    double count = (double)t->n * (double)plane, *sum = calloc((size_t)t->c, sizeof *sum),
           *product = calloc((size_t)t->c, sizeof *product);

    for (size_t i = 0; i < n; i++) {
        sum[i / plane % (size_t)t->c] += b->dy ? dy[i] : x[i];
    }
    for (size_t i = 0; i < n; i++) {
        size_t c = i / plane % (size_t)t->c;
        double off = x[i] - (b->dy ? (double)b->mean[c] : sum[c] / count);
        product[c] += b->dy ? dy[i] * off * b->inverse[c] : off * off;
    }
    for (int c = 0; c < t->c; c++) {
        if (!b->dy) {
            set_statistics(b, c, count, sum[c] / count, product[c]);
            continue;
        }
        blend(b->d_bias + c, &(float){(float)sum[c]}, 1, CUDNN_DATA_FLOAT, b->alpha_sums,
              b->beta_sums);
        blend(b->d_scale + c, &(float){(float)product[c]}, 1, CUDNN_DATA_FLOAT, b->alpha_sums,
              b->beta_sums);
    }
    for (size_t i = 0; i < n; i++) {
        size_t c = i / plane % (size_t)t->c;
        double normal = (double)(x[i] - b->mean[c]) * b->inverse[c];
        y[i] = b->dy ? (float)((double)b->scale[c] * b->inverse[c] *
                               (dy[i] - (sum[c] + normal * product[c]) / count))
                     : (float)(b->scale[c] * normal + b->bias[c]);
    }
    blend(b->y, y, n, t->type, b->alpha, b->beta);
    free(x);
    free(dy);
    free(y);
    free(sum);
    free(product);
}

/* What both passes are given alike. */
static struct normalisation normalisation_of(cudnnHandle_t handle, const void *alpha,
                                             const void *beta, const struct fake_tensor *x_shape,
                                             const void *x, const struct fake_tensor *y_shape,
                                             void *y, const struct fake_tensor *channels,
                                             const void *scale, double epsilon, const void *mean,
                                             const void *inverse, const char *who)
{
    struct normalisation b = {.epsilon = epsilon};
    size_t bytes;

    fake_require_device(handle->device, who);
    require(x_shape ? &x_shape->state : NULL, 1, who);
    require(y_shape ? &y_shape->state : NULL, 1, who);
    require(channels ? &channels->state : NULL, 1, who);
    if (memcmp(x_shape, y_shape, sizeof *x_shape) || channels->n != 1 ||
        channels->c != x_shape->c || channels->h != 1 || channels->w != 1 ||
        channels->type != CUDNN_DATA_FLOAT || epsilon < 0) {
        fake_die("%s: shapes that do not fit one another, or an epsilon of %g", who, epsilon);
    }
    bytes = tensor_bytes(channels);
    b.shape = *x_shape;
    b.alpha = *(const float *)alpha;
    b.beta = *(const float *)beta;
    b.x = fake_device(x, tensor_bytes(x_shape), who);
    b.y = fake_device(y, tensor_bytes(y_shape), who);
    b.scale = fake_device(scale, bytes, who);
    b.mean = fake_device(mean, bytes, who);
    b.inverse = fake_device(inverse, bytes, who);
    if (!b.x || !b.y || !b.scale || !b.mean || !b.inverse) {
        fake_die("%s was given NULL for a tensor", who);
    }
    return b;
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    cudnnTensorDescriptor_t x_shape, const void *x, cudnnTensorDescriptor_t y_shape, void *y,
    cudnnTensorDescriptor_t channels, const void *scale, const void *bias, double factor,
    void *running_mean, void *running_variance, double epsilon, void *saved_mean,
    void *saved_inverse)
{
    struct normalisation b = normalisation_of(handle, alpha, beta, x_shape, x, y_shape, y, channels,
                                              scale, epsilon, saved_mean, saved_inverse, __func__);
    size_t bytes = tensor_bytes(channels);

    b.factor = factor;
    b.bias = fake_device(bias, bytes, __func__);
    b.running_mean = fake_device(running_mean, bytes, __func__);
    b.running_variance = fake_device(running_variance, bytes, __func__);
    if (!b.bias || !b.running_mean || !b.running_variance) {
        fake_die("%s was given NULL for statistics", __func__);
    }
    fake_load(__func__);
    fake_call(__func__, run_normalisation, &b, sizeof b);
    return mode == CUDNN_BATCHNORM_SPATIAL ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const void *alpha_sums, const void *beta_sums, cudnnTensorDescriptor_t x_shape, const void *x,
    cudnnTensorDescriptor_t dy_shape, const void *dy, cudnnTensorDescriptor_t dx_shape, void *dx,
    cudnnTensorDescriptor_t channels, const void *scale, void *d_scale, void *d_bias,
    double epsilon, const void *saved_mean, const void *saved_inverse)
{
    struct normalisation b =
        normalisation_of(handle, alpha, beta, x_shape, x, dx_shape, dx, channels, scale, epsilon,
                         saved_mean, saved_inverse, __func__);
    size_t bytes = tensor_bytes(channels);

    require(dy_shape ? &dy_shape->state : NULL, 1, __func__);
    b.alpha_sums = *(const float *)alpha_sums;
    b.beta_sums = *(const float *)beta_sums;
    b.d_scale = fake_device(d_scale, bytes, __func__);
    b.d_bias = fake_device(d_bias, bytes, __func__);
    b.dy = fake_device(dy, tensor_bytes(dy_shape), __func__);
    if (memcmp(x_shape, dy_shape, sizeof *x_shape) || !b.dy || !b.d_scale || !b.d_bias) {
        fake_die("%s: the gradients have another shape than the images, or none", __func__);
    }
    fake_load(__func__);
    fake_call(__func__, run_normalisation, &b, sizeof b);
    return mode == CUDNN_BATCHNORM_SPATIAL ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

/* ---- graphs of one convolution: bf16, channels last ----
 *
 * Proposals are asked for twice. Of the first three one has no plan, one wants more memory than the GPU
 * has, one works; FAKE_GRAPHS=none: none works, and FALLBACK: none but that of the second time. A part that was
 * not finished, an attribute that is missing, and a tensor whose channels do not come last end the process. */

enum { ATTRIBUTES = 12, WIDEST = 16, NO_PLAN = 0, TOO_LARGE, WORKS, PROPOSED };

struct fake_part {
    int type, state, proposal, n;
    cudnnBackendDescriptor_t graph;
    struct {
        int name, type;
        int64_t n;
        char values[WIDEST * sizeof(int64_t)];
    } attribute[ATTRIBUTES];
};

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *made)
{
    *made = calloc(1, sizeof **made);
    (*made)->type = (int)type;
    fake.alive++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t it)
{
    fake.alive--;
    return destroy(&it->state, __func__);
}

static size_t width(int type)
{
    return type == CUDNN_TYPE_FLOAT || type == CUDNN_TYPE_DATA_TYPE ||
                   type == CUDNN_TYPE_CONVOLUTION_MODE || type == CUDNN_TYPE_HEUR_MODE
               ? sizeof(int)
               : sizeof(int64_t);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t it,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    if (it->state != NOT_SET || it->n == ATTRIBUTES || n < 1 || n > WIDEST) {
        fake_die("%s: attribute %d of a part of type %d comes too late, or is too large", __func__,
                 (int)name, it->type);
    }
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        require(&(*(const cudnnBackendDescriptor_t *)values)->state, 1, __func__);
    }
    it->attribute[it->n].name = (int)name;
    it->attribute[it->n].type = (int)type;
    it->attribute[it->n].n = n;
    memcpy(it->attribute[it->n].values, values, (size_t)n * width((int)type));
    it->n++;
    return CUDNN_STATUS_SUCCESS;
}

static const void *attribute(cudnnBackendDescriptor_t of, int name, int type, int64_t n)
{
    for (int i = 0; i < of->n; i++) {
        if (of->attribute[i].name == name) {
            if (of->attribute[i].type != type || of->attribute[i].n != n) {
                fake_die("attribute %d of a part of type %d has another type or length", name,
                         of->type);
            }
            return of->attribute[i].values;
        }
    }
    fake_die("attribute %d of a part of type %d was not set", name, of->type);
    return NULL;
}

static const int64_t *numbers(cudnnBackendDescriptor_t of, int name, int n)
{
    return attribute(of, name, CUDNN_TYPE_INT64, n);
}

static cudnnBackendDescriptor_t part_of(cudnnBackendDescriptor_t of, int name)
{
    cudnnBackendDescriptor_t it =
        *(const cudnnBackendDescriptor_t *)attribute(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1);

    require(&it->state, 1, "a graph");
    return it;
}

static void read_tensor(cudnnBackendDescriptor_t it, int64_t name, int size[4])
{
    const int64_t *n = numbers(it, CUDNN_ATTR_TENSOR_DIMENSIONS, 4);
    const int64_t *step = numbers(it, CUDNN_ATTR_TENSOR_STRIDES, 4);
    const int *type = attribute(it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1);

    if (step[1] != 1 || step[3] != n[1] || step[2] != n[1] * n[3] || step[0] != step[2] * n[2] ||
        *type != CUDNN_DATA_BFLOAT16 || *numbers(it, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1) != name ||
        *numbers(it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1) != 16) {
        fake_die("tensor %d of a graph is no bf16 with channels last", (int)name);
    }
    for (int i = 0; i < 4; i++) {
        size[i] = (int)n[i];
    }
}

/* What an operation with that result calls its attributes; tensors in the order x, w, y. */
static const struct {
    int type, alpha, how, tensor[3];
    enum operation operation;
} graph_operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
     FORWARD},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
     DATA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
     FILTER},
};

static struct convolution convolution_of(cudnnBackendDescriptor_t graph)
{
    cudnnBackendDescriptor_t operation = part_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS), how;
    struct convolution c = {.alpha = 1, .channels_last = 1};
    struct fake_convolution movement = {.state = SET};
    struct fake_tensor x = {.state = SET, .type = CUDNN_DATA_BFLOAT16}, y = x;
    struct fake_filter w = {.state = SET, .type = CUDNN_DATA_BFLOAT16};
    const int64_t *pad, *behind, *stride, *dilation;
    int size[3][4], i = 0;

    while (graph_operations[i].type != operation->type) {
        i++;
    }
    if (*(const float *)attribute(operation, graph_operations[i].alpha, CUDNN_TYPE_FLOAT, 1) != 1 ||
        *(const float *)attribute(operation, graph_operations[i].alpha + 1, CUDNN_TYPE_FLOAT, 1) !=
            0) {
        fake_die("a graph has other factors than 1 and 0");
    }
    for (int k = 0; k < 3; k++) {
        read_tensor(part_of(operation, graph_operations[i].tensor[k]), k + 1, size[k]);
    }
    how = part_of(operation, graph_operations[i].how);
    pad = numbers(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2);
    behind = numbers(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2);
    stride = numbers(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2);
    dilation = numbers(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2);
    if (*numbers(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1) != 2 ||
        memcmp(pad, behind, 16) != 0 ||
        *(const int *)attribute(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1) !=
            CUDNN_DATA_FLOAT ||
        *(const int *)attribute(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                1) != CUDNN_CROSS_CORRELATION) {
        fake_die("a graph's convolution is none of Darknet's");
    }
    x.n = size[0][0], x.c = size[0][1], x.h = size[0][2], x.w = size[0][3];
    w.k = size[1][0], w.c = size[1][1], w.h = size[1][2], w.w = size[1][3];
    y.n = size[2][0], y.c = size[2][1], y.h = size[2][2], y.w = size[2][3];
    movement.pad_h = (int)pad[0], movement.pad_w = (int)pad[1];
    movement.stride_h = (int)stride[0], movement.stride_w = (int)stride[1];
    movement.dilation_h = (int)dilation[0], movement.dilation_w = (int)dilation[1];
    movement.groups = x.c / w.c;
    c.operation = graph_operations[i].operation;
    c.p = problem_of(&x, &w, &movement, &y, "a graph");
    c.needed = filter_bytes(&w);
    return c;
}

static int64_t graph_bytes(cudnnBackendDescriptor_t proposal)
{
    return proposal->proposal == TOO_LARGE ? 3000000000
                                           : (int64_t)convolution_of(proposal->graph).needed;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t it)
{
    const char *which = getenv("FAKE_GRAPHS");
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    which = which ? which : "";
    if (it->state != NOT_SET) {
        fake_die("%s: a part was finished before, or destroyed", __func__);
    }
    if (it->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
        convolution_of(it);
    }
    if (it->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        cudnnBackendDescriptor_t proposal = part_of(it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        const cudnnHandle_t *handle =
            attribute(it, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1);
        fake_require_device((*handle)->device, __func__);
        if (proposal->proposal == NO_PLAN || !strcmp(which, "none") || !has_tf32()) {
            status = CUDNN_STATUS_NOT_SUPPORTED;
        }
    }
    it->state = status ? NOT_SET : SET;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t it,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *n,
                                       void *values)
{
    const char *which = getenv("FAKE_GRAPHS");
    int fallback;

    require(&it->state, 1, __func__);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && most == 1) {
        *(int64_t *)values = graph_bytes(part_of(it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
        *n = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS || type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        fake_die("%s: nothing is known of attribute %d", __func__, (int)name);
    }
    fallback = *(const int *)attribute(it, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1) ==
               CUDNN_HEUR_MODE_FALLBACK;
    *n = fallback ? 1 : which && !strcmp(which, "FALLBACK") ? PROPOSED - 1 : PROPOSED;
    for (int64_t i = 0; i < *n && i < most; i++) {
        cudnnBackendDescriptor_t proposal = ((cudnnBackendDescriptor_t *)values)[i];
        proposal->graph = part_of(it, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        proposal->proposal = fallback ? WORKS : (int)i;
        proposal->state = SET;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    cudnnBackendDescriptor_t proposal;
    struct convolution c;
    const int64_t *names;
    void *const *tensor, *space;

    fake_require_device(handle->device, __func__);
    require(&plan->state, 1, __func__);
    require(&pack->state, 1, __func__);
    proposal = part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    c = convolution_of(proposal->graph);
    names = numbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3);
    tensor = attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3);
    space =
        *(void *const *)attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1);
    for (int i = 0; i < 3; i++) {
        if (names[i] != i + 1 || (uintptr_t)tensor[i] % 16) {
            fake_die("%s: tensor %d has another name, or lies at an odd place", __func__, i + 1);
        }
    }
    return queue(&c, __func__, tensor[0], tensor[1], tensor[2], space, c.needed);
}
