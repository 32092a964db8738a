#include "config/cfg_shapes.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "config/cfg_keys.h"

void cmn_cfg_tell(struct cmn_cfg_walk *w, enum cmn_cfg_fault fault, const struct cmn_cfg_line *line,
                  const char *format, ...)
{
    char text[900];
    size_t n = 0;
    va_list args;

    line = line ? line : w->head;
    w->faults += fault < CMN_CFG_UNUSED_KEY;
    if (w->drawn) {
        n = (size_t)snprintf(text, sizeof text, "random=1 also draws %d x %d pixels: ", w->drawn,
                             w->drawn);
    }
    va_start(args, format);
    vsnprintf(text + n, sizeof text - n, format, args);
    va_end(args);
    cmn_cfg_say(w->listener, fault, w->q->name, line ? line->line : 1, "%s", text);
}

#define FAULT(w, key, ...) \
    cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, cmn_cfg_find((w)->q->cfg, (w)->section, key), __VA_ARGS__)

static double real(struct cmn_cfg_walk *w, const char *key, double otherwise)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(w->q->cfg, w->section, key);

    return l ? strtod(l->value, NULL) : otherwise;
}

double cmn_cfg_whole(struct cmn_cfg_walk *w, const char *key, double otherwise)
{
    return cmn_cfg_int(w->q->cfg, w->section, key, (int)otherwise);
}

/* ---- what layers have in common ---- */

/* Darknet counts the values of a layer with int. */
static void fits(struct cmn_cfg_walk *w, double values, const char *what)
{
    if (!(values <= INT_MAX)) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "%s would have %.0f %s, and Darknet counts them up to %d: make it smaller",
                     w->head->key, values, what, INT_MAX);
    }
}

/* Where Darknet changes the size of a network, it ends at a workspace of more bytes than this. */
static void fits_workspace(struct cmn_cfg_walk *w, double values)
{
    const double most = 2e9;

    fits(w, values, "values in the columns of a convolution");
    if (w->drawn && values * 4 > most) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "%s needs a workspace of %.0f bytes, and may have %.0f", w->head->key,
                     values * 4, most);
    }
}

/* Returns whether the input is an image, which the layer needs. */
static int takes_image(struct cmn_cfg_walk *w)
{
    int is = w->in.w >= 1 && w->in.h >= 1 && w->in.c >= 1;

    if (w->in.known && !is) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "%s needs an image, and what is before it gives none: put it before the "
                     "layers without pixels, or name a layer with them in a [route] before it",
                     w->head->key);
    }
    if (w->in.known && is && w->in.values < w->in.w * w->in.h * w->in.c) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "%s reads an image of %.0f x %.0f x %.0f values, and what is before it has "
                     "%.0f: make inputs= as large, or remove it",
                     w->head->key, w->in.w, w->in.h, w->in.c, w->in.values);
    }
    return w->in.known && is;
}

static void image_out(struct cmn_cfg_walk *w, double width, double height, double channels)
{
    w->out = (struct cmn_cfg_shape){width, height, channels, width * height * channels, 1};
}

static void same(struct cmn_cfg_walk *w)
{
    w->out = w->in;
}

/* The values stay, but they are no image for the next layer. */
static void values_only(struct cmn_cfg_walk *w)
{
    w->out = (struct cmn_cfg_shape){.values = w->in.values, .known = w->in.known};
}

/* ---- layers with filters ---- */

/* Checks the products of a layer with n filters: its outputs in a batch, the columns of im2col, and
 * its weights. */
static void fit_filters(struct cmn_cfg_walk *w, double n, double size, double width, double height)
{
    fits(w, w->batch * n * width * height, "outputs of a micro-batch");
    fits_workspace(w, w->in.c * size * size * width * height);
    fits(w, w->in.c * size * size * n, "weights");
}

/* Returns how often a filter finds place, as Darknet divides. */
static double places(double side, double padding, double size, double stride)
{
    return trunc((side + padding - size) / stride) + 1;
}

static double padding_of(struct cmn_cfg_walk *w, double size)
{
    return cmn_cfg_whole(w, "pad", 0) ? floor(size / 2) : cmn_cfg_whole(w, "padding", 0);
}

/* Returns stride_x or stride_y, which only AlexeyAB's Darknet has, or stride. */
static double stride_of(struct cmn_cfg_walk *w, const char *key)
{
    double own = cmn_cfg_has_more() ? cmn_cfg_whole(w, key, -1) : -1;

    return own >= 1 ? own : cmn_cfg_whole(w, "stride", 1);
}

