#include "config/cfg_numbers.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layers beyond these limits do not fit into memory. The parser also checks the products of such
 * numbers. */
enum { SIDE = 65536, MANY = 1 << 24 };

/* A value within these limits neither crashes nor hangs a loader or a layer. The limits allow all
 * cfgs of Darknet's and of AlexeyAB's, and what either reads as "on". They do not catch a learning
 * rate that is too high, or a kappa of 0 with a black image: cmn_nonfinite does. */
static const struct cmn_cfg_number table[] = {
    {"net", "batch", CMN_CFG_WHOLE, 1, 1000000, "images",
     "images of a step; a multiple of subdivisions"},
    {"net", "subdivisions", CMN_CFG_WHOLE, 1, 1000000, "micro-batches",
     "parts of a step, one after the other"},
    {"net", "learning_rate", CMN_CFG_REAL, 0, 1e38, "(factor)", "learning rate"},
    {"net", "momentum", CMN_CFG_REAL, 0, 1, "(factor)", "part of the last update that is repeated"},
    {"net", "decay", CMN_CFG_REAL, 0, 1000, "(factor)", "weight decay"},
    {"net", "adam", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)", "Adam in place of momentum"},
    {"net", "B1", CMN_CFG_REAL, 0, 0.999999, "(factor)",
     "Adam's memory of the gradient and of its square"},
    {"net", "B2", CMN_CFG_REAL, 0, 0.999999, "(factor)",
     "Adam's memory of the gradient and of its square"},
    {"net", "eps", CMN_CFG_REAL, 1e-30, 1, "(term)", "Adam's smallest divisor"},
    {"net", "height", CMN_CFG_WHOLE, 0, SIDE, "pixels", "size of the input"},
    {"net", "width", CMN_CFG_WHOLE, 0, SIDE, "pixels", "size of the input"},
    {"net", "channels", CMN_CFG_WHOLE, 0, SIDE, "channels", "channels of the input"},
    {"net", "inputs", CMN_CFG_WHOLE, 0, INT_MAX, "values", "size of an input that is no image"},
    {"net", "max_crop", CMN_CFG_WHOLE, 0, SIDE, "pixels",
     "sides to which a classifier's image is scaled before it is cut"},
    {"net", "min_crop", CMN_CFG_WHOLE, 0, SIDE, "pixels",
     "sides to which a classifier's image is scaled before it is cut"},
    {"net", "max_ratio", CMN_CFG_REAL, 0, 1000, "(of width)", "max_crop and min_crop over width"},
    {"net", "min_ratio", CMN_CFG_REAL, 0, 1000, "(of width)", "max_crop and min_crop over width"},
    {"net", "center", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "the middle of a classifier's image is cut out"},
    {"net", "flip", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "half of the images are mirrored"},
    {"net", "random", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "other input sizes in classifier train: 128 to 448 pixels"},
    {"net", "notruth", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "the network has no truth"},
    {"net", "threads", CMN_CFG_WHOLE, 1, 1024, "threads", "threads that load images"},
    {"net", "clip", CMN_CFG_REAL, 0, 1e9, "(absolute value)", "largest gradient, on GPUs; 0: any"},
    {"net", "angle", CMN_CFG_REAL, 0, 360, "degrees", "images are turned by up to this"},
    {"net", "aspect", CMN_CFG_REAL, 0, 100, "(factor)",
     "images are stretched by up to this; 0: they are not"},
    {"net", "saturation", CMN_CFG_REAL, 0, 100, "(factor)", "colours change by up to this"},
    {"net", "exposure", CMN_CFG_REAL, 0, 100, "(factor)", "colours change by up to this"},
    {"net", "hue", CMN_CFG_REAL, 0, 1, "(of the circle)", "colours are turned by up to this"},
    {"net", "burn_in", CMN_CFG_WHOLE, 0, INT_MAX, "iterations", "warm-up of the learning rate"},
    {"net", "power", CMN_CFG_REAL, 0, 1000, "(exponent)",
     "exponent of burn_in, policy=poly and random"},
    {"net", "step", CMN_CFG_WHOLE, -1000000000, INT_MAX, "iterations",
     "distance of changes by policy=step; middle of policy=sigmoid"},
    {"net", "scale", CMN_CFG_REAL, 0, 1e6, "(factor)", "factor of policy=step"},
    {"net", "steps", CMN_CFG_WHOLES, -1, INT_MAX, "iterations", "changes by policy=steps"},
    {"net", "scales", CMN_CFG_REALS, 0, 1e6, "(factor)", "factors of policy=steps"},
    {"net", "gamma", CMN_CFG_REAL, -1000, 1000, "(factor)",
     "base of policy=exp, slope of policy=sigmoid"},
    {"net", "max_batches", CMN_CFG_WHOLE, 0, INT_MAX, "iterations",
     "length of the training; 0: a classifier's has no end"},
    {"layer", "truth", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "its output is the truth of later layers"},
    {"layer", "onlyforward", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "on GPUs: no backward pass"},
    {"layer", "stopbackward", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "no backward pass before it"},
    {"layer", "dontsave", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "its weights are not saved"},
    {"layer", "dontload", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "its weights are not read"},
    {"layer", "numload", CMN_CFG_WHOLE, 0, INT_MAX, "filters", "filters that are read; 0: all"},
    {"layer", "dontloadscales", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "its scales are not read"},
    {"layer", "learning_rate", CMN_CFG_REAL, -1000, 1000, "(factor)",
     "factor of the learning rate"},
    {"layer", "smooth", CMN_CFG_REAL, 0, 1, "(part)", "label smoothing, on GPUs"},
    {"convolutional", "filters", CMN_CFG_WHOLE, 1, MANY, "filters", "channels of the output"},
    {"convolutional", "size", CMN_CFG_WHOLE, 1, SIDE, "pixels", "side of the filter"},
    {"convolutional", "stride", CMN_CFG_WHOLE, 1, SIDE, "pixels",
     "distance of two places of the filter"},
    {"convolutional", "pad", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "half of size is added at each edge"},
    {"convolutional", "padding", CMN_CFG_WHOLE, 0, SIDE, "pixels",
     "pixels added at each edge, without pad"},
    {"convolutional", "groups", CMN_CFG_WHOLE, 1, MANY, "groups", "groups of channels"},
    {"convolutional", "batch_normalize", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "batch normalisation"},
    {"convolutional", "binary", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "weights (xnor: and inputs) are 1 or -1"},
    {"convolutional", "xnor", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "weights (xnor: and inputs) are 1 or -1"},
    {"convolutional", "flipped", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "weights in the file are transposed"},
    {"convolutional", "dot", CMN_CFG_REAL, 0, 1e6, "(factor)", "filters are kept apart, on GPUs"},
    {"deconvolutional", "filters", CMN_CFG_WHOLE, 1, MANY, "filters", "channels of the output"},
    {"deconvolutional", "size", CMN_CFG_WHOLE, 1, SIDE, "pixels", "side of the filter"},
    {"deconvolutional", "stride", CMN_CFG_WHOLE, 1, SIDE, "pixels",
     "distance of two places of the filter"},
    {"deconvolutional", "pad", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "half of size is added at each edge"},
    {"deconvolutional", "padding", CMN_CFG_WHOLE, 0, SIDE, "pixels",
     "pixels added at each edge, without pad"},
    {"deconvolutional", "batch_normalize", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "batch normalisation"},
    {"local", "filters", CMN_CFG_WHOLE, 1, MANY, "filters", "channels of the output"},
    {"local", "size", CMN_CFG_WHOLE, 1, SIDE, "pixels", "side of the filter"},
    {"local", "stride", CMN_CFG_WHOLE, 1, SIDE, "pixels", "distance of two places of the filter"},
    {"local", "pad", CMN_CFG_WHOLE, 0, SIDE, "pixels", "pixels added at each edge"},
    {"connected", "output", CMN_CFG_WHOLE, 1, MANY, "values", "size of the output"},
    {"connected", "batch_normalize", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "batch normalisation"},
    {"softmax", "groups", CMN_CFG_WHOLE, 1, MANY, "groups", "softmaxes side by side"},
    {"softmax", "temperature", CMN_CFG_REAL, 1e-6, 1e6, "(divisor)", "divisor of the inputs"},
    {"softmax", "spatial", CMN_CFG_REAL, 0, INT_MAX, "(0: off; others: on)",
     "a softmax for each pixel"},
    {"softmax", "noloss", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)", "no loss"},
    {"yolo", "classes", CMN_CFG_WHOLE, 1, MANY, "classes", "classes of objects"},
    {"yolo", "num", CMN_CFG_WHOLE, 1, MANY, "boxes", "anchors of the network"},
    {"yolo", "mask", CMN_CFG_WHOLES, 0, MANY, "(number)", "anchors of this layer, from 0"},
    {"yolo", "anchors", CMN_CFG_REALS, 1e-6, 1e6, "pixels", "width and height of each anchor"},
    {"yolo", "max", CMN_CFG_WHOLE, 1, MANY, "boxes", "most boxes of an image"},
    {"yolo", "jitter", CMN_CFG_REAL, 0, 0.99, "(part)", "images are stretched by up to this"},
    {"yolo", "ignore_thresh", CMN_CFG_REAL, 0, 100, "(overlap)",
     "boxes with more overlap are not false"},
    {"yolo", "truth_thresh", CMN_CFG_REAL, 0, 100, "(overlap)", "boxes with more are true"},
    {"yolo", "random", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "other input sizes in detector train: 320 to 608 pixels"},
    {"iseg", "classes", CMN_CFG_WHOLE, 1, MANY, "classes", "classes of objects"},
    {"iseg", "ids", CMN_CFG_WHOLE, 0, MANY, "values", "values that tell objects apart"},
    {"region", "coords", CMN_CFG_WHOLE, 4, 1000, "numbers", "numbers of a box"},
    {"region", "classes", CMN_CFG_WHOLE, 1, MANY, "classes", "classes of objects"},
    {"region", "num", CMN_CFG_WHOLE, 1, MANY, "boxes", "boxes of a cell"},
    {"region", "anchors", CMN_CFG_REALS, 1e-6, 1e6, "cells", "width and height of each anchor"},
    {"region", "max", CMN_CFG_WHOLE, 1, MANY, "boxes", "most boxes of an image"},
    {"region", "jitter", CMN_CFG_REAL, 0, 0.99, "(part)", "images are stretched by up to this"},
    {"region", "log", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)", "it has no effect"},
    {"region", "sqrt", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)", "it has no effect"},
    {"region", "softmax", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)", "classes by softmax"},
    {"region", "background", CMN_CFG_WHOLE, 0, 1, "(switch)", "a class for the background"},
    {"region", "rescore", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "the score is the overlap"},
    {"region", "thresh", CMN_CFG_REAL, 0, 100, "(overlap)",
     "boxes with more overlap are not false"},
    {"region", "classfix", CMN_CFG_WHOLE, -1, INT_MAX, "(number)", "it has no effect"},
    {"region", "absolute", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)", "it has no effect"},
    {"region", "bias_match", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "only anchors decide which box is meant"},
    {"region", "coord_scale", CMN_CFG_REAL, 0, 1e6, "(factor)", "weight of that part of the loss"},
    {"region", "object_scale", CMN_CFG_REAL, 0, 1e6, "(factor)", "weight of that part of the loss"},
    {"region", "noobject_scale", CMN_CFG_REAL, 0, 1e6, "(factor)",
     "weight of that part of the loss"},
    {"region", "class_scale", CMN_CFG_REAL, 0, 1e6, "(factor)", "weight of that part of the loss"},
    {"region", "mask_scale", CMN_CFG_REAL, 0, 1e6, "(factor)", "weight of that part of the loss"},
    {"region", "random", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "other input sizes in detector train: 320 to 608 pixels"},
    {"detection", "coords", CMN_CFG_WHOLE, 4, 1000, "numbers", "numbers of a box"},
    {"detection", "classes", CMN_CFG_WHOLE, 1, MANY, "classes", "classes of objects"},
    {"detection", "num", CMN_CFG_WHOLE, 1, MANY, "boxes", "boxes of a cell"},
    {"detection", "side", CMN_CFG_WHOLE, 1, SIDE, "cells", "cells of a row"},
    {"detection", "max", CMN_CFG_WHOLE, 1, MANY, "boxes", "most boxes of an image"},
    {"detection", "softmax", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "classes by softmax"},
    {"detection", "sqrt", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "boxes by the root of their size"},
    {"detection", "rescore", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "the score is the overlap"},
    {"detection", "coord_scale", CMN_CFG_REAL, 0, 1e6, "(factor)",
     "weight of that part of the loss"},
    {"detection", "object_scale", CMN_CFG_REAL, 0, 1e6, "(factor)",
     "weight of that part of the loss"},
    {"detection", "noobject_scale", CMN_CFG_REAL, 0, 1e6, "(factor)",
     "weight of that part of the loss"},
    {"detection", "class_scale", CMN_CFG_REAL, 0, 1e6, "(factor)",
     "weight of that part of the loss"},
    {"detection", "forced", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "small objects take a cell's second box, others its first"},
    {"detection", "jitter", CMN_CFG_REAL, 0, 0.49, "(part)", "each edge is moved by up to this"},
    {"detection", "random", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "objects of the first 64000 images take any box of their cell"},
    {"detection", "reorg", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)", "it has no effect"},
    {"cost", "scale", CMN_CFG_REAL, -1e6, 1e6, "(factor)", "factor of the gradient"},
    {"cost", "ratio", CMN_CFG_REAL, 0, 1, "(part)",
     "part of the largest gradients that stays, on GPUs"},
    {"cost", "noobj", CMN_CFG_REAL, 0, 1e6, "(factor)", "weight where the truth is 0, on GPUs"},
    {"cost", "thresh", CMN_CFG_REAL, 0, 1e6, "(absolute value)",
     "smaller gradients count as 0, on GPUs"},
    {"crop", "crop_height", CMN_CFG_WHOLE, 1, SIDE, "pixels", "size of the output"},
    {"crop", "crop_width", CMN_CFG_WHOLE, 1, SIDE, "pixels", "size of the output"},
    {"crop", "flip", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "half of the images are mirrored"},
    {"crop", "angle", CMN_CFG_REAL, 0, 360, "degrees", "images are turned by up to this, on GPUs"},
    {"crop", "saturation", CMN_CFG_REAL, 0, 100, "(factor)", "as in [net], on GPUs"},
    {"crop", "exposure", CMN_CFG_REAL, 0, 100, "(factor)", "as in [net], on GPUs"},
    {"crop", "shift", CMN_CFG_REAL, -100, 100, "(of full light)",
     "what is added to colours, on GPUs"},
    {"crop", "noadjust", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "values stay from 0 to 1"},
    {"reorg", "stride", CMN_CFG_WHOLE, 1, SIDE, "pixels",
     "side of the square that becomes channels"},
    {"reorg", "reverse", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "channels become a square"},
    {"reorg", "flatten", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "only the order of values changes"},
    {"reorg", "extra", CMN_CFG_WHOLE, 0, INT_MAX, "values", "values that are added"},
    {"maxpool", "size", CMN_CFG_WHOLE, 1, SIDE, "pixels", "side of the filter"},
    {"maxpool", "stride", CMN_CFG_WHOLE, 1, SIDE, "pixels", "distance of two places of the filter"},
    {"maxpool", "padding", CMN_CFG_WHOLE, 0, SIDE, "pixels",
     "pixels added at each edge, without pad"},
    {"dropout", "probability", CMN_CFG_REAL, 0, 0.999999, "(part)",
     "part of the values that become 0"},
    {"shortcut", "from", CMN_CFG_WHOLES, -1000000, 1000000, "(number)",
     "the other layer; negative: from here"},
    {"shortcut", "alpha", CMN_CFG_REAL, -1e6, 1e6, "(factor)", "weight of this layer's input"},
    {"shortcut", "beta", CMN_CFG_REAL, -1e6, 1e6, "(factor)", "weight of the other layer"},
    {"upsample", "stride", CMN_CFG_WHOLE, -65536, SIDE, "pixels",
     "side of the square that a pixel becomes; negative: the other way round"},
    {"upsample", "scale", CMN_CFG_REAL, -1e6, 1e6, "(factor)", "what the values are multiplied by"},
    {"route", "layers", CMN_CFG_WHOLES, -1000000, 1000000, "(number)",
     "the layers; negative: from here"},
    {"data", "classes", CMN_CFG_WHOLE, 1, MANY, "classes", "classes of objects"},
    {"data", "top", CMN_CFG_WHOLE, 1, MANY, "classes", "an answer is right among so many"},
    {"data", "saveweights", CMN_CFG_WHOLE, 1, INT_MAX, "iterations",
     "distance between the NAME_N.weights that detector train saves"},
    {"data", "tag", CMN_CFG_WHOLE, 0, INT_MAX, "(0: off; others: on)",
     "images have several classes"},
};

