#include "engine/nhwc_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/float16.h"
#include "base/memory.h"
#include "cmn.h"
#include "engine/channels.h"
#include "engine/convolution.h"
#include "engine/darknet_tree.h"
#include "engine/nhwc_images.h"

#include "convolutional_layer.h"
#include "gemm.h"

/* This is planned for a layer. */
struct place {
    struct cmn_tree_functions own; /* Darknet's */
    int kept;                      /* output and gradient are images in NHWC */
    int computed;                  /* by this file, in a training's passes */
    int root;      /* the layer whose memory it uses: itself, or for dropout the one before it */
    int has_delta; /* of a root: a layer behind it has written the gradient */
};

static struct {
    struct cmn_net *net; /* NULL: not open */
    struct cmn_nhwc_trainer trainer;
    const struct cmn_nhwc_images *images;
    int in_bf16;
    struct place *place;
    float less;               /* a variance is a sum of squares / (count - less) */
    int width, height, batch; /* of layer 0 when the plan was made */
} plan;

/* Memory for one tensor, which grows. */
struct room {
    void *at;
    size_t bytes;
};
static struct room delta_room, image_room, sum_room;

/* Returns where the n-th value of an image is. */
static void *value_of(const void *image, size_t n)
{
    return (char *)image + n * plan.images->bytes;
}

static void *take(struct room *r, size_t bytes)
{
    if (r->bytes < bytes) {
        free(r->at);
        r->at = cmn_malloc(bytes, 1);
        r->bytes = bytes;
    }
    return r->at;
}

/* ---- the plan ---- */

/* Returns the factor of values below 0 in this activation, or -1 if it is another one. */
static float slope_of(const layer *l)
{
    switch (l->activation) {
    case LINEAR:
        return 1;
    case LEAKY:
        return 0.1F;
    case RELU:
        return 0;
    default:
        return -1;
    }
}

/* Points *from to the numbers of the layers whose outputs layer i reads (they are in `pair` if it is
 * no route), and returns how many they are; -1 if this is not known for its type. */
static int inputs_of(const network *net, int i, const int **from, int pair[2])
{
    const layer *l = &net->layers[i];

    *from = pair;
    pair[0] = i - 1;
    pair[1] = l->index;
    switch (l->type) {
    case ROUTE:
        *from = l->input_layers;
        return l->n;
    case SHORTCUT:
        return cmn_tree_view(l).usual ? 2 : -1;
    case CONVOLUTIONAL:
    case DECONVOLUTIONAL:
    case CONNECTED:
    case MAXPOOL:
    case AVGPOOL:
    case SOFTMAX:
    case DROPOUT:
    case CROP:
    case COST:
    case LOCAL:
    case ACTIVE:
    case BATCHNORM:
    case DETECTION:
    case REGION:
    case YOLO:
    case REORG:
    case UPSAMPLE:
        return i > 0;
    default:
        return -1;
    }
}

/* A connected layer is a convolution of one image, which has a pixel for each of the batch's, and
 * whose channels are the layer's inputs. */
static int multiplies(const layer *l)
{
    return l->type == CONVOLUTIONAL || l->type == CONNECTED;
}

/* Returns whether an output has one pixel, so that NHWC is Darknet's order, too. */
static int is_pixel(const layer *l)
{
    return l->out_h == 1 && l->out_w == 1;
}

/* In 32 bits OpenBLAS computes a connected layer: oneDNN would have to reorder its weights. */
static int by_openblas(const layer *l, int in_bf16)
{
    return l->type == CONNECTED && !in_bf16;
}

static struct cmn_convolution_data kept_data(const layer *l, int input, int output)
{
    return (struct cmn_convolution_data){
        .input_in_nhwc = input, .output_in_nhwc = output, .is_connected = l->type == CONNECTED};
}

static int joins_equal_sizes(const network *net, const layer *route)
{
    int equal = 1, channels = 0;

    for (int i = 0; i < route->n; i++) {
        const layer *l = &net->layers[route->input_layers[i]];
        equal = equal && l->out_h == route->out_h && l->out_w == route->out_w;
        channels += l->out_c;
    }
    return equal && channels == route->out_c;
}