/* Returns whether a key of AlexeyAB's changes the shape in a way that only Darknet computes. */
static int is_smoothed(struct cmn_cfg_walk *w)
{
    return cmn_cfg_has_more() &&
           (cmn_cfg_whole(w, "antialiasing", 0) || cmn_cfg_whole(w, "dilation", 1) > 1);
}

static void convolutional(struct cmn_cfg_walk *w)
{
    double n = cmn_cfg_whole(w, "filters", 1), size = cmn_cfg_whole(w, "size", 1);
    double groups = cmn_cfg_whole(w, "groups", 1), padding = padding_of(w, size);

    if (!takes_image(w)) {
        w->out.c = n;
        return;
    }
    if (groups < 1 || fmod(w->in.c, groups) != 0 || fmod(n, groups) != 0) {
        FAULT(w, "groups", "groups=%.0f must divide the %.0f channels before it and filters=%.0f",
              groups, w->in.c, n);
    }
    image_out(w, places(w->in.w, 2 * padding, size, stride_of(w, "stride_x")),
              places(w->in.h, 2 * padding, size, stride_of(w, "stride_y")), n);
    fit_filters(w, n, size, w->out.w, w->out.h);
    w->out.known = !is_smoothed(w);
}

static void deconvolutional(struct cmn_cfg_walk *w)
{
    double n = cmn_cfg_whole(w, "filters", 1), size = cmn_cfg_whole(w, "size", 1);
    double stride = cmn_cfg_whole(w, "stride", 1), less = size - 2 * padding_of(w, size);

    if (takes_image(w)) {
        fits(w, n * size * size * w->in.h * w->in.w, "values in the columns of a convolution");
        image_out(w, (w->in.w - 1) * stride + less, (w->in.h - 1) * stride + less, n);
        fit_filters(w, n, size, w->in.w * stride + size, w->in.h * stride + size);
    }
}

static void local(struct cmn_cfg_walk *w)
{
    double n = cmn_cfg_whole(w, "filters", 1), size = cmn_cfg_whole(w, "size", 1);
    double stride = cmn_cfg_whole(w, "stride", 1), pad = cmn_cfg_whole(w, "pad", 0);

    if (takes_image(w)) {
        image_out(w, places(w->in.w, 2 * pad, size, stride), places(w->in.h, 2 * pad, size, stride),
                  n);
        fit_filters(w, n, size, w->out.w, w->out.h);
        fits(w, w->in.c * n * size * size * w->out.w * w->out.h, "weights");
        w->out.known = !cmn_cfg_has_more();
    }
}

static void connected(struct cmn_cfg_walk *w)
{
    double n = cmn_cfg_whole(w, "output", 1);

    image_out(w, 1, 1, n);
    fits(w, n * w->in.values, "weights");
    fits(w, 2 * n * w->batch, "outputs of a micro-batch");
}

/* ---- layers that change the shape ---- */

static void maxpool(struct cmn_cfg_walk *w)
{
    double stride = cmn_cfg_whole(w, "stride", 1), size = cmn_cfg_whole(w, "size", stride);
    double padding = cmn_cfg_whole(w, "padding", size - 1);

    if (takes_image(w)) {
        image_out(w, places(w->in.w, padding, size, stride_of(w, "stride_x")),
                  places(w->in.h, padding, size, stride_of(w, "stride_y")), w->in.c);
        fits(w, w->batch * w->out.values, "outputs of a micro-batch");
        w->out.known =
            !is_smoothed(w) && !(cmn_cfg_has_more() && cmn_cfg_whole(w, "maxpool_depth", 0));
    }
}

static void avgpool(struct cmn_cfg_walk *w)
{
    if (takes_image(w)) {
        image_out(w, 1, 1, w->in.c);
    }
}

static void crop(struct cmn_cfg_walk *w)
{
    double height = cmn_cfg_whole(w, "crop_height", 1), width = cmn_cfg_whole(w, "crop_width", 1);

    if (w->section > 1) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL, "[crop] must be the first layer");
    }
    if (takes_image(w)) {
        if (height > w->in.h || width > w->in.w) {
            FAULT(w, "crop_width", "a crop of %.0f x %.0f pixels does not fit into %.0f x %.0f",
                  width, height, w->in.w, w->in.h);
        }
        image_out(w, width, height, w->in.c);
    }
}