enum { ROWS = sizeof table / sizeof table[0] };

/* Only AlexeyAB's Darknet reads these, or it reads them in another way. */
static const struct cmn_cfg_number more[] = {
    {"net", "sgdr_cycle", CMN_CFG_WHOLE, 1, INT_MAX, "iterations", "first cycle of policy=sgdr"},
    {"net", "sgdr_mult", CMN_CFG_WHOLE, 1, 1000000, "(factor)", "of a cycle to the next one"},
    {"net", "resize_step", CMN_CFG_WHOLE, 1, SIDE, "pixels", "between the sizes of random"},
    {"convolutional", "dilation", CMN_CFG_WHOLE, 1, SIDE, "pixels", "between the filter's values"},
    {"yolo", "random", CMN_CFG_REAL, 0, 1000, "(factor; 0: off; 1: 1.4)", "other input sizes"},
    {"Gaussian_yolo", "random", CMN_CFG_REAL, 0, 1000, "(factor; 0: off; 1: 1.4)",
     "other input sizes"},
    {"region", "random", CMN_CFG_REAL, 0, 1000, "(factor; 0: off; 1: 1.4)", "other input sizes"},
};

enum { MORE = sizeof more / sizeof more[0] };

/* Darknet's other names of sections. */
static const struct {
    const char *name, *section;
} alias[] = {
    {"network", "net"},       {"conv", "convolutional"}, {"deconv", "deconvolutional"},
    {"conn", "connected"},    {"max", "maxpool"},        {"soft", "softmax"},
    {"lrn", "normalization"}, {"avg", "avgpool"},        {"local_avg", "local_avgpool"},
};