static int has_size_of(const layer *l, const layer *other)
{
    return other->outputs == l->outputs && other->out_c == l->out_c;
}

/* Returns how many pixels of the larger one of two sides belong to one of the other, or 0 if that is no
 * whole number. */
static int pixels_for_each(int a, int b)
{
    int large = a > b ? a : b, small = a > b ? b : a;

    return large % small ? 0 : large / small;
}

/* Returns whether a shortcut adds images of which one has less channels, or less pixels. */
static int joins_sizes(const layer *l, const layer *other, const struct cmn_tree_view *view)
{
    int rows = pixels_for_each(l->out_h, other->out_h);

    return view->alpha == 1 && view->beta == 1 && (rows == 1 || view->samples) && rows > 0 &&
           rows == pixels_for_each(l->out_w, other->out_w) &&
           (l->out_h > other->out_h) == (l->out_w > other->out_w);
}

/* Returns whether this file can compute a layer if its images are kept where it needs that. */
static int can_compute(const network *net, int i)
{
    const layer *l = &net->layers[i];
    struct cmn_tree_view view = cmn_tree_view(l);
    const layer *other = l->type == SHORTCUT ? &net->layers[l->index] : l;
    struct cmn_convolution_data all = kept_data(l, 1, 1), in = kept_data(l, 1, 0);

    if (!view.usual) {
        return 0;
    }
    switch (l->type) {
    case CONNECTED:
    case CONVOLUTIONAL:
        return slope_of(l) >= 0 &&
               (by_openblas(l, plan.in_bf16) || (cmn_convolution_knows(&view.convolution, &all) &&
                                                 cmn_convolution_knows(&view.convolution, &in)));
    case SHORTCUT:
        return slope_of(l) >= 0 && (has_size_of(l, other) || joins_sizes(l, other, &view));
    case AVGPOOL:
        return l->h == l->w;
    case UPSAMPLE:
        return !l->reverse;
    case MAXPOOL:
    case DROPOUT:
        return 1;
    case ROUTE:
        return joins_equal_sizes(net, l);
    default:
        return 0;
    }
}

/* Makes the outputs plain that cannot be kept; returns whether it changed anything. An output is
 * kept if all layers that read it can read such images. A convolution can read and write either
 * kind, a connected layer too if its input has one pixel, another layer only what it can keep
 * itself. */
static int make_plain(const network *net)
{
    int changed = 0, pair[2], n;
    const int *from;

    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        struct place *at = &plan.place[i];
        n = inputs_of(net, i, &from, pair);
        for (int k = 0; k < n; k++) {
            struct place *input = &plan.place[from[k]];
            int flat = l->type == CONNECTED && !is_pixel(&net->layers[from[k]]);
            if (at->computed && multiplies(l)) {
                changed |= flat && input->kept;
                input->kept &= !flat;
            } else if (at->kept != input->kept) {
                changed = 1;
                at->kept = input->kept = 0;
            }
        }
    }
    return changed;
}

static void make_plan(void)
{
    const network *net = cmn_network(plan.net);
    int known = !plan.in_bf16 || cmn_channels_fast(1), pair[2];
    const int *from;

    plan.width = net->layers->w;
    plan.height = net->layers->h;
    plan.batch = net->layers->batch;
    for (int i = 0; i < net->n; i++) {
        known = known && inputs_of(net, i, &from, pair) >= 0 && !net->layers[i].onlyforward;
    }
    for (int i = 0; i < net->n; i++) {
        struct place *at = &plan.place[i];
        at->computed = known && can_compute(net, i);
        /* The last layer's output is the network's. */
        at->kept = at->computed && i < net->n - 1;
        at->root = net->layers[i].type == DROPOUT ? plan.place[i - 1].root : i;
    }
    while (make_plain(net)) {
    }
    for (int i = 0; i < net->n; i++) {
        plan.place[i].computed &= plan.place[i].kept || multiplies(&net->layers[i]);
    }
}

