/* cuDNN on the CPU, over the stand-in's memory: queued behind Darknet's work, and done late. A
 * descriptor that was not set or was destroyed, shapes that do not fit one another, memory that is
 * shorter than its shape, a workspace that is shorter than said or needed, and an output that lies
 * in an input end the process with a line. An algorithm that does not work says so. A convolution
 * has one type: factors are read in it, multiplied and added up in 32 bits, and the result is
 * rounded to it. bf16 is a matter of graphs, on a GPU from Ampere on.
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

#define TOO_MUCH 3000000000 /* bytes, more than the GPU has */

enum { NOT_SET, SET, DESTROYED, ALGORITHMS = 6 };

struct fake_dnn {
    int device;
};
/* A descriptor begins with its state. That of filters has their number in place of the images'. */
struct fake_tensor {
    int state, type, n, c, h, w;
};
struct fake_convolution {
    int state, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, groups, math;
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

static void require(const void *descriptor, const char *who)
{
    if (!descriptor || *(const int *)descriptor != SET) {
        fake_die("%s was given a descriptor that is NULL, was never set, or was destroyed", who);
    }
}

/* Of a descriptor that is set now, or again. */
static void require_sizes(const void *descriptor, const int *numbers, int n, const char *who)
{
    if (!descriptor || *(const int *)descriptor == DESTROYED) {
        fake_die("%s was given a descriptor that is NULL, or was destroyed", who);
    }
    for (int i = 0; i < n; i++) {
        if (numbers[i] < 1) {
            fake_die("%s was given a size of %d", who, numbers[i]);
        }
    }
}

static cudnnStatus_t destroy(int *state, const char *who)
{
    require_sizes(state, NULL, 0, who);
    *state = DESTROYED;
    return CUDNN_STATUS_SUCCESS;
}

#define DESCRIPTOR(name)                                   \
    cudnnStatus_t cudnnCreate##name(cudnn##name##_t *made) \
    {                                                      \
        *made = calloc(1, sizeof **made);                  \
        return CUDNN_STATUS_SUCCESS;                       \
    }                                                      \
    cudnnStatus_t cudnnDestroy##name(cudnn##name##_t it)   \
    {                                                      \
        return destroy((int *)it, __func__);               \
    }
DESCRIPTOR(TensorDescriptor)
DESCRIPTOR(FilterDescriptor)
DESCRIPTOR(ConvolutionDescriptor)

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    (void)format;
    require_sizes(tensor, (int[]){n, c, h, w}, 4, __func__);
    *tensor = (struct fake_tensor){SET, (int)type, n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    return cudnnSetTensor4dDescriptor(filter, format, type, k, c, h, w);
}

/* Groups and kind of products may be set before the rest, and stay. */
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    struct fake_convolution *c = convolution;

