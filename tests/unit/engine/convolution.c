/* oneDNN's convolutions against the definition, in double precision. The test compiles them itself:
 * they are not in every build. */
#ifndef ONEDNN
#define ONEDNN
#endif
#include <oneapi/dnnl/dnnl.h>

static int spoils;       /* a reorder loses a number */
static int is_there = 1; /* this processor has the precision */

static dnnl_status_t execute(const_dnnl_primitive_t p, dnnl_stream_t s, int n,
                             const dnnl_exec_arg_t *arguments)
{
    dnnl_status_t failed = dnnl_primitive_execute(p, s, n, arguments);
    void *to;

    if (spoils && n == 2 && !failed) {
        dnnl_stream_wait(s);
        dnnl_memory_get_data_handle(arguments[1].memory, &to);
        *(float *)to += 1;
    }
    return failed;
}
#define dnnl_primitive_execute execute
#include "engine/convolution.c"

#include "check.h"

#include <math.h>

static int convolve(const struct cmn_convolution *s, int result, float *input, float *weights,
                    float *output)
{
    const struct cmn_convolution_data data = {.input = input, .weights = weights, .output = output};

    return cmn_convolution_multiply(s, result, &data);
}

/* The three products by their definition; each is added to what is there. */
static void define(const struct cmn_convolution *s, const double *input, const double *weights,
                   const double *output, double *to_input, double *to_weights, double *to_output)
{
    int c = s->channels / s->groups, f = s->filters / s->groups, k = s->size;

    for (int n = 0; n < s->batch * s->filters * s->out_height * s->out_width; n++) {
        int x = n % s->out_width, y = n / s->out_width % s->out_height;
        int filter = n / (s->out_width * s->out_height) % s->filters;
        int image = n / (s->out_width * s->out_height * s->filters);
        for (int m = 0; m < c * k * k; m++) {
            int column = x * s->stride_x - s->pad + m % k * s->dilation;
            int row = y * s->stride_y - s->pad + m / k % k * s->dilation;
            int channel = filter / f * c + m / (k * k);
            int i = ((image * s->channels + channel) * s->height + row) * s->width + column;
            int w = filter * c * k * k + m;
            if (row >= 0 && row < s->height && column >= 0 && column < s->width) {
                to_output[n] += weights[w] * input[i];
                to_weights[w] += output[n] * input[i];
                to_input[i] += weights[w] * output[n];
            }
        }
    }
}

static void expect(const struct cmn_convolution *s, const float *x, const double *y, int n,
                   const char *what)
{
    double difference = 0, norm = 0;

    for (int i = 0; i < n; i++) {
        difference += (x[i] - y[i]) * (x[i] - y[i]);
        norm += y[i] * y[i];
    }
    if (!(difference <= 1e-12 * norm)) {
        fail_msg("%s, %d filters of %d, %d x %d x %d, %d groups: relative L2 %g", what, s->filters,
                 s->size, s->channels, s->height, s->width, s->groups, sqrt(difference / norm));
    }
}

/* The number that a factor becomes. */
static double factor(float x)
{
    uint16_t rounded;

    if (in_bf16) {
        cmn_float16_encode(CMN_BF16, &rounded, &x, 1);
        cmn_float16_decode(CMN_BF16, &x, &rounded, 1);
    }
    return x;
}