/* Makes the plan anew if a resize, or another number of images, came between two passes. */
static void follow_sizes(void)
{
    const layer *first = cmn_network(plan.net)->layers;

    if (plan.width != first->w || plan.height != first->h || plan.batch != first->batch) {
        make_plan();
    }
}

/* ---- tensors ---- */

static size_t values_of(const layer *l)
{
    return (size_t)l->outputs * (size_t)l->batch;
}

static struct cmn_pixels pixels_of(const layer *l)
{
    return (struct cmn_pixels){(size_t)l->batch * (size_t)l->out_h * (size_t)l->out_w, l->out_c};
}

/* One image of Darknet's output, where its channels lie together otherwise. */
static struct cmn_channels channels_of(const layer *l, int images)
{
    return (struct cmn_channels){CMN_CHANNELS_LAST, images, l->out_c,
                                 (size_t)l->out_h * (size_t)l->out_w};
}

static int input_is_kept(const struct cmn_tree_pass *p)
{
    return p->index > 0 && plan.place[p->index - 1].kept;
}

/* Returns the gradient of a kept layer's output. Where no layer behind it has written it, it is
 * zero. */
static void *delta_of(const struct cmn_tree_pass *p, int i)
{
    struct place *at = &plan.place[plan.place[i].root];
    const layer *l = &p->layers[i];

    if (!at->has_delta) {
        memset(l->delta, 0, values_of(l) * plan.images->bytes);
        at->has_delta = 1;
    }
    return l->delta;
}

/* Returns whether a layer has to add to the gradient of layer i's output, and not to overwrite it. */
static int adds_to(int i)
{
    struct place *at = &plan.place[plan.place[i].root];
    int adds = at->has_delta;

    at->has_delta = 1;
    return adds;
}

/* ---- convolution or connected layer, with batch normalisation and activation ---- */

/* A vector of numbers for each filter. */
struct filters {
    float *factor, *term, *by_delta, *by_x, *constant;
    double *sums; /* 1 + 2 * filters */
};

static struct filters open_filters(const layer *l)
{
    size_t n = (size_t)l->out_c;
    float *vectors = cmn_alloc_floats(5 * n);

    return (struct filters){.factor = vectors,
                            .term = vectors + n,
                            .by_delta = vectors + 2 * n,
                            .by_x = vectors + 3 * n,
                            .constant = vectors + 4 * n,
                            .sums = cmn_calloc(1 + 2 * n, sizeof(double))};
}

static void close_filters(struct filters *f)
{
    free(f->factor);
    free(f->sums);
}

/* Returns how an output follows from x, what the convolution has computed: normalised, scaled,
 * shifted, and with the activation. Without batch normalisation the output overwrites x; backward,
 * it is the output itself that says on which side of 0 a value was. */
static struct cmn_map map_of(const layer *l, const struct filters *f, int is_backward)
{
    for (int k = 0; k < l->out_c; k++) {
        f->factor[k] = l->batch_normalize ? l->scales[k] / cmn_tree_deviation(l->variance[k]) : 1;
        f->term[k] = l->batch_normalize ? l->biases[k] - l->mean[k] * f->factor[k]
                     : is_backward      ? 0
                                        : l->biases[k];
    }
    return (struct cmn_map){f->factor, f->term, slope_of(l)};
}

static void find_statistics(const layer *l, const void *x, double *sums)
{
    struct cmn_pixels pixels = pixels_of(l);
    float keeps = (float)cmn_tree_layer(l).keeps, takes = (float)(1 - cmn_tree_layer(l).keeps);

    plan.images->statistics(&pixels, x, sums);
    for (int k = 0; k < l->out_c; k++) {
        l->mean[k] = (float)sums[1 + k];
        l->variance[k] = (float)(sums[1 + l->out_c + k] / (sums[0] - (double)plan.less));
    }
    plan.trainer.statistics(plan.trainer.self, l->mean, l->variance, l->out_c, (int)pixels.pixels);
    for (int k = 0; k < l->out_c; k++) {
        l->rolling_mean[k] = l->rolling_mean[k] * keeps + l->mean[k] * takes;
        l->rolling_variance[k] = l->rolling_variance[k] * keeps + l->variance[k] * takes;
    }
}