    require_sizes(c, (int[]){stride_h, stride_w, dilation_h, dilation_w, pad_h + 1, pad_w + 1}, 6,
                  __func__);
    *c = (struct fake_convolution){SET,        pad_h,      pad_w,     stride_h, stride_w,
                                   dilation_h, dilation_w, c->groups, c->math};
    return mode == CUDNN_CROSS_CORRELATION && compute == CUDNN_DATA_FLOAT ? CUDNN_STATUS_SUCCESS
                                                                          : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups)
{
    require_sizes(convolution, &groups, 1, __func__);
    convolution->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math)
{
    require_sizes(convolution, NULL, 0, __func__);
    convolution->math = (int)math;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- convolutions ---- */

/* The operands are images, filters, and what becomes of them, or their gradients. An operation computes
 * that of its number. */
enum { X, W, Y, OPERANDS };
enum operation { DATA, FILTER, FORWARD };

struct problem {
    struct fake_tensor of[OPERANDS];
    struct fake_convolution how;
};

static int length(int input, int pad, int size, int stride, int dilation)
{
    return (input + 2 * pad - (dilation * (size - 1) + 1)) / stride + 1;
}

static struct problem problem_of(cudnnHandle_t handle, const struct fake_tensor *x,
                                 const struct fake_tensor *w, const struct fake_convolution *how,
                                 const struct fake_tensor *y, const char *who)
{
    struct problem p;
    int groups, h, width;

    fake_require_device(handle->device, who);
    require(x, who);
    require(w, who);
    require(how, who);
    require(y, who);
    p = (struct problem){{*x, *w, *y}, *how};
    groups = p.how.groups = how->groups ? how->groups : 1;
    h = length(x->h, how->pad_h, w->h, how->stride_h, how->dilation_h);
    width = length(x->w, how->pad_w, w->w, how->stride_w, how->dilation_w);
    if (x->c != w->c * groups || w->n % groups || y->n != x->n || y->c != w->n || y->h != h ||
        y->w != width || x->type != w->type || x->type != y->type) {
        fake_die("%s: %d filters of %d x %d x %d in %d groups do not make of %d x %d x %d images "
                 "%d x %d x %d",
                 who, w->n, w->c, w->h, w->w, groups, x->c, x->h, x->w, y->c, y->h, y->w);
    }
    return p;
}

static size_t size_of(int type)
{
    return type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(short);
}

static size_t numbers_of(const struct fake_tensor *t)
{
    return (size_t)t->n * (size_t)t->c * (size_t)t->h * (size_t)t->w;
}

static size_t bytes_of(const struct fake_tensor *t)
{
    return numbers_of(t) * size_of(t->type);
}

/* Where the CPU finds a tensor of the GPU's, which must be there. */
static void *place_of(const void *device, const struct fake_tensor *t, const char *who)
{
    if (!device) {
        fake_die("%s was given NULL for a tensor", who);
    }
    return fake_device(device, bytes_of(t), who);
}

typedef cudnnConvolutionFwdAlgoPerf_t algorithm;

/* Algorithm 1 with its tensor operations needs a copy of the weights; 0 all that one filter sees of
 * an image. */
static void algorithms(const struct problem *p, algorithm all[ALGORITHMS])
{
    const char *variable = getenv("FAKE_ALGORITHMS"), *which = variable ? variable : "";
    const struct fake_tensor *w = &p->of[W], *y = &p->of[Y];
    size_t seen = bytes_of(w) / (size_t)w->n * (size_t)y->h * (size_t)y->w;
    const algorithm none = {.status = CUDNN_STATUS_NOT_SUPPORTED};
    const algorithm small = {.algo = 1, .mathType = CUDNN_TENSOR_OP_MATH, .memory = bytes_of(w)};
    const algorithm large = {.mathType = CUDNN_FMA_MATH, .memory = seen * 2 + bytes_of(w)};

    all[0] = (algorithm){.algo = 2, .memory = TOO_MUCH};
    all[2] = y->n == 1 ? large : small;
    all[3] = y->n == 1 ? small : large;
    all[1] = all[4] = all[5] = none;
    all[1].algo = 4;
    all[1].mathType = CUDNN_TENSOR_OP_MATH;
    all[4].algo = 1;
    all[5].algo = 3;
    for (int i = 0; i < ALGORITHMS; i++) {
        if (!strcmp(which, "none") ||
            (!strcmp(which, "tensor") && all[i].mathType != CUDNN_TENSOR_OP_MATH)) {
            all[i].status = CUDNN_STATUS_NOT_SUPPORTED;
        }
        all[i].time = all[i].status ? -1 : 0.1F * (float)(i + 1);
        all[i].determinism = CUDNN_DETERMINISTIC;
    }
}

/* The one that has this number and the descriptor's kind of products, if that works. */
static algorithm the_algorithm(const struct problem *p, int algo)
{
    algorithm all[ALGORITHMS];

    algorithms(p, all);
    for (int i = 0; i < ALGORITHMS; i++) {
        if (all[i].algo == algo && (int)all[i].mathType == p->how.math && !all[i].status) {
            return all[i];
        }
    }
    return (algorithm){.status = CUDNN_STATUS_NOT_SUPPORTED};
}

struct convolution {
    enum operation operation;
    struct problem p;
    float alpha, beta;
    void *operand[OPERANDS], *workspace;
    size_t needed;
    int channels_last; /* in memory */
};

/* A copy of n numbers as floats, or n zeros. */
static float *floats(const void *from, size_t n, int type)
{
    float *to = calloc(n + 1, sizeof *to);

    for (size_t i = 0; from && i < n; i++) {
        to[i] = fake_widen(from, i, type);
    }
    return to;
}

/* The same numbers in the other order of channels and pixels; frees x. */
static float *reordered(float *x, const struct fake_tensor *t, int to_first)
{
    size_t n = numbers_of(t), channels = (size_t)t->c, pixels = (size_t)t->h * (size_t)t->w;
    float *to = calloc(n + 1, sizeof *to);

    for (size_t i = 0; i < n; i++) {
        size_t in_image = i % (channels * pixels);
        size_t last = i - in_image + in_image % pixels * channels + in_image / pixels;
        to[to_first ? i : last] = x[to_first ? last : i];
    }
    free(x);
    return to;
}

static int has_bf16(void)
{
    struct cudaDeviceProp properties;

    cudaGetDeviceProperties(&properties, fake_current("bf16"));
    return properties.major >= 8;
}

/* to = alpha * result + beta * to, where beta = 0 reads nothing. */
static void blend(void *to, const float *result, size_t n, int type, float alpha, float beta)
{
    for (size_t i = 0; i < n; i++) {
        float old = beta == 0 ? 0 : beta * fake_widen(to, i, type);
        fake_narrow(to, i, alpha * result[i] + old, type);
    }
}

/* Columns of what each number of the output sees in the image, or back: added to the image. */
static void columns(const struct problem *p, float *image, float *column, int back)
{
    const struct fake_convolution *c = &p->how;
    const struct fake_tensor *x = &p->of[X], *w = &p->of[W], *y = &p->of[Y];
    size_t at = 0;

    for (int k = 0; k < w->c * w->h * w->w; k++) {
        int down = k / w->w % w->h * c->dilation_h - c->pad_h;
        int across = k % w->w * c->dilation_w - c->pad_w;
        float *plane = image + (size_t)(k / w->w / w->h) * (size_t)(x->h * x->w);
        for (int i = 0; i < y->h; i++) {
            for (int j = 0; j < y->w; j++, at++) {
                int row = i * c->stride_h + down, place = j * c->stride_w + across;
                int inside = row >= 0 && row < x->h && place >= 0 && place < x->w;
                if (!back) {
                    column[at] = inside ? plane[row * x->w + place] : 0;
                } else if (inside) {
                    plane[row * x->w + place] += column[at];
                }
            }
        }
    }
}

static void multiply(const struct problem *p, enum operation operation, float *const number[])
{
    const struct fake_tensor *x = &p->of[X], *w = &p->of[W], *y = &p->of[Y];
    int groups = p->how.groups, m = w->n / groups, k = w->c * w->h * w->w;
    int n = y->h * y->w;
    float *column = malloc(sizeof *column * (size_t)k * (size_t)n);

    for (int i = 0; i < x->n * groups; i++) {
        float *image = number[X] + (size_t)i * (size_t)(w->c * x->h * x->w);
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
    const struct fake_tensor *of = c->p.of;
    const int type = of[X].type, to = (int)c->operation;
    float *number[OPERANDS];

    for (int i = 0; i < OPERANDS; i++) {
        number[i] = floats(i == to ? NULL : c->operand[i], numbers_of(&of[i]), type);
        number[i] = c->channels_last ? reordered(number[i], &of[i], 1) : number[i];
    }
    if (c->workspace) {
        memset(c->workspace, 0xff, c->needed);
    }
    multiply(&c->p, c->operation, number);
    number[to] = c->channels_last ? reordered(number[to], &of[to], 0) : number[to];
    blend(c->operand[to], number[to], numbers_of(&of[to]), type, c->alpha, c->beta);
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

static cudnnStatus_t queue(struct convolution *c, const char *who, const void *const data[],
                           void *space, size_t bytes)
{
    const struct fake_tensor *of = c->p.of;
    const int to = (int)c->operation;

    c->workspace = fake_device(space, bytes, who);
    for (int i = 0; i < OPERANDS; i++) {
        c->operand[i] = place_of(data[i], &of[i], who);
    }
    for (int i = 0; i < OPERANDS; i++) {
        if (i != to) {
            refuse_overlap(c->operand[to], bytes_of(&of[to]), c->operand[i], bytes_of(&of[i]), who);
        }
        refuse_overlap(c->workspace, c->needed, c->operand[i], bytes_of(&of[i]), who);
    }
    fake_load(who);
    fake_call(who, run_convolution, c, sizeof *c);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t convolve(struct convolution *c, const char *who, int algo,
                              const void *const data[], void *space, size_t bytes)
{
    const algorithm it = the_algorithm(&c->p, algo);

    if (it.status) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    if (bytes < it.memory || (it.memory && !space)) {
        fake_die("%s: algorithm %d with math %d needs a workspace of %zu bytes, and was given %zu",
                 who, algo, (int)it.mathType, it.memory, space ? bytes : 0);
    }
    c->needed = it.memory;
    return queue(c, who, data, space, bytes);
}

/* The parameters that are x, w and y. */
#define CONVOLUTION(computes, which, x, w, y)                                                     \
    cudnnStatus_t cudnnGetConvolution##which##AlgorithmMaxCount(cudnnHandle_t handle, int *most)  \
    {                                                                                             \
        fake_require_device(handle->device, __func__);                                            \
        *most = 2 * ALGORITHMS;                                                                   \
        return CUDNN_STATUS_SUCCESS;                                                              \
    }                                                                                             \
    cudnnStatus_t cudnnGetConvolution##which##Algorithm_v7(FAKE_SHAPES, int most, int *n,         \
                                                           algorithm *found)                      \
    {                                                                                             \
        struct problem p = problem_of(handle, x, w, how, y, __func__);                            \
        algorithm all[ALGORITHMS];                                                                \
                                                                                                  \
        algorithms(&p, all);                                                                      \
        *n = most < ALGORITHMS ? most : ALGORITHMS;                                               \
        memcpy(found, all, (size_t)*n * sizeof *all);                                             \
        return CUDNN_STATUS_SUCCESS;                                                              \
    }                                                                                             \
    cudnnStatus_t cudnnGetConvolution##which##WorkspaceSize(FAKE_SHAPES, int algo, size_t *bytes) \
    {                                                                                             \
        struct problem p = problem_of(handle, x, w, how, y, __func__);                            \
        algorithm it = the_algorithm(&p, algo);                                                   \
                                                                                                  \
        *bytes = it.memory;                                                                       \
        return it.status;                                                                         \
    }                                                                                             \
    cudnnStatus_t cudnnConvolution##which(FAKE_OPERANDS)                                          \
    {                                                                                             \
        struct convolution c = {.operation = computes,                                            \
                                .p = problem_of(handle, x, w, how, y, __func__),                  \
                                .alpha = *(const float *)alpha,                                   \
                                .beta = *(const float *)beta};                                    \
        const void *const data[] = {x##_data, w##_data, y##_data};                                \
                                                                                                  \
        return convolve(&c, __func__, algo, data, space, bytes);                                  \
    }
CONVOLUTION(FORWARD, Forward, first, second, third)
CONVOLUTION(DATA, BackwardData, third, first, second)
CONVOLUTION(FILTER, BackwardFilter, first, third, second)

struct biases {
    struct fake_tensor shape; /* of dy */
    float alpha, beta;
    void *dy, *db;
};

static void run_biases(void *arguments)
{
    const struct biases *b = arguments;
    const struct fake_tensor *t = &b->shape;
    size_t plane = (size_t)t->h * (size_t)t->w, n = numbers_of(t);
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
    require(y, __func__);
    require(d, __func__);
    if (d->n != 1 || d->c != y->c || d->h != 1 || d->w != 1 || d->type != y->type) {
        fake_die("%s: images of %d channels do not have %d x %d x %d x %d biases", __func__, y->c,
                 d->n, d->c, d->h, d->w);
    }
    b.shape = *y;
    b.dy = place_of(dy, y, __func__);
    b.db = place_of(db, d, __func__);
    refuse_overlap(b.db, bytes_of(d), b.dy, bytes_of(y), __func__);
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
    size_t plane = (size_t)t->h * (size_t)t->w, n = numbers_of(t);
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

    fake_require_device(handle->device, who);
    require(x_shape, who);
    require(y_shape, who);
    require(channels, who);
    if (memcmp(x_shape, y_shape, sizeof *x_shape) || channels->n != 1 ||
        channels->c != x_shape->c || channels->h != 1 || channels->w != 1 ||
        channels->type != CUDNN_DATA_FLOAT || epsilon < 0) {
        fake_die("%s: shapes that do not fit one another, or an epsilon of %g", who, epsilon);
    }
    b.shape = *x_shape;
    b.alpha = *(const float *)alpha;
    b.beta = *(const float *)beta;
    b.x = place_of(x, x_shape, who);
    b.y = place_of(y, y_shape, who);
    b.scale = place_of(scale, channels, who);
    b.mean = place_of(mean, channels, who);
    b.inverse = place_of(inverse, channels, who);
    return b;
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(FAKE_NORMALISATION_FORWARD)
{
    struct normalisation b = normalisation_of(handle, alpha, beta, x_shape, x, y_shape, y, channels,
                                              scale, epsilon, saved_mean, saved_inverse, __func__);

    b.factor = factor;
    b.bias = place_of(bias, channels, __func__);
    b.running_mean = place_of(running_mean, channels, __func__);
    b.running_variance = place_of(running_variance, channels, __func__);
    fake_load(__func__);
    fake_call(__func__, run_normalisation, &b, sizeof b);
    return mode == CUDNN_BATCHNORM_SPATIAL ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBatchNormalizationBackward(FAKE_NORMALISATION_BACKWARD)
{
    struct normalisation b =
        normalisation_of(handle, alpha, beta, x_shape, x, dx_shape, dx, channels, scale, epsilon,
                         saved_mean, saved_inverse, __func__);

    require(dy_shape, __func__);
    b.alpha_sums = *(const float *)alpha_sums;
    b.beta_sums = *(const float *)beta_sums;
    b.d_scale = place_of(d_scale, channels, __func__);
    b.d_bias = place_of(d_bias, channels, __func__);
    b.dy = place_of(dy, dy_shape, __func__);
    if (memcmp(x_shape, dy_shape, sizeof *x_shape)) {
        fake_die("%s: the gradients have another shape than the images", __func__);
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
    int state, type, proposal, n;
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
        require(*(const cudnnBackendDescriptor_t *)values, __func__);
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

    require(it, "a graph");
    return it;
}

static cudnnHandle_t handle_of(cudnnBackendDescriptor_t it, int name)
{
    return *(const cudnnHandle_t *)attribute(it, name, CUDNN_TYPE_HANDLE, 1);
}

static struct fake_tensor read_tensor(cudnnBackendDescriptor_t it, int64_t name)
{
    const int64_t *n = numbers(it, CUDNN_ATTR_TENSOR_DIMENSIONS, 4);
    const int64_t *step = numbers(it, CUDNN_ATTR_TENSOR_STRIDES, 4);
    const int *type = attribute(it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1);

    if (step[1] != 1 || step[3] != n[1] || step[2] != n[1] * n[3] || step[0] != step[2] * n[2] ||
        *type != CUDNN_DATA_BFLOAT16 || *numbers(it, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1) != name ||
        *numbers(it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1) != 16) {
        fake_die("tensor %d of a graph is no bf16 with channels last", (int)name);
    }
    return (struct fake_tensor){SET, *type, (int)n[0], (int)n[1], (int)n[2], (int)n[3]};
}

static struct fake_convolution read_movement(cudnnBackendDescriptor_t it, int groups)
{
    const int64_t *pad = numbers(it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2);
    const int64_t *behind = numbers(it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2);
    const int64_t *stride = numbers(it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2);
    const int64_t *dilation = numbers(it, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2);
    const int *sums = attribute(it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1);
    const int *mode =
        attribute(it, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1);

    if (*numbers(it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1) != 2 ||
        memcmp(pad, behind, 2 * sizeof *pad) != 0 || *sums != CUDNN_DATA_FLOAT ||
        *mode != CUDNN_CROSS_CORRELATION) {
        fake_die("a graph's convolution is none of Darknet's");
    }
    return (struct fake_convolution){.state = SET,
                                     (int)pad[0],
                                     (int)pad[1],
                                     (int)stride[0],
                                     (int)stride[1],
                                     (int)dilation[0],
                                     (int)dilation[1],
                                     groups};
}

static struct convolution convolution_of(cudnnBackendDescriptor_t graph)
{
    cudnnBackendDescriptor_t operation = part_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    enum { ALPHA, BETA, MOVEMENT, TENSORS, ATTRIBUTES_OF_ONE = TENSORS + OPERANDS };
    int number = operation->type - CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    int first = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA + number * ATTRIBUTES_OF_ONE;
    struct convolution c = {.operation = (enum operation)number, .alpha = 1, .channels_last = 1};
    struct fake_tensor t[OPERANDS];
    struct fake_convolution movement;

    if (*(const float *)attribute(operation, first + ALPHA, CUDNN_TYPE_FLOAT, 1) != 1 ||
        *(const float *)attribute(operation, first + BETA, CUDNN_TYPE_FLOAT, 1) != 0) {
        fake_die("a graph has other factors than 1 and 0");
    }
    for (int i = 0; i < OPERANDS; i++) {
        t[i] = read_tensor(part_of(operation, first + TENSORS + i), i + 1);
    }
    movement = read_movement(part_of(operation, first + MOVEMENT), t[X].c / t[W].c);
    c.p = problem_of(handle_of(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE), &t[X], &t[W], &movement,
                     &t[Y], "a graph");
    c.needed = bytes_of(&t[W]);
    return c;
}

static int64_t graph_bytes(cudnnBackendDescriptor_t proposal)
{
    return proposal->proposal == TOO_LARGE ? TOO_MUCH
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
        fake_require_device(handle_of(it, CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->device, __func__);
        if (proposal->proposal == NO_PLAN || !strcmp(which, "none") || !has_bf16()) {
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

    require(it, __func__);
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
    require(plan, __func__);
    require(pack, __func__);
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
    return queue(&c, __func__, (const void *const *)tensor, space, c.needed);
}