static void reorg(struct cmn_cfg_walk *w)
{
    double stride = cmn_cfg_whole(w, "stride", 1), square = stride * stride;
    int flat = cmn_cfg_whole(w, "flatten", 0) != 0, back = cmn_cfg_whole(w, "reverse", 0) != 0;
    double extra = cmn_cfg_has_more() ? 0 : cmn_cfg_whole(w, "extra", 0);

    if (!takes_image(w)) {
        return;
    }
    if (extra > 0) {
        w->out = (struct cmn_cfg_shape){.values = w->in.values + extra, .known = 1};
    } else if (!flat && fmod(w->in.c, square) != 0) {
        FAULT(w, "stride", "stride=%.0f needs a multiple of %.0f channels, and there are %.0f",
              stride, square, w->in.c);
    } else if (!(back && !flat) && (fmod(w->in.w, stride) != 0 || fmod(w->in.h, stride) != 0)) {
        FAULT(w, "stride", "stride=%.0f does not divide %.0f x %.0f pixels", stride, w->in.w,
              w->in.h);
    } else if (back) {
        image_out(w, w->in.w * stride, w->in.h * stride, floor(w->in.c / square));
    } else {
        image_out(w, w->in.w / stride, w->in.h / stride, w->in.c * square);
    }
    fits(w, w->batch * (w->in.values + extra), "outputs of a micro-batch");
}

static void upsample(struct cmn_cfg_walk *w)
{
    double stride = cmn_cfg_whole(w, "stride", 2), less = -stride;

    if (stride == 0) {
        FAULT(w, "stride", "stride=0: must be above 0, or below it to make images smaller");
    } else if (takes_image(w)) {
        if (stride < 0 && (fmod(w->in.w, less) != 0 || fmod(w->in.h, less) != 0)) {
            FAULT(w, "stride", "stride=%.0f does not divide %.0f x %.0f pixels", stride, w->in.w,
                  w->in.h);
        }
        image_out(w, stride > 0 ? w->in.w * stride : floor(w->in.w / less),
                  stride > 0 ? w->in.h * stride : floor(w->in.h / less), w->in.c);
        fits(w, w->batch * w->out.values, "outputs of a micro-batch");
    }
}

static void softmax(struct cmn_cfg_walk *w)
{
    double groups = cmn_cfg_whole(w, "groups", 1);

    if (w->in.known && (groups < 1 || fmod(w->in.values, groups) != 0)) {
        FAULT(w, "groups", "groups=%.0f must divide the %.0f values before it", groups,
              w->in.values);
    }
    if (real(w, "spatial", 0) != 0) {
        takes_image(w);
    }
    values_only(w);
}

static void dropout(struct cmn_cfg_walk *w)
{
    if (w->section == 1) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL, "[dropout] must not be the first layer");
    }
    same(w);
}

static void image_same(struct cmn_cfg_walk *w)
{
    if (takes_image(w)) {
        same(w);
    }
}

static void unknown(struct cmn_cfg_walk *w)
{
    w->out.known = 0;
}

/* ---- layers that name others ---- */

/* Reads number i of the list of layers, and returns their shape, or NULL if the list is over, or
 * if it names a layer that is not before this one. */
static const struct cmn_cfg_shape *named(struct cmn_cfg_walk *w, const char *key, int i,
                                         int *number)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(w->q->cfg, w->section, key);
    const char *s = l ? l->value : "";
    int layer = w->section - 1;

    for (; i > 0 && *s; i--) {
        s += strcspn(s, ",");
        s += *s == ',';
    }
    if (!*s || *s == '#') {
        return NULL;
    }
    *number = atoi(s);
    *number += *number < 0 ? layer : 0;
    if (*number < 0 || *number >= layer) {
        FAULT(w, key, "%s=%s: this is layer %d, and there is no layer %d before it", key, l->value,
              layer, *number);
        return NULL;
    }
    if (!strcmp(cmn_cfg_find(w->q->cfg, *number + 1, NULL)->key, "[crop]")) {
        FAULT(w, key,
              "%s=%s: layer %d is [crop], which hands no gradient back: name the one behind "
              "it",
              key, l->value, *number);
        return NULL;
    }
    return &w->shape[*number + 1];
}

static void needs_list(struct cmn_cfg_walk *w, const char *key)
{
    if (!cmn_cfg_find(w->q->cfg, w->section, key)) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL, "%s needs %s=, the layers that it reads",
                     w->head->key, key);
    }
}