/* Does what cmn_convolution_multiply() does, for a connected layer in 32 bits. */
static void multiply_matrices(const layer *l, int result, const struct cmn_convolution_data *d)
{
    int m = l->batch, n = l->outputs, k = l->inputs;

    if (result == CMN_OUTPUT) {
        gemm(0, 1, m, n, k, 1, d->input, k, d->weights, k, 0, d->output, n);
    } else if (result == CMN_WEIGHTS) {
        gemm(1, 0, n, k, m, 1, d->output, n, d->input, k, 1, d->weights, k);
    } else {
        gemm(0, 0, m, k, n, 1, d->output, n, d->weights, k, !d->input_in_nhwc, d->input, k);
    }
}

static void multiply(const layer *l, int result, const struct cmn_convolution_data *data)
{
    struct cmn_tree_view view = cmn_tree_view(l);

    plan.trainer.progress(plan.trainer.self);
    if (by_openblas(l, plan.in_bf16)) {
        multiply_matrices(l, result, data);
    } else if (!cmn_convolution_multiply(&view.convolution, result, data)) {
        cmn_fatal("oneDNN cannot compute a convolution that it could compute before");
    }
}

/* Writes the mapped values as floats in Darknet's layout, image by image. */
static void write_plain(const layer *l, const struct cmn_map *map, const void *x)
{
    struct cmn_pixels image = {(size_t)l->out_h * (size_t)l->out_w, l->out_c};
    struct cmn_channels channels = channels_of(l, 1);
    float *floats;

    if (is_pixel(l)) {
        image.pixels = (size_t)l->batch;
        plan.images->map(&image, map, x, NULL, l->output);
        return;
    }
    floats = take(&image_room, (size_t)l->outputs * sizeof *floats);
    for (int i = 0; i < l->batch; i++) {
        size_t at = (size_t)i * (size_t)l->outputs;
        plan.images->map(&image, map, value_of(x, at), NULL, floats);
        cmn_channels_unpack(&channels, 0, l->output + at, floats);
    }
}

static void forward_convolution(const layer *l, const struct cmn_tree_pass *p)
{
    int kept = plan.place[p->index].kept;
    void *x = l->batch_normalize ? l->x : l->output;
    struct cmn_convolution_data data = {.input = p->input,
                                        .weights = l->weights,
                                        .output = x,
                                        .input_in_nhwc = input_is_kept(p),
                                        .output_in_nhwc = kept || l->batch_normalize,
                                        .is_connected = l->type == CONNECTED};
    struct cmn_pixels pixels = pixels_of(l);
    struct filters f = open_filters(l);
    struct cmn_map map;

    multiply(l, CMN_OUTPUT, &data);
    if (l->batch_normalize) {
        find_statistics(l, x, f.sums);
    }
    map = map_of(l, &f, 0);
    if (kept) {
        plan.images->map(&pixels, &map, x, l->output, NULL);
    } else if (l->batch_normalize) {
        write_plain(l, &map, x);
    } else {
        add_bias(l->output, l->biases, l->batch, l->out_c, l->out_h * l->out_w);
        activate_array(l->output, (int)values_of(l), l->activation);
    }
    close_filters(&f);
}

/* Turns `delta`, the gradient of the output, into that of x, and adds to the gradients of biases and
 * scales. With batch normalisation: its two sums over all values of a filter are those of the batch's
 * mean and variance. */