const struct cmn_cfg_number *cmn_cfg_number_at(int i)
{
    return i < ROWS ? &table[i] : i < ROWS + MORE ? &more[i - ROWS] : NULL;
}

int cmn_cfg_number_is_more(const struct cmn_cfg_number *number)
{
    return number >= more && number < more + MORE;
}

static const struct cmn_cfg_number *find(const char *section, const char *key)
{
    for (int i = 0; i < MORE && cmn_cfg_has_more(); i++) {
        if (!strcmp(more[i].section, section) && !strcmp(more[i].key, key)) {
            return &more[i];
        }
    }
    for (int i = 0; i < ROWS; i++) {
        if (!strcmp(table[i].section, section) && !strcmp(table[i].key, key)) {
            return &table[i];
        }
    }
    return NULL;
}

int cmn_cfg_number_key(const char *key)
{
    for (int i = 0; i < ROWS; i++) {
        if (!strcmp(table[i].key, key)) {
            return 1;
        }
    }
    return 0;
}

void cmn_cfg_section_name(const char *type, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s", type + (type[0] == '['));
    if (name[0] && name[strlen(name) - 1] == ']') {
        name[strlen(name) - 1] = '\0';
    }
    for (size_t i = 0; i < sizeof alias / sizeof alias[0]; i++) {
        if (!strcmp(alias[i].name, name)) {
            snprintf(name, bytes, "%s", alias[i].section);
        }
    }
}

