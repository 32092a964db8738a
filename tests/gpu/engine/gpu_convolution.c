/* Convolutions in bf16, as Darknet's layers ask for them, held against sums in double of factors that
 * are rounded here. What they read comes late, and some of it is still to be computed when room is
 * made for a larger one. */
#include "gpu/gpu.h"

#include <math.h>

#include "engine/darknet_tree.h"
#include "engine/gpu_convolution.h"

#include "convolutional_layer.h"

/* Darknet's kinds: images, channels, rows and columns, filters, their size, and how they move. */
struct kind {
    int n, c, h, filters, size, stride, pad, groups;
};
static const struct kind kinds[] = {
    {2, 3, 8, 4, 3, 1, 1, 1}, {3, 4, 9, 6, 3, 2, 1, 2}, {1, 5, 7, 3, 1, 1, 0, 1},
    {2, 8, 6, 8, 3, 1, 1, 4}, {1, 1, 5, 1, 5, 1, 0, 1}, {2, 6, 33, 7, 3, 1, 1, 1},
};
enum { KINDS = COUNT(kinds), X = CMN_INPUT, W = CMN_WEIGHTS, Y = CMN_OUTPUT, OPERANDS };

/* A layer, whose output in the backward pass is its gradient. Results of that pass, the gradients of
 * input and weights, are added to what the operand itself has. */
struct convolution {
    struct kind s;
    layer l;
    network net;
    float *host[OPERANDS], *operand[OPERANDS], *result[OPERANDS]; /* the last two are the GPU's */
    size_t n[OPERANDS];
};

/* To bf16: 7 bits behind the first one, ties to even. */
static double rounded(double x)
{
    int exponent;
    double fraction = frexp(x, &exponent);

    return ldexp(rint(ldexp(fraction, 8)), exponent - 8);
}

static double as_it_is(double x)
{
    return x;
}

static float number(void)
{
    static unsigned state = 7;

    state = state * 1664525U + 1013904223U;
    return (float)(state >> 8) / (float)(1 << 23) - 1;
}

static float *device_floats(size_t n)
{
    float *memory;

    CHECK_SAYING(cmn_device_memory(&memory, n) == 0, "%s", cmn_reason());
    return memory;
}

/* All operands get their first values, some time later, and so does what gradients are added to. */
static void write_late(struct convolution *c)
{
    for (int i = 0; i < OPERANDS; i++) {
        fake_later(c->operand[i], c->host[i], c->n[i]);
        if (i != Y) {
            fake_later(c->result[i], c->host[i], c->n[i]);
        }
    }
}

static void open_convolution(struct convolution *c, const struct kind *s)
{
    layer *l = &c->l;

    *c = (struct convolution){.s = *s};
    *l = make_convolutional_layer(s->n, s->h, s->h, s->c, s->filters, s->groups, s->size, s->stride,
                                  s->pad, LINEAR, 0, 0, 0, 0);
    c->n[X] = (size_t)(l->inputs * l->batch);
    c->n[W] = (size_t)l->nweights;
    c->n[Y] = (size_t)(l->outputs * l->batch);
    c->operand[X] = c->net.input_gpu = device_floats(c->n[X]);
    c->result[X] = c->net.delta_gpu = device_floats(c->n[X]);
    c->net.workspace = device_floats(l->workspace_size / sizeof(float) + 1);
    c->operand[W] = l->weights_gpu;
    c->operand[Y] = l->delta_gpu;
    c->result[W] = l->weight_updates_gpu;
    c->result[Y] = l->output_gpu;
    for (int i = 0; i < OPERANDS; i++) {
        c->host[i] = calloc(c->n[i], sizeof *c->host[i]);
        for (size_t k = 0; k < c->n[i]; k++) {
            c->host[i][k] = number();
        }
    }
    write_late(c);
}

static void close_convolution(struct convolution *c)
{
    cmn_device_free(c->net.input_gpu);
    cmn_device_free(c->net.delta_gpu);
    cmn_device_free(c->net.workspace);
    free_layer(c->l);
    for (int i = 0; i < OPERANDS; i++) {
        free(c->host[i]);
    }
}

/* Result `to` of the other two operands, of which each product is added to where it belongs. */
static double *computed(const struct convolution *c, int to, double (*factor)(double x))
{
    const struct kind *s = &c->s;
    int group = s->filters / s->groups, depth = s->c / s->groups, out = c->l.out_w;
    double *sum = calloc(c->n[to], sizeof *sum);

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
            sum[at[to]] += factor((double)c->host[p][at[p]]) * factor((double)c->host[q][at[q]]);
        }
    }
    return sum;
}