static void backward_map(const layer *l, const void *x, void *delta)
{
    struct cmn_pixels pixels = pixels_of(l);
    struct filters f = open_filters(l);
    struct cmn_map map = map_of(l, &f, 1);
    float count = (float)pixels.pixels;
    int leaves_biases = cmn_tree_view(l).leaves_biases;

    if (!l->batch_normalize) {
        plan.images->sum_deltas(&pixels, &map, f.by_x, x, delta, f.sums);
    } else {
        plan.images->sum_deltas(&pixels, &map, l->mean, x, delta, f.sums);
    }
    for (int k = 0; k < l->out_c; k++) {
        double sum = f.sums[k], product = f.sums[l->out_c + k];
        l->bias_updates[k] += leaves_biases ? 0 : (float)sum;
        f.by_delta[k] = 1;
        if (l->batch_normalize) {
            double variance = (double)(l->variance[k] + .00001F), scale = (double)l->scales[k];
            f.by_delta[k] = (float)(scale / sqrt(variance));
            l->scale_updates[k] += (float)(product / (double)cmn_tree_deviation(l->variance[k]));
            l->mean_delta[k] = (float)(sum * scale * (-1 / sqrt(variance)));
            l->variance_delta[k] = (float)(product * scale * -.5 * pow(variance, -1.5));
        }
    }
    if (l->batch_normalize) {
        plan.trainer.deltas(plan.trainer.self, l->mean_delta, l->variance_delta, l->out_c,
                            (int)pixels.pixels);
    }
    for (int k = 0; k < l->out_c && l->batch_normalize; k++) {
        f.by_x[k] = 2 * l->variance_delta[k] / count;
        f.constant[k] = l->mean_delta[k] / count - f.by_x[k] * l->mean[k];
    }
    if (l->batch_normalize || slope_of(l) != 1) {
        plan.images->map_deltas(&pixels, &map, f.by_delta, f.by_x, f.constant, x, delta);
    }
    close_filters(&f);
}

/* Returns the gradient of x in NHWC. */
static void *delta_of_x(const layer *l, const struct cmn_tree_pass *p)
{
    void *x = l->batch_normalize ? l->x : l->output, *delta;
    struct cmn_channels channels = channels_of(l, l->batch);
    int kept = plan.place[p->index].kept;

    if (!kept && !l->batch_normalize) {
        gradient_array(l->output, (int)values_of(l), l->activation, l->delta);
        backward_bias(l->bias_updates, l->delta, l->batch, l->out_c, l->out_h * l->out_w);
    }
    if (kept) {
        delta = delta_of(p, p->index);
    } else if (is_pixel(l) && !plan.in_bf16) {
        delta = l->delta;
    } else {
        delta = take(&delta_room, values_of(l) * plan.images->bytes);
        if (is_pixel(l)) {
            cmn_float16_encode(CMN_BF16, delta, l->delta, values_of(l));
        } else {
            cmn_channels_pack(&channels, plan.in_bf16, delta, l->delta);
        }
    }
    if (kept || l->batch_normalize) {
        backward_map(l, x, delta);
    }
    return delta;
}

static void backward_convolution(const layer *l, const struct cmn_tree_pass *p)
{
    struct cmn_convolution_data data = {.input = p->input,
                                        .weights = l->weight_updates,
                                        .output = delta_of_x(l, p),
                                        .input_in_nhwc = input_is_kept(p),
                                        .output_in_nhwc = 1,
                                        .is_connected = l->type == CONNECTED};
    size_t values = (size_t)l->inputs * (size_t)l->batch;
    void *delta = p->delta;
    int overwrites;

    multiply(l, CMN_WEIGHTS, &data);
    if (!p->delta) {
        return;
    }
    overwrites = l->type == CONVOLUTIONAL && cmn_tree.convolution_overwrites;
    data.weights = l->weights;
    data.input = p->delta;
    if (!data.input_in_nhwc && overwrites) {
        memset(p->delta, 0, values * sizeof *p->delta);
    }
    if (data.input_in_nhwc && adds_to(p->index - 1) && !overwrites) {
        data.input = take(&sum_room, values * plan.images->bytes);
        multiply(l, CMN_INPUT, &data);
        plan.images->add(values, 1, delta, 1, data.input, 1, delta);
    } else {
        multiply(l, CMN_INPUT, &data);
    }
}

/* ---- other layers ---- */

static struct cmn_windows pooling_of(const layer *l)
{
    struct cmn_tree_view view = cmn_tree_view(l);