static void compare(struct cmn_convolution s)
{
    int n[TENSORS];
    double *x[TENSORS], *y[TENSORS];
    float *a[TENSORS], *result[TENSORS];

    s.out_height = (s.height + 2 * s.pad - s.dilation * (s.size - 1) - 1) / s.stride_y + 1;
    s.out_width = (s.width + 2 * s.pad - s.dilation * (s.size - 1) - 1) / s.stride_x + 1;
    n[INPUT] = s.batch * s.channels * s.height * s.width;
    n[WEIGHTS] = s.filters * s.channels / s.groups * s.size * s.size;
    n[OUTPUT] = s.batch * s.filters * s.out_height * s.out_width;
    for (int t = 0; t < TENSORS; t++) {
        x[t] = calloc((size_t)n[t], sizeof *x[t]);
        y[t] = calloc((size_t)n[t], sizeof *y[t]);
        a[t] = calloc((size_t)n[t], sizeof *a[t]);
        result[t] = calloc((size_t)n[t], sizeof *result[t]);
        for (int i = 0; i < n[t]; i++) {
            a[t][i] = uniform(-.4F, .6F);
            x[t][i] = factor(a[t][i]);
            /* Gradients are added; the output is overwritten, whatever was there. */
            result[t][i] = t == OUTPUT ? NAN : 0.5F;
            y[t][i] = t == OUTPUT ? 0 : 0.5;
        }
    }
    define(&s, x[INPUT], x[WEIGHTS], x[OUTPUT], y[INPUT], y[WEIGHTS], y[OUTPUT]);
    assert_int_equal(convolve(&s, CMN_OUTPUT, a[INPUT], a[WEIGHTS], result[OUTPUT]), 1);
    assert_int_equal(convolve(&s, CMN_WEIGHTS, a[INPUT], result[WEIGHTS], a[OUTPUT]), 1);
    assert_int_equal(convolve(&s, CMN_INPUT, result[INPUT], a[WEIGHTS], a[OUTPUT]), 1);
    expect(&s, result[OUTPUT], y[OUTPUT], n[OUTPUT], "the output");
    expect(&s, result[WEIGHTS], y[WEIGHTS], n[WEIGHTS], "the gradient of the weights");
    expect(&s, result[INPUT], y[INPUT], n[INPUT], "the gradient of the input");
    /* What was reordered for the weights served the input once: this is another gradient. */
    for (int i = 0; i < n[OUTPUT]; i++) {
        a[OUTPUT][i] *= -2;
        x[OUTPUT][i] = factor(a[OUTPUT][i]);
    }
    define(&s, x[INPUT], x[WEIGHTS], x[OUTPUT], y[INPUT], y[WEIGHTS], y[OUTPUT]);
    assert_int_equal(convolve(&s, CMN_INPUT, result[INPUT], a[WEIGHTS], a[OUTPUT]), 1);
    expect(&s, result[INPUT], y[INPUT], n[INPUT], "the gradient of the input after another");
    for (int t = 0; t < TENSORS; t++) {
        free(x[t]);
        free(y[t]);
        free(a[t]);
        free(result[t]);
    }
}

/* Fields: batch, groups, channels, height, width, filters, (out), size, strides, dilation, pad. */
TEST(each_shape_by_its_definition)
{
    static const struct cmn_convolution shape[] = {
        {2, 1, 3, 9, 11, 8, 0, 0, 3, 1, 1, 1, 1},    {1, 1, 1, 5, 5, 1, 0, 0, 1, 1, 1, 1, 0},
        {3, 1, 16, 14, 14, 32, 0, 0, 3, 1, 1, 1, 1}, {2, 1, 20, 8, 8, 17, 0, 0, 1, 1, 1, 1, 0},
        {2, 1, 16, 13, 13, 16, 0, 0, 3, 2, 2, 1, 1}, {2, 1, 5, 12, 9, 7, 0, 0, 5, 3, 3, 1, 2},
        {2, 4, 16, 10, 10, 32, 0, 0, 3, 1, 1, 1, 1}, {2, 6, 6, 7, 7, 6, 0, 0, 3, 1, 1, 1, 1},
        {1, 1, 16, 15, 15, 8, 0, 0, 3, 1, 1, 2, 2},  {2, 1, 4, 12, 12, 4, 0, 0, 3, 1, 2, 1, 1},
        {1, 1, 3, 28, 28, 16, 0, 0, 7, 2, 2, 1, 3},  {4, 2, 6, 6, 6, 10, 0, 0, 2, 2, 2, 1, 0},
        {2, 1, 3, 9, 11, 8, 0, 0, 3, 1, 1, 1, 0},    {1, 1, 2, 3, 3, 2, 0, 0, 3, 1, 1, 1, 3},
    };

    if (!is_there) {
        skip();
    }
    for (int turn = 0; turn < 2; turn++) { /* the second one finds them compiled */
        for (size_t i = 0; i < COUNT(shape); i++) {
            compare(shape[i]);
        }
    }
    assert_int_equal(HASH_COUNT(convolutions), COUNT(shape) * TENSORS);
}