static void route(struct cmn_cfg_walk *w)
{
    double groups = cmn_cfg_has_more() ? cmn_cfg_whole(w, "groups", 1) : 1;
    double id = cmn_cfg_has_more() ? cmn_cfg_whole(w, "group_id", 0) : 0;
    const struct cmn_cfg_shape *from, *first;
    int number;

    needs_list(w, "layers");
    w->out.known = 0;
    first = named(w, "layers", 0, &number);
    if (!first) {
        return;
    }
    w->out = *first;
    for (int i = 1; (from = named(w, "layers", i, &number)); i++) {
        w->out.known &= from->known;
        w->out.values += from->values;
        w->out.c += from->c;
        if (from->w != first->w || from->h != first->h) {
            w->out.w = w->out.h = w->out.c = 0;
        }
    }
    if (groups < 1 || id < 0 || id >= groups || fmod(w->out.c, groups) != 0) {
        FAULT(w, "groups",
              "groups=%.0f must divide the %.0f channels, and group_id=%.0f be below it", groups,
              w->out.c, id);
        groups = 1;
    }
    w->out.c /= groups;
    w->out.values /= groups;
    fits(w, w->batch * w->out.values, "outputs of a micro-batch");
}

/* pjreddie's [shortcut] also adds images of other sizes, if one divides the other, unless the size
 * of the network changes. */
static int can_add(const struct cmn_cfg_walk *w, const struct cmn_cfg_shape *b)
{
    const struct cmn_cfg_shape *a = &w->in;

    if (cmn_cfg_has_more() || w->drawn) {
        return a->w == b->w && a->h == b->h;
    }
    return a->w >= 1 && a->h >= 1 && b->w >= 1 && b->h >= 1 &&
           floor(a->w / b->w) == floor(a->h / b->h) && floor(b->w / a->w) == floor(b->h / a->h);
}

static void shortcut(struct cmn_cfg_walk *w)
{
    const struct cmn_cfg_shape *from;
    int number;

    needs_list(w, "from");
    same(w);
    for (int i = 0; (from = named(w, "from", i, &number)); i++) {
        if (!from->known || !w->in.known) {
            continue;
        }
        if (!can_add(w, from)) {
            FAULT(w, "from", "from=%d adds layer %d of %.0f x %.0f pixels to %.0f x %.0f",
                  number - (w->section - 1), number, from->w, from->h, w->in.w, w->in.h);
        } else if (real(w, "alpha", 1) != 1 &&
                   (from->w != w->in.w || from->h != w->in.h || from->c != w->in.c)) {
            FAULT(w, "alpha", "alpha must be 1 unless both layers have one shape");
        }
        if (!cmn_cfg_has_more()) {
            return;
        }
    }
}

/* [scale_channels] and [sam] multiply a layer that they name by their input. */
static void from_other(struct cmn_cfg_walk *w)
{
    const struct cmn_cfg_shape *from;
    int number;

    needs_list(w, "from");
    from = named(w, "from", 0, &number);
    if (from && from->known && w->in.known && from->c != w->in.c) {
        FAULT(w, "from", "layer %d has %.0f channels, and %s multiplies them by %.0f", number,
              from->c, w->head->key, w->in.c);
    }
    w->out = from ? *from : w->in;
}

/* ---- layers that learn ---- */

/* Returns the number of filters before the section, or NULL if it is no convolution. */
static const struct cmn_cfg_line *filters_before(struct cmn_cfg_walk *w)
{
    const struct cmn_cfg_line *before = cmn_cfg_find(w->q->cfg, w->section - 1, NULL);
    const struct cmn_cfg_line *filters = cmn_cfg_find(w->q->cfg, w->section - 1, "filters");

    if (!before || (strcmp(before->key, "[convolutional]") && strcmp(before->key, "[conv]"))) {
        return NULL;
    }
    return filters ? filters : before;
}