    return (struct cmn_windows){.images = l->batch,
                                .channels = l->c,
                                .height = l->h,
                                .width = l->w,
                                .out_height = l->out_h,
                                .out_width = l->out_w,
                                .size = l->size,
                                .stride_y = view.convolution.stride_y,
                                .stride_x = view.convolution.stride_x,
                                .top = -l->pad / 2,
                                .left = -l->pad / 2};
}

static struct cmn_windows upsampling_of(const layer *l)
{
    return (struct cmn_windows){.images = l->batch,
                                .channels = l->c,
                                .height = l->out_h,
                                .width = l->out_w,
                                .out_height = l->h,
                                .out_width = l->w,
                                .size = l->stride,
                                .stride_y = l->stride,
                                .stride_x = l->stride};
}

/* The whole image is one window. */
static struct cmn_windows averaging_of(const layer *l)
{
    return (struct cmn_windows){.images = l->batch,
                                .channels = l->c,
                                .height = l->h,
                                .width = l->w,
                                .out_height = 1,
                                .out_width = 1,
                                .size = l->w,
                                .stride_y = l->h,
                                .stride_x = l->w};
}

/* Gives a factor of this layer's gradient to the layer `to`, whose output has the same size. */
static void give_delta(const struct cmn_tree_pass *p, int to, float factor, const void *delta)
{
    const layer *l = &p->layers[to];
    void *into = l->delta;

    if (adds_to(to)) {
        plan.images->add(values_of(l), factor, delta, 1, into, 1, into);
    } else {
        plan.images->add(values_of(l), factor, delta, 0, delta, 1, into);
    }
}

/* Adds the channels that both images have, of the pixels that both have: of the larger image these are
 * every k-th one of each row and column. */
static void add_common(const layer *from, const void *x, const layer *to, void *y)
{
    int rows = from->out_h < to->out_h ? from->out_h : to->out_h;
    int columns = from->out_w < to->out_w ? from->out_w : to->out_w;

    if (from->out_h == to->out_h) {
        plan.images->copy(pixels_of(to).pixels, x, from->out_c, y, to->out_c, 1);
        return;
    }
    for (int i = 0; i < to->batch * rows * columns; i++) {
        int image = i / (rows * columns), row = i / columns % rows, column = i % columns;
        size_t at[2];
        for (int k = 0; k < 2; k++) {
            const layer *l = k ? to : from;
            int line = (image * l->out_h + row * (l->out_h / rows)) * l->out_w;
            at[k] = (size_t)(line + column * (l->out_w / columns)) * (size_t)l->out_c;
        }
        plan.images->copy(1, value_of(x, at[0]), from->out_c, value_of(y, at[1]), to->out_c, 1);
    }
}

static void forward_shortcut(const layer *l, const struct cmn_tree_pass *p)
{
    const layer *other = &p->layers[l->index];
    struct cmn_tree_view view = cmn_tree_view(l);
    size_t n = values_of(l);

    if (has_size_of(l, other)) {
        plan.images->add(n, view.alpha, p->input, view.beta, other->output, slope_of(l), l->output);
        return;
    }
    plan.images->add(n, 1, p->input, 0, p->input, 1, l->output);
    add_common(other, other->output, l, l->output);
    plan.images->add(n, 1, l->output, 0, l->output, slope_of(l), l->output);
}

static void backward_shortcut(const layer *l, const struct cmn_tree_pass *p)
{
    const layer *other = &p->layers[l->index];
    struct cmn_tree_view view = cmn_tree_view(l);
    void *delta = delta_of(p, p->index);

    plan.images->activation_deltas(values_of(l), l->output, slope_of(l), delta);
    give_delta(p, p->index - 1, view.alpha, delta);
    if (has_size_of(l, other)) {
        give_delta(p, l->index, view.beta, delta);
    } else {
        add_common(l, delta, other, delta_of(p, l->index));
    }
}