/* The result is that of these factors within `limit` of its size; the operand is as it was. */
static void check(const struct convolution *c, int to, double (*factor)(double x), double limit)
{
    double *sum = computed(c, to, factor);
    float *found = calloc(c->n[to], sizeof *found);

    cmn_device_read(found, c->operand[to], c->n[to]);
    CHECK_SAYING(!memcmp(found, c->host[to], c->n[to] * sizeof *found), "operand %d changed", to);
    cmn_device_read(found, c->result[to], c->n[to]);
    for (size_t i = 0; i < c->n[to]; i++) {
        double is = (double)found[i] - (to == Y ? 0 : (double)c->host[to][i]);
        CHECK_SAYING(fabs(is - sum[i]) <= limit * fabs(sum[i]) + 1e-5,
                     "result %d, number %zu: %.9g, and not %.9g", to, i, is, sum[i]);
        CHECK_SAYING(to != Y || factor != rounded || rounded(is) == is, "number %zu: %.9g", i, is);
    }
    free(found);
    free(sum);
}

static void begin(void)
{
    setenv("FAKE_CAPABILITY", "8", 1);
    gpu_index = 0;
    cudaSetDevice(0);
    cmn_gpu_convolution_use_bf16();
}

static void try_one(const struct kind *s, double (*factor)(double x), double limit)
{
    struct convolution c;

    open_convolution(&c, s);
    forward_convolutional_layer_gpu(c.l, c.net);
    check(&c, Y, factor, limit);
    /* The second time there are other numbers where the first delta was. */
    for (int turn = 0; turn < 2; turn++) {
        backward_convolutional_layer_gpu(c.l, c.net);
        check(&c, W, factor, limit);
        check(&c, X, factor, limit);
        c.host[Y][0] += 1;
        write_late(&c);
    }
    close_convolution(&c);
}

/* Each result is within half of a bf16's last bit; a few sums lie on its border. */
GPU_TEST(rounds)
{
    begin();
    for (int i = 0; i < KINDS; i++) {
        try_one(&kinds[i], rounded, 1.001 / 256);
    }
    cmn_gpu_convolution_close();
}

/* What cuDNN cannot do in bf16 is done in 32 bits; by its fallbacks it can. */
GPU_TEST(falls_back)
{
    static const struct {
        const char *graphs;
        int is_off;
        double (*factor)(double x), limit;
    } way[] = {
        {"FALLBACK", 0, rounded, 1.001 / 256},
        {"none", 0, as_it_is, 1e-6},
        {"", 1, as_it_is, 1e-6},
    };

    needs_the_stand_in();
    for (size_t i = 0; i < COUNT(way); i++) {
        setenv("FAKE_GRAPHS", way[i].graphs, 1);
        begin();
        if (way[i].is_off) {
            cmn_gpu_convolution_close();
        }
        try_one(&kinds[1], way[i].factor, way[i].limit);
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

    begin();
    open_convolution(&c, &small);
    c.host[X][0] = 1 + 0x1.1p-8F;
    c.host[X][1] = -1;
    c.host[W][0] = c.host[W][1] = 1;
    write_late(&c);
    forward_convolutional_layer_gpu(c.l, c.net);
    cmn_device_read(&y, c.result[Y], 1);
    CHECK_SAYING(y == 0x1p-7F, "%.9g", (double)y);
    close_convolution(&c);
    cmn_gpu_convolution_close();
}

/* A larger one gets its room while the smaller ones' work is queued. */
GPU_TEST(room_grows)
{
    struct convolution c[KINDS];

    begin();
    for (int i = 0; i < KINDS; i++) {
        open_convolution(&c[i], &kinds[i]);
    }
    for (int i = 0; i < KINDS; i++) {
        forward_convolutional_layer_gpu(c[i].l, c[i].net);
    }
    for (int i = 0; i < KINDS; i++) {
        check(&c[i], Y, rounded, 1.001 / 256);
        close_convolution(&c[i]);
    }
    cmn_gpu_convolution_close();
}

GPU_TEST(memory_is_missing)
{
    struct convolution c;

    needs_the_stand_in();
    begin();
    open_convolution(&c, &kinds[0]);
    fake.no_memory = 1;
    assert_fatal(forward_convolutional_layer_gpu(c.l, c.net), "cmn_mixed=bf16: ");
    assert_fatal(forward_convolutional_layer_gpu(c.l, c.net), "floats on the GPU");
    fake.no_memory = 0;
    close_convolution(&c);
    cmn_gpu_convolution_close();
}

RANK_TESTS(NULL, NULL)