/* Checks that the layer's input has `channels` values for each pixel, which `how` explains. */
static void needs_channels(struct cmn_cfg_walk *w, double channels, const char *how)
{
    const struct cmn_cfg_line *filters = filters_before(w);
    double has = cmn_cfg_int(w->q->cfg, w->section - 1, "filters", 1);

    if (filters && has != channels) {
        cmn_cfg_tell(w, CMN_CFG_BAD_FILTERS, filters,
                     "filters=%.0f before %s of line %d, which needs filters=%.0f: %s", has,
                     w->head->key, w->head->line, channels, how);
    } else if (w->in.known && w->in.values != w->in.w * w->in.h * channels) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "%s needs %.0f values for each of %.0f x %.0f pixels (%s), and the layer "
                     "before it gives %.0f in all",
                     w->head->key, channels, w->in.w, w->in.h, how, w->in.values);
    }
    fits(w, w->batch * channels * (w->in.w * w->in.h + 1), "outputs of a micro-batch");
    same(w);
}

static void check_anchors(struct cmn_cfg_walk *w)
{
    const struct cmn_cfg_line *anchors = cmn_cfg_find(w->q->cfg, w->section, "anchors");
    const struct cmn_cfg_line *mask = cmn_cfg_find(w->q->cfg, w->section, "mask");
    double num = cmn_cfg_whole(w, "num", 1);
    int n = anchors ? cmn_cfg_numbers_in(anchors->value) : 0;

    if (n != 2 * num) {
        cmn_cfg_tell(w, CMN_CFG_BAD_ANCHORS, anchors,
                     "%d anchor%s for num=%.0f: it needs %.0f numbers, a width and a height each",
                     n / 2, n / 2 == 1 ? "" : "s", num, 2 * num);
    }
    for (const char *s = mask ? mask->value : ""; *s && *s != '#';) {
        if (atoi(s) < 0 || atoi(s) >= num) {
            cmn_cfg_tell(w, CMN_CFG_BAD_ANCHORS, mask,
                         "mask=%s names anchor %d, and with num=%.0f they are 0 to %.0f",
                         mask->value, atoi(s), num, num - 1);
            return;
        }
        s += strcspn(s, ",");
        s += *s == ',';
    }
}

/* Darknet reads the layer whose number it is given even if there is none. */
static void contrastive(struct cmn_cfg_walk *w)
{
    int number;

    named(w, "yolo_layer", 0, &number);
    unknown(w);
}

static void boxes(struct cmn_cfg_walk *w)
{
    int region = !strcmp(w->type, "region"), gaussian = !strcmp(w->type, "Gaussian_yolo");
    const struct cmn_cfg_line *mask = region ? NULL : cmn_cfg_find(w->q->cfg, w->section, "mask");
    double classes = cmn_cfg_whole(w, "classes", 20), num = cmn_cfg_whole(w, "num", 1);
    double coords = gaussian ? 8 : region ? cmn_cfg_whole(w, "coords", 4) : 4;
    double anchors = mask ? cmn_cfg_numbers_in(mask->value) : num;
    char how[120];
    int number;

    if (cmn_cfg_has_more()) {
        named(w, "embedding_layer", 0, &number);
    }
    check_anchors(w);
    snprintf(how, sizeof how, "%.0f anchor%s %s (classes=%.0f + %.0f)", anchors,
             anchors == 1 ? "" : "s", mask ? "in mask *" : "*", classes, coords + 1);
    takes_image(w);
    needs_channels(w, anchors * (classes + coords + 1), how);
    fits(w, w->batch * cmn_cfg_truths(w), "truths of a micro-batch");
}

static void iseg(struct cmn_cfg_walk *w)
{
    double classes = cmn_cfg_whole(w, "classes", 20), ids = cmn_cfg_whole(w, "ids", 32);
    char how[96];

    snprintf(how, sizeof how, "classes=%.0f + ids=%.0f", classes, ids);
    takes_image(w);
    needs_channels(w, classes + ids, how);
    fits(w, w->batch * cmn_cfg_truths(w), "truths of a micro-batch");
}

static void detection(struct cmn_cfg_walk *w)
{
    double side = cmn_cfg_whole(w, "side", 7), n = cmn_cfg_whole(w, "num", 1);
    double classes = cmn_cfg_whole(w, "classes", 1), coords = cmn_cfg_whole(w, "coords", 1);
    double needs = side * side * ((1 + coords) * n + classes);

    if (coords < 4) {
        FAULT(w, "coords", "coords=%.0f: a box has 4", coords);
    }
    if (cmn_cfg_whole(w, "forced", 0) != 0 && n < 2) {
        FAULT(w, "forced", "forced needs num=2 or more: small objects take a cell's second box");
    }
    if (w->in.known && w->in.values != needs) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "[detection] needs %.0f values, side %.0f * %.0f * (num=%.0f * (coords=%.0f + "
                     "1) + classes=%.0f), and the layer before it gives %.0f",
                     needs, side, side, n, coords, classes, w->in.values);
    }
    fits(w, w->batch * needs, "outputs of a micro-batch");
    values_only(w);
}