static void backward_average(const layer *l, const struct cmn_tree_pass *p)
{
    const layer *before = &p->layers[p->index - 1];
    struct cmn_windows w = averaging_of(l);
    float scale = 1 / (float)(l->h * l->w);
    const void *delta = delta_of(p, p->index);
    void *room;

    if (!adds_to(p->index - 1)) {
        plan.images->spread(&w, scale, delta, p->delta);
        return;
    }
    room = take(&image_room, values_of(before) * plan.images->bytes);
    plan.images->spread(&w, scale, delta, room);
    plan.images->add(values_of(before), 1, room, 1, p->delta, 1, p->delta);
}

static void forward_route(const layer *l, const struct cmn_tree_pass *p)
{
    size_t channel = 0;

    for (int i = 0; i < l->n; i++) {
        const layer *from = &p->layers[l->input_layers[i]];
        plan.images->copy(pixels_of(l).pixels, from->output, from->out_c,
                          value_of(l->output, channel), l->out_c, 0);
        channel += (size_t)from->out_c;
    }
}

static void backward_route(const layer *l, const struct cmn_tree_pass *p)
{
    const void *delta = delta_of(p, p->index);
    size_t channel = 0;

    for (int i = 0; i < l->n; i++) {
        const layer *to = &p->layers[l->input_layers[i]];
        plan.images->copy(pixels_of(l).pixels, value_of(delta, channel), l->out_c, to->delta,
                          to->out_c, adds_to(l->input_layers[i]));
        channel += (size_t)to->out_c;
    }
}

static void draw(const layer *l)
{
    for (size_t i = 0; i < (size_t)l->inputs * (size_t)l->batch; i++) {
        l->rand[i] = rand_uniform(0, 1);
    }
}

static int forward(const layer *l, const struct cmn_tree_pass *p)
{
    const void *input = p->input;
    void *output = l->output;
    struct cmn_windows w;

    follow_sizes();
    if (!plan.place[p->index].computed) {
        return 0;
    }
    plan.place[p->index].has_delta = 0;
    switch (l->type) {
    case CONNECTED:
    case CONVOLUTIONAL:
        cmn_convolution_loops_alone(by_openblas(l, plan.in_bf16));
        forward_convolution(l, p);
        break;
    case MAXPOOL:
        w = pooling_of(l);
        plan.images->max(&w, input, output, l->indexes);
        break;
    case UPSAMPLE:
        w = upsampling_of(l);
        plan.images->spread(&w, l->scale, input, output);
        break;
    case AVGPOOL:
        w = averaging_of(l);
        plan.images->spread_deltas(&w, 1 / (float)(l->h * l->w), input, 0, output);
        break;
    case SHORTCUT:
        forward_shortcut(l, p);
        break;
    case ROUTE:
        forward_route(l, p);
        break;
    default:
        draw(l);
        plan.images->drop(values_of(l), l->rand, l->probability, l->scale, p->input);
    }
    return 1;
}

static int backward(const layer *l, const struct cmn_tree_pass *p)
{
    void *delta, *to = p->delta;
    struct cmn_windows w;

    if (!plan.place[p->index].computed) {
        return 0;
    }
    switch (l->type) {
    case CONNECTED:
    case CONVOLUTIONAL:
        cmn_convolution_loops_alone(by_openblas(l, plan.in_bf16));
        backward_convolution(l, p);
        break;
    case MAXPOOL:
        delta = delta_of(p, p->index);
        w = pooling_of(l);
        plan.images->max_deltas(&w, delta, l->indexes, adds_to(p->index - 1), to);
        break;
    case UPSAMPLE:
        delta = delta_of(p, p->index);
        w = upsampling_of(l);
        plan.images->spread_deltas(&w, l->scale, delta, adds_to(p->index - 1), to);
        break;
    case AVGPOOL:
        backward_average(l, p);
        break;
    case SHORTCUT:
        backward_shortcut(l, p);
        break;
    case ROUTE:
        backward_route(l, p);
        break;
    default:
        plan.images->drop(values_of(l), l->rand, l->probability, l->scale, delta_of(p, p->index));
    }
    return 1;
}

/* ---- measuring ---- */

/* A layer's tensors; images are 0. */
struct trial {
    float *input, *output, *gradient;
};

