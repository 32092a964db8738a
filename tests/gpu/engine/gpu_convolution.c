/* Convolutions in bf16, held against sums in double of factors that are
 * rounded here. What they read comes late, and some of it is still to be computed when room is made for
 * a larger one. */
#include "gpu/gpu.h"

#include <cudnn.h>
#include <math.h>

#include "cmn.h"
#include "engine/gpu_convolution.h"

/* Darknet's kinds: images, channels, rows and columns, filters, their size, and how they move. */
struct kind {
    int n, c, h, filters, size, stride, pad, groups;
};
static const struct kind kinds[] = {
    {2, 3, 8, 4, 3, 1, 1, 1}, {3, 4, 9, 6, 3, 2, 1, 2}, {1, 5, 7, 3, 1, 1, 0, 1},
    {2, 8, 6, 8, 3, 1, 1, 4}, {1, 1, 5, 1, 5, 1, 0, 1}, {2, 6, 33, 7, 3, 1, 1, 1},
};
enum { KINDS = sizeof kinds / sizeof kinds[0], X = 0, W = 1, Y = 2, OPERANDS = 3 };

struct convolution {
    struct kind s;
    int out;                 /* rows and columns */
    float *host[OPERANDS];   /* what they are at first */
    float *device[OPERANDS]; /* the GPU's */
    size_t n[OPERANDS];
    double *sum; /* what becomes of them, without rounding the result; as much as is computed */
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t how;
    float *workspace;
    size_t bytes;
};

static cudnnHandle_t handle;
static const float zero = 0, half = .5F, one = 1;

/* To bf16: 7 bits behind the first one, ties to even. */
static double rounded(double x)
{
    int exponent;
    double fraction = frexp(x, &exponent);

    return ldexp(rint(ldexp(fraction, 8)), exponent - 8);
}

static float number(void)
{
    static unsigned state = 7;

    state = state * 1664525U + 1013904223U;
    return (float)(state >> 8) / (float)(1 << 23) - 1;
}

static void must(cudnnStatus_t status)
{
    CHECK_SAYING(status == CUDNN_STATUS_SUCCESS, "%s", cudnnGetErrorString(status));
}

/* Operand i of the GPU gets its first values, some time later. */
static void write_late(struct convolution *c, int i)
{
    fake_later(c->device[i], c->host[i], c->n[i]);
}