double cmn_cfg_truths(struct cmn_cfg_walk *w)
{
    const char *type = w->type;

    if (!strcmp(type, "yolo") || !strcmp(type, "Gaussian_yolo")) {
        return cmn_cfg_has_more() ? cmn_cfg_whole(w, "max", 200) * 6
                                  : cmn_cfg_whole(w, "max", 90) * 5;
    }
    if (!strcmp(type, "region")) {
        if (cmn_cfg_has_more()) {
            return cmn_cfg_whole(w, "max", 200) * 6;
        }
        return cmn_cfg_whole(w, "max", 30) * (cmn_cfg_whole(w, "coords", 4) + 1);
    }
    if (!strcmp(type, "iseg")) {
        return 90 * (w->in.w * w->in.h + 1);
    }
    if (!strcmp(type, "detection")) {
        return pow(cmn_cfg_whole(w, "side", 7), 2) *
               (1 + cmn_cfg_whole(w, "coords", 1) + cmn_cfg_whole(w, "classes", 1));
    }
    if (!strcmp(type, "cost") || !strcmp(type, "logistic") ||
        (!strcmp(type, "softmax") && !cmn_cfg_whole(w, "noloss", 0))) {
        return w->in.values;
    }
    return 0;
}

/* ---- the layers of both Darknets ---- */

enum { P = 1, A = 2 };

static const struct {
    const char *type;
    int trees;
    void (*shape)(struct cmn_cfg_walk *w);
} layers[] = {
    {"activation", P | A, same},
    {"avgpool", P | A, avgpool},
    {"batchnorm", P | A, image_same},
    {"connected", P | A, connected},
    {"contrastive", A, contrastive},
    {"conv_lstm", A, unknown},
    {"convolutional", P | A, convolutional},
    {"cost", P | A, values_only},
    {"crnn", P | A, unknown},
    {"crop", P | A, crop},
    {"deconvolutional", P, deconvolutional},
    {"detection", P | A, detection},
    {"dropout", P | A, dropout},
    {"empty", A, same},
    {"Gaussian_yolo", A, boxes},
    {"gru", P | A, unknown},
    {"history", A, unknown},
    {"implicit", A, unknown},
    {"iseg", P, iseg},
    {"l2norm", P, image_same},
    {"local", P | A, local},
    {"local_avgpool", A, maxpool},
    {"logistic", P, same},
    {"lstm", P | A, unknown},
    {"maxpool", P | A, maxpool},
    {"normalization", P | A, image_same},
    {"region", P | A, boxes},
    {"reorg", P | A, reorg},
    {"reorg3d", A, reorg},
    {"rnn", P | A, unknown},
    {"route", P | A, route},
    {"sam", A, from_other},
    {"scale_channels", A, from_other},
    {"shortcut", P | A, shortcut},
    {"silence", A, same},
    {"softmax", P | A, softmax},
    {"upsample", P | A, upsample},
    {"yolo", P | A, boxes},
};

/* Tells that there is no such layer, and which there are. */
static void no_layer(struct cmn_cfg_walk *w, int tree)
{
    char all[600] = "";
    size_t n = 0;

    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        if (layers[i].trees & tree && n < sizeof all) {
            n += (size_t)snprintf(all + n, sizeof all - n, " [%s]", layers[i].type);
        }
    }
    cmn_cfg_tell(w, CMN_CFG_BAD_WORD, NULL, "%s is no layer: this Darknet has%s%s", w->head->key,
                 all, tree == P ? "; AlexeyAB's has others" : "");
}

int cmn_cfg_shape(struct cmn_cfg_walk *w)
{
    const int tree = cmn_cfg_has_more() ? A : P;

    w->out = (struct cmn_cfg_shape){0};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        if (layers[i].trees & tree && !strcmp(layers[i].type, w->type)) {
            layers[i].shape(w);
            if (w->out.known && w->out.values < 1) {
                cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                             "%s has no output: its input of %.0f x %.0f pixels is too small",
                             w->head->key, w->in.w, w->in.h);
                w->out.known = 0;
            }
            return 0;
        }
    }
    no_layer(w, tree);
    return -1;
}