/* Returns the seconds of a layer's three products. */
static double time_of(const layer *l, int in_bf16, const struct trial *t)
{
    struct cmn_tree_view view = cmn_tree_view(l);
    struct cmn_convolution_data data = kept_data(l, 1, 1);
    double began = cmn_clock();

    data.input = t->input;
    data.output = t->output;
    for (int result = CMN_INPUT; result <= CMN_OUTPUT; result++) {
        data.weights = result == CMN_WEIGHTS ? t->gradient : l->weights;
        if (by_openblas(l, in_bf16)) {
            multiply_matrices(l, result, &data);
        } else {
            cmn_convolution_multiply(&view.convolution, result, &data);
        }
    }
    return cmn_clock() - began;
}

double cmn_nhwc_layers_measure(struct cmn_net *handle, int in_bf16)
{
    const network *net = cmn_network(handle);
    double sum[2] = {0, 0};

    cmn_convolution_use_bf16(in_bf16);
    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        struct cmn_tree_view view = cmn_tree_view(l);
        struct cmn_convolution_data all = kept_data(l, 1, 1);
        const struct cmn_convolution *c = &view.convolution;
        if (multiplies(l) && view.convolves && cmn_convolution_knows(c, &all)) {
            size_t weights = (size_t)c->filters * (size_t)c->channels * (size_t)(c->size * c->size);
            struct trial t = {cmn_alloc_floats((size_t)l->inputs * (size_t)l->batch),
                              cmn_alloc_floats(values_of(l)), cmn_alloc_floats(weights)};
            time_of(l, in_bf16, &t); /* what is done once, as to take memory */
            sum[0] += time_of(l, in_bf16, &t);
            sum[1] += time_of(l, in_bf16, &t);
            free(t.input);
            free(t.output);
            free(t.gradient);
        }
    }
    return sum[0] < sum[1] ? sum[0] : sum[1];
}

/* ---- open and close ---- */

static const struct cmn_tree_functions *own(int i)
{
    return &plan.place[i].own;
}

void cmn_nhwc_layers_open(struct cmn_net *handle, int in_bf16,
                          const struct cmn_nhwc_trainer *trainer)
{
    const network *net = cmn_network(handle);

    cmn_nhwc_layers_close();
    plan.net = handle;
    plan.trainer = *trainer;
    plan.in_bf16 = in_bf16;
    cmn_convolution_use_bf16(in_bf16);
    plan.images = in_bf16 ? &cmn_nhwc_bf16 : &cmn_nhwc_floats;
    plan.less = (float)cmn_net_traits(handle).variance_less;
    plan.place = cmn_calloc((size_t)net->n, sizeof *plan.place);
    make_plan();
    cmn_tree_instead = (struct cmn_tree_instead){forward, backward, own};
    for (int i = 0; i < net->n; i++) {
        layer *l = &net->layers[i];
        plan.place[i].own = (struct cmn_tree_functions){l->forward, l->backward};
        l->forward = cmn_tree_functions.forward;
        l->backward = cmn_tree_functions.backward;
    }
}

void cmn_nhwc_layers_close(void)
{
    const network *net = plan.net ? cmn_network(plan.net) : NULL;

    for (int i = 0; net && i < net->n; i++) {
        net->layers[i].forward = plan.place[i].own.forward;
        net->layers[i].backward = plan.place[i].own.backward;
    }
    free(plan.place);
    memset(&plan, 0, sizeof plan);
}

int cmn_nhwc_layers_overwrite(const struct cmn_net *net, int i)
{
    if (net != plan.net) {
        return 0;
    }
    follow_sizes();
    return plan.place[i].kept;
}

float *cmn_nhwc_layers_decode(const struct cmn_net *net, int i)
{
    const layer *l = &cmn_network(net)->layers[i];
    float *floats;

    if (net != plan.net || !plan.place[i].kept || !plan.in_bf16) {
        return NULL;
    }
    floats = cmn_alloc_floats(values_of(l));
    cmn_float16_decode(CMN_BF16, floats, (const uint16_t *)l->output, values_of(l));
    return floats;
}