static void open_convolution(struct convolution *c, const struct kind *s)
{
    size_t x = (size_t)(s->n * s->c * s->h * s->h), side;

    *c = (struct convolution){.s = *s, .out = (s->h + 2 * s->pad - s->size) / s->stride + 1};
    side = (size_t)c->out;
    c->n[X] = x;
    c->n[W] = (size_t)(s->filters * (s->c / s->groups) * s->size * s->size);
    c->n[Y] = (size_t)(s->n * s->filters) * side * side;
    for (int i = 0; i < OPERANDS; i++) {
        c->host[i] = calloc(c->n[i], sizeof *c->host[i]);
        for (size_t k = 0; k < c->n[i]; k++) {
            c->host[i][k] = number();
        }
        CHECK_SAYING(cmn_device_memory(&c->device[i], c->n[i]) == 0, "%s", cmn_reason());
        write_late(c, i);
    }
    must(cudnnCreateTensorDescriptor(&c->x));
    must(cudnnCreateTensorDescriptor(&c->y));
    must(cudnnCreateFilterDescriptor(&c->w));
    must(cudnnCreateConvolutionDescriptor(&c->how));
    must(cudnnSetTensor4dDescriptor(c->x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, s->n, s->c, s->h,
                                    s->h));
    must(cudnnSetTensor4dDescriptor(c->y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, s->n, s->filters,
                                    c->out, c->out));
    must(cudnnSetFilter4dDescriptor(c->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, s->filters,
                                    s->c / s->groups, s->size, s->size));
    must(cudnnSetConvolution2dDescriptor(c->how, s->pad, s->pad, s->stride, s->stride, 1, 1,
                                         CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    must(cudnnSetConvolutionGroupCount(c->how, s->groups));
    must(cudnnSetConvolutionMathType(c->how, CUDNN_TENSOR_OP_MATH));
    must(cudnnGetConvolutionForwardWorkspaceSize(handle, c->x, c->w, c->how, c->y,
                                                 CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                                 &c->bytes));
    CHECK(cmn_device_memory(&c->workspace, c->bytes / sizeof(float) + 1) == 0);
}

static void close_convolution(struct convolution *c)
{
    for (int i = 0; i < OPERANDS; i++) {
        cmn_device_free(c->device[i]);
        free(c->host[i]);
    }
    cmn_device_free(c->workspace);
    free(c->sum);
    must(cudnnDestroyTensorDescriptor(c->x));
    must(cudnnDestroyTensorDescriptor(c->y));
    must(cudnnDestroyFilterDescriptor(c->w));
    must(cudnnDestroyConvolutionDescriptor(c->how));
}

/* Result `to` of the other two operands, of which each product is added to where it belongs. */
static void compute(struct convolution *c, int to, double (*factor)(double x))
{
    const struct kind *s = &c->s;
    int group = s->filters / s->groups, depth = s->c / s->groups, out = c->out;

    free(c->sum);
    c->sum = calloc(c->n[to], sizeof *c->sum);
    for (int i = 0; i < s->n * s->filters * out * out * depth * s->size * s->size; i++) {
        int b = i % s->size, a = i / s->size % s->size, k = i / s->size / s->size;
        int d = k % depth, column = k / depth % out, row = k / depth / out % out;
        int f = k / depth / out / out % s->filters, image = k / depth / out / out / s->filters;
        int y = row * s->stride + a - s->pad, x = column * s->stride + b - s->pad;
        size_t at[OPERANDS] = {
            (size_t)(((image * s->c + f / group * depth + d) * s->h + y) * s->h + x),
            (size_t)(((f * depth + d) * s->size + a) * s->size + b),
            (size_t)(((image * s->filters + f) * out + row) * out + column)};
        int p = to == X ? W : X, q = to == Y ? W : Y;
        if (y >= 0 && y < s->h && x >= 0 && x < s->h) {
            c->sum[at[to]] += factor((double)c->host[p][at[p]]) * factor((double)c->host[q][at[q]]);
        }
    }
}

static double as_it_is(double x)
{
    return x;
}

static cudnnStatus_t run(struct convolution *c, int to, const float *beta)
{
    void *x = c->device[X], *w = c->device[W], *y = c->device[Y];

    if (to == Y) {
        return cmn_convolution_forward(handle, &one, c->x, x, c->w, w, c->how,
                                       CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                       c->workspace, c->bytes, beta, c->y, y);
    }
    if (to == W) {
        return cmn_convolution_backward_filter(handle, &one, c->x, x, c->y, y, c->how,
                                               CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, c->workspace,
                                               c->bytes, beta, c->w, w);
    }
    return cmn_convolution_backward_data(handle, &one, c->w, w, c->y, y, c->how,
                                         CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, c->workspace, c->bytes,
                                         beta, c->x, x);
}

/* The result is that of these factors within `limit` of its size; other operands are as they were. */
static void check(struct convolution *c, int to, int adds, double limit)
{
    float *found = calloc(c->n[to], sizeof *found);

    for (int i = 0; i < OPERANDS; i++) {
        float *seen = i == to ? found : calloc(c->n[i], sizeof *seen);
        cmn_device_read(seen, c->device[i], c->n[i]);
        CHECK_SAYING(i == to || !memcmp(seen, c->host[i], c->n[i] * sizeof *seen),
                     "operand %d was changed", i);
        free(i == to ? NULL : seen);
    }
    for (size_t i = 0; i < c->n[to]; i++) {
        double before = adds ? (double)c->host[to][i] : 0, is = (double)found[i] - before;
        CHECK_SAYING(fabs(is - c->sum[i]) <= limit * fabs(c->sum[i]) + 1e-5,
                     "result %d, number %zu: %.9g, and not %.9g", to, i, is, c->sum[i]);
        CHECK_SAYING(adds || limit < 1e-3 || rounded(is) == is, "number %zu of %d: %.9g", i, to,
                     is);
    }
    free(found);
}

/* On a GPU of that compute capability: 7 has no TF32, to which 32 bits would be rounded. */
static void begin(const char *capability)
{
    setenv("FAKE_CAPABILITY", capability, 1);
    cudaSetDevice(0);
    if (!handle) {
        must(cudnnCreate(&handle));
    }
    cmn_gpu_convolution_use_bf16();
}

static void try_one(const struct kind *s, int to, double (*factor)(double x), double limit)
{
    struct convolution c;

    open_convolution(&c, s);
    compute(&c, to, factor);
    must(run(&c, to, to == Y ? &zero : &one));
    check(&c, to, to != Y, limit);
    close_convolution(&c);
}

/* Each result is within half of a bf16's last bit; a few sums lie on its border. */
GPU_TEST(rounds)
{
    begin("8");
    for (int i = 0; i < KINDS; i++) {
        for (int to = X; to < OPERANDS; to++) {
            try_one(&kinds[i], to, rounded, 1.001 / 256);
        }
    }
    cmn_gpu_convolution_close();
}

/* As Darknet's backward pass does: the delta is cast once, for both gradients. */
GPU_TEST(both_gradients)
{
    begin("8");
    for (int i = 0; i < KINDS; i++) {
        struct convolution c;
        open_convolution(&c, &kinds[i]);
        must(run(&c, W, &one));
        write_late(&c, W);
        must(run(&c, X, &one));
        compute(&c, X, rounded);
        check(&c, X, 1, 1.001 / 256);
        write_late(&c, X);
        write_late(&c, Y); /* with the same numbers, but one */
        c.host[Y][0] += 1;
        write_late(&c, Y);
        must(run(&c, X, &one));
        compute(&c, X, rounded);
        check(&c, X, 1, 1.001 / 256);
        close_convolution(&c);
    }
    cmn_gpu_convolution_close();
}

/* What cuDNN cannot do in bf16 is done in 32 bits; by its fallbacks it can. */
GPU_TEST(falls_back)
{
    static const struct {
        const char *graphs, *capability;
        int is_off;
        double (*factor)(double x), limit;
    } way[] = {
        {"FALLBACK", "8", 0, rounded, 1.001 / 256},
        {"none", "7", 0, as_it_is, 1e-6},
        {"", "7", 1, as_it_is, 1e-6},
    };

    needs_the_stand_in();
    for (size_t i = 0; i < COUNT(way); i++) {
        setenv("FAKE_GRAPHS", way[i].graphs, 1);
        begin(way[i].capability);
        if (way[i].is_off) {
            cmn_gpu_convolution_close();
        }
        for (int to = X; to < OPERANDS; to++) {
            try_one(&kinds[1], to, way[i].factor, way[i].limit);
        }
        cmn_gpu_convolution_close();
    }
    unsetenv("FAKE_GRAPHS");
}

/* 1 + 2^-7 - 1, where factors of 32 bits give about 2^-8, those of TF32 2^-8. */
GPU_TEST(rounds_factors)
{
    const struct kind small = {1, 2, 1, 1, 1, 1, 0, 1};
    struct convolution c;
    float y;

    begin("8");
    open_convolution(&c, &small);
    c.host[X][0] = 1 + 0x1.1p-8F;
    c.host[X][1] = -1;
    c.host[W][0] = c.host[W][1] = 1;
    c.host[Y][0] = NAN;
    for (int i = 0; i < OPERANDS; i++) {
        write_late(&c, i);
    }
    must(run(&c, Y, &zero));
    cmn_device_read(&y, c.device[Y], 1);
    CHECK_SAYING(y == 0x1p-7F, "%.9g", (double)y);
    CHECK(run(&c, Y, &half) == CUDNN_STATUS_NOT_SUPPORTED);
    close_convolution(&c);
    cmn_gpu_convolution_close();
}

/* A larger one gets its room while the smaller ones' work is queued. */
GPU_TEST(room_grows)
{
    struct convolution c[KINDS];

    begin("8");
    for (int i = 0; i < KINDS; i++) {
        open_convolution(&c[i], &kinds[i]);
        compute(&c[i], Y, rounded);
    }
    for (int i = 0; i < KINDS; i++) {
        must(run(&c[i], Y, &zero));
    }
    for (int i = 0; i < KINDS; i++) {
        check(&c[i], Y, 0, 1.001 / 256);
        close_convolution(&c[i]);
    }
    cmn_gpu_convolution_close();
}

GPU_TEST(memory_is_missing)
{
    struct convolution c;

    needs_the_stand_in();
    begin("8");
    open_convolution(&c, &kinds[0]);
    fake.no_memory = 1;
    assert_fatal(run(&c, Y, &zero), "cmn_mixed=bf16: ");
    assert_fatal(run(&c, Y, &zero), "floats on the GPU");
    fake.no_memory = 0;
    close_convolution(&c);
    cmn_gpu_convolution_close();
}

RANK_TESTS(NULL, NULL)