enum { FLOATS = 2 * 16 * 10 * 10, WEIGHT_FLOATS = 16 * 16 * 3 * 3 };

static float x[FLOATS], w[WEIGHT_FLOATS], delta[FLOATS];

/* Both products that read the weights, the first ones or others, into memory of the caller. */
static void both(int others, float *forward, float *backward)
{
    struct cmn_convolution s = {2, 1, 16, 10, 10, 16, 10, 10, 3, 1, 1, 1, 1};

    for (int i = 0; i < WEIGHT_FLOATS; i++) {
        w[i] = (float)(i * 11 % 29 - 14) / 16;
        w[i] = others ? 1 - 2 * w[i] : w[i];
    }
    memset(backward, 0, FLOATS * sizeof *backward);
    assert_int_equal(convolve(&s, CMN_OUTPUT, x, w, forward), 1);
    assert_int_equal(convolve(&s, CMN_INPUT, backward, w, delta), 1);
}

/* What is kept while weights stay is never used for others. */
TEST(held_weights)
{
    static float old[2][FLOATS], is[2][FLOATS], anew[2][FLOATS];
    const struct held *h;

    if (!is_there) {
        skip();
    }
    for (int i = 0; i < FLOATS; i++) {
        x[i] = (float)(i * 7 % 23 - 11) / 8;
        delta[i] = (float)(i * 5 % 19 - 9) / 8;
    }
    both(0, old[0], old[1]);
    cmn_convolution_hold_weights(1);
    for (int turn = 0; turn < 2; turn++) {
        both(0, is[0], is[1]);
        assert_memory_equal(is, old, sizeof is);
    }
    HASH_FIND_PTR(held, &(const float *){w}, h);
    assert_non_null(h);
    both(1, is[0], is[1]); /* still held: the old ones, where they were reordered at all */
    assert_int_equal(!memcmp(is[0], old[0], sizeof is[0]), h->room[OUTPUT].bytes > 0);
    assert_int_equal(!memcmp(is[1], old[1], sizeof is[1]), h->room[INPUT].bytes > 0);
    cmn_convolution_hold_weights(0);
    both(1, anew[0], anew[1]);
    assert_memory_not_equal(anew[0], old[0], sizeof old[0]);
    assert_memory_not_equal(anew[1], old[1], sizeof old[1]);
    both(0, is[0], is[1]); /* nothing is held */
    assert_memory_equal(is, old, sizeof is);
    for (int others = 1; others >= 0;
         others--) { /* the next step's, in the memory of those before */
        cmn_convolution_hold_weights(1);
        both(others, is[0], is[1]);
        assert_memory_equal(is, others ? anew : old, sizeof is);
    }
    cmn_convolution_hold_weights(0);
}

/* Weights that a reorder would change are Darknet's to use. */
TEST(wrong_reorders)
{
    struct cmn_convolution s = {2, 1, 5, 10, 10, 7, 10, 10, 3, 1, 1, 1, 1};

    if (!is_there) {
        skip();
    }
    spoils = 1;
    for (int result = 0; result < TENSORS; result++) {
        assert_int_equal(convolve(&s, (enum cmn_convolution_result)result, x, w, delta), 0);
    }
    spoils = 0;
    s.batch++;
    assert_int_equal(convolve(&s, CMN_OUTPUT, x, w, delta), 1);
}

/* oversteps() */
TEST(none_that_writes_elsewhere)
{
    struct cmn_convolution s = {1, 1, 4, 38, 38, 14, 19, 19, 1, 2, 2, 1, 0};
    const struct cmn_convolution_data nhwc = {.input_in_nhwc = 1, .output_in_nhwc = 1}, plain = {0};

    if (!is_there) {
        skip();
    }
    assert_int_equal(cmn_convolution_knows(&s, &plain), 1);
    assert_int_equal(cmn_convolution_knows(&s, &nhwc), 0);
    s.channels = 16;
    assert_int_equal(cmn_convolution_knows(&s, &nhwc), 1);
}

static void switch_on(void)
{
    cmn_convolution_use(1);
#ifdef IN_BF16
    is_there = cmn_convolution_use_bf16(1);
#endif
}

TESTS(switch_on, NULL)