const struct cmn_cfg_number *cmn_cfg_number_find(const char *section, const char *key)
{
    const struct cmn_cfg_number *number;
    char name[32];

    if (!section || !section[0]) {
        return find("data", key);
    }
    cmn_cfg_section_name(section, name, sizeof name);
    number = find(name, key);
    return number || !strcmp(name, "net") ? number : find("layer", key);
}

static int is_whole(const struct cmn_cfg_number *number)
{
    return number->kind == CMN_CFG_WHOLE || number->kind == CMN_CFG_WHOLES;
}

static int is_list(const struct cmn_cfg_number *number)
{
    return number->kind == CMN_CFG_WHOLES || number->kind == CMN_CFG_REALS;
}

void cmn_cfg_number_range(const struct cmn_cfg_number *number, char *text, size_t bytes)
{
    if (is_whole(number) && number->high >= INT_MAX) {
        snprintf(text, bytes, "%.10g or more %s", number->low, number->unit);
    } else {
        snprintf(text, bytes, "%.10g to %.10g %s", number->low, number->high, number->unit);
    }
}

/* Returns whether the first n characters are such a number, and sets *value, as Darknet's
 * is_number() does. */
static int read_number(const struct cmn_cfg_number *number, const char *s, size_t n, double *value)
{
    char *end;

    *value = strtod(s, &end);
    return n && end == s + n &&
           strspn(s, is_whole(number) ? "+-0123456789" : "+-.0123456789eE") >= n &&
           fabs(*value) <= (is_whole(number) ? INT_MAX : (double)FLT_MAX);
}

int cmn_cfg_number_check(const struct cmn_cfg_number *number, const char *value, char *why,
                         size_t bytes)
{
    static const char *const kind[] = {"a whole number", "a number", "whole numbers", "numbers"};
    char range[128];
    double x;

    cmn_cfg_number_range(number, range, sizeof range);
    for (const char *s = value; s;) {
        size_t n = strcspn(s, " \t,#;");
        int good = read_number(number, s, n, &x);
        s += n + strspn(s + n, " \t");
        if (!good || (*s && !strchr(is_list(number) ? ",#;" : "#;", *s))) {
            snprintf(why, bytes, "not %s, %s", kind[number->kind], range);
            return -1;
        }
        if (x < number->low || x > number->high) {
            snprintf(why, bytes, "must be %s", range);
            return -1;
        }
        s = *s == ',' ? s + 1 : NULL;
    }
    return 0;
}

/* Prints a line as Darknet reads it: a comment behind a number would count as a part of a list, and
 * one behind a word would make it unknown. Names of files may have these letters. */
static void print_line(const struct cmn_cfg_line *l, const char *section, FILE *to)
{
    int n = (int)strlen(l->value);
    int is_file = !section || !strcmp(l->key, "tree") || !strcmp(l->key, "map") ||
                  !strncmp(l->key, "cmn_", 4);

    if (l->key[0] == '[') {
        fprintf(to, "%s\n", l->key);
        return;
    }
    if (cmn_cfg_number_find(section, l->key)) {
        n = (int)strcspn(l->value, " \t#;");
        n = strchr(l->value, ',') ? (int)strcspn(l->value, "#;") : n;
    } else if (!is_file) {
        n = (int)strcspn(l->value, "#;");
    }
    fprintf(to, "%s=%.*s\n", l->key, n, l->value);
}

void cmn_cfg_print(const struct cmn_cfg_file *cfg, FILE *to)
{
    for (int i = 0; i < cfg->lines; i++) {
        const struct cmn_cfg_line *l = &cfg->each[i];
        const struct cmn_cfg_line *head =
            l->section >= 0 ? cmn_cfg_find(cfg, l->section, NULL) : NULL;
        if (l->key) {
            print_line(l, head ? head->key : NULL, to);
        }
    }
}
