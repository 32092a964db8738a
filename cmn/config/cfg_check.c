#include "config/cfg_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "config/cfg_keys.h"
#include "config/cfg_numbers.h"
#include "config/cfg_shapes.h"
#include "config/refused_layers.h"

/* ---- lines, numbers, words and keys, of which each is looked at by itself ---- */

/* A file whose lines are checked: a cfg, or a .data file with is_cfg = 0. */
struct lines {
    const char *name;
    const struct cmn_cfg_file *file;
    int is_cfg;
    const struct cmn_cfg_listener *listener;
    int use; /* what a cfg is for (config/refused_layers.h) */
};

/* Returns the number of a line; that of the first one for NULL. */
static int line_of(const struct cmn_cfg_line *l)
{
    return l ? l->line : 1;
}

#define tell(f, fault, l, ...) cmn_cfg_say((f)->listener, fault, (f)->name, line_of(l), __VA_ARGS__)

/* Returns 1 if the line cannot be read. */
static int check_line(const struct lines *f, const struct cmn_cfg_line *l)
{
    if (!l->key) {
        tell(f, CMN_CFG_BAD_LINE, l, "not an option, KEY=VALUE: %.80s", l->value);
    } else if (f->is_cfg && l->section < 0) {
        tell(f, CMN_CFG_BAD_LINE, l, "%s stands before the first section, which is [net]", l->key);
    } else if (l->key[0] == '[' && l->key[strlen(l->key) - 1] != ']') {
        tell(f, CMN_CFG_BAD_LINE, l, "%.80s: the head of a section ends with ]", l->key);
    }
    return !l->key || (f->is_cfg && l->section < 0);
}

/* The words that a key may have: those of both Darknets, and those of only one. */
static const struct {
    const char *section, *key, *words, *less, *more; /* section NULL: any; less NULL: unknown */
} words[] = {
    {NULL, "activation",
     " logistic loggy relu elu selu relie plse hardtan lhtan linear ramp leaky tanh stair ", " ",
     " swish mish hard_mish normalize_channels normalize_channels_softmax "
     "normalize_channels_softmax_maxval relu6 gelu revleaky "},
    {"cost", "type", " sse masked smooth ", " L1 wgan ", " "},
    {"net", "policy", " constant step steps exp poly sigmoid random ", " ", " sgdr "},
    {"yolo", "iou_loss", " ", NULL, " mse giou diou ciou "},
    {"yolo", "iou_thresh_kind", " ", NULL, " iou giou diou ciou "},
    {"yolo", "nms_kind", " ", NULL, " default greedynms diounms "},
    {"Gaussian_yolo", "iou_loss", " ", NULL, " mse giou diou ciou "},
    {"Gaussian_yolo", "iou_thresh_kind", " ", NULL, " iou giou diou ciou "},
    {"Gaussian_yolo", "nms_kind", " ", NULL, " default greedynms diounms cornersnms "},
    {"Gaussian_yolo", "yolo_point", " ", NULL, " center left_top right_bottom "},
    {"shortcut", "weights_type", " ", NULL, " none per_feature per_layer per_channel "},
    {"shortcut", "weights_normalization", " ", NULL, " none relu avg_relu softmax "},
};

/* Keys whose values are files, or lists that are checked with the layers. */
static const struct {
    const char *section, *key;
} texts[] = {
    {"softmax", "tree"}, {"region", "tree"},   {"region", "map"},
    {"yolo", "map"},     {"detection", "map"}, {"net", "policy"},
};

/* Returns whether this Darknet has row i of `words` in a section. */
static int is_word(size_t i, const char *section)
{
    return (!words[i].section || !strcmp(words[i].section, section)) &&
           (words[i].less || cmn_cfg_has_more());
}

static void check_word(const struct lines *f, const struct cmn_cfg_line *l, const char *section)
{
    char value[64];

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *more = cmn_cfg_has_more() ? words[i].more : words[i].less;
        if (!is_word(i, section) || strcmp(words[i].key, l->key) != 0) {
            continue;
        }
        snprintf(value, sizeof value, "%.*s", (int)strcspn(l->value, "#;"), l->value);
        if (!cmn_cfg_is_among(words[i].words, value) && !cmn_cfg_is_among(more, value)) {
            tell(f, CMN_CFG_BAD_WORD, l, "%s=%.60s: must be one of%s%.*s", l->key, l->value,
                 words[i].words, (int)strlen(more) - 1, more + 1);
        }
    }
}

/* Returns 1 if the number is wrong. */
static int check_number(const struct lines *f, const struct cmn_cfg_line *l, const char *section)
{
    const struct cmn_cfg_number *number = cmn_cfg_number_find(section, l->key);
    char why[160];

    if (!number || !cmn_cfg_number_check(number, l->value, why, sizeof why)) {
        return 0;
    }
    tell(f, CMN_CFG_BAD_NUMBER, l, "%s=%.80s: %s", l->key, l->value, why);
    return 1;
}

/* Returns whether this Darknet reads the key in a section of this name. */
static int is_known(const char *section, const char *key)
{
    if (cmn_cfg_number_find(section, key)) {
        return 1;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (is_word(i, section) && !strcmp(words[i].key, key)) {
            return 1;
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!strcmp(texts[i].section, section) && !strcmp(texts[i].key, key)) {
            return 1;
        }
    }
    return 0;
}

/* Collects the keys of a section, for the nearest to a mistyped one. Returns their number. */
static int keys_of(const char *section, const char **key, int most)
{
    const struct cmn_cfg_number *number;
    int n = 0;

    for (int i = 0; (number = cmn_cfg_number_at(i)) && n < most; i++) {
        if (cmn_cfg_number_find(section, number->key) == number) {
            key[n++] = number->key;
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0] && n < most; i++) {
        if (is_word(i, section)) {
            key[n++] = words[i].key;
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && n < most; i++) {
        if (!strcmp(texts[i].section, section)) {
            key[n++] = texts[i].key;
        }
    }
    return n;
}

/* Tells of a key of the cfg that has no effect. */
static void check_key(const struct lines *f, const struct cmn_cfg_line *l, const char *section)
{
    const char *key[256], *needs, *nearest;
    int is_net = !strcmp(section, "net"), ours = !strncmp(l->key, "cmn_", 4);

    if (ours && !is_net) {
        tell(f, CMN_CFG_UNUSED_KEY, l,
             "%s=%.80s has no effect here: the keys of cmn belong to [net]", l->key, l->value);
        return;
    }
    if (l != cmn_cfg_find(f->file, l->section, l->key)) {
        if (!cmn_cfg_key_elsewhere(l->key)) {
            tell(f, CMN_CFG_UNUSED_KEY, l,
                 "%s=%.80s%s the section has it twice, and the %s "
                 "one counts",
                 l->key, l->value, ours ? ":" : " has no effect:", ours ? "last" : "first");
        }
        return;
    }
    needs = is_net ? cmn_cfg_key_needs(f->file, l->key) : NULL;
    if (needs) {
        tell(f, CMN_CFG_UNUSED_KEY, l, "%s=%.80s has no effect without %s", l->key, l->value,
             needs);
    } else if (ours || is_known(section, l->key)) {
        return;
    } else if (cmn_cfg_key_elsewhere(l->key)) {
        tell(f, CMN_CFG_FOREIGN_KEY, l, "%s=%.80s", l->key, l->value);
    } else if (!cmn_cfg_has_more() && !strcmp(section, "route") && !strcmp(l->key, "groups")) {
        tell(f, CMN_CFG_UNUSED_KEY, l,
             "%s=%.80s has no effect: AlexeyAB's Darknet has this key here, this one has not",
             l->key, l->value);
    } else if (!cmn_cfg_key_of_more(l->key)) {
        nearest = cmn_nearest(l->key, key, keys_of(section, key, 256));
        tell(f, CMN_CFG_UNUSED_KEY, l, "%s=%.80s has no effect: unknown key%s%s%s", l->key,
             l->value, nearest ? "; did you mean " : "", nearest ? nearest : "",
             nearest ? "?" : "");
    }
}

/* Checks line l of a cfg. Returns 1 if the section must not be looked at further. */
static int check_cfg_line(const struct lines *f, const struct cmn_cfg_line *l)
{
    char section[32];
    const char *why;
    int bad = 0;

    if (check_line(f, l)) {
        return 1;
    }
    why = cmn_refused_layer(cmn_cfg_find(f->file, l->section, NULL)->key, l->key, l->value, f->use);
    if (why) {
        tell(f, CMN_CFG_REFUSED, l, "%s%s%.80s: %s", l->key, l->value[0] ? "=" : "", l->value, why);
    }
    if (l->key[0] == '[') {
        return why != NULL;
    }
    cmn_cfg_section_name(cmn_cfg_find(f->file, l->section, NULL)->key, section, sizeof section);
    if (l == cmn_cfg_find(f->file, l->section, l->key)) {
        bad = check_number(f, l, section);
        check_word(f, l, section);
    }
    check_key(f, l, section);
    return bad;
}

void cmn_data_check(const char *name, const struct cmn_cfg_file *data,
                    const struct cmn_cfg_listener *listener)
{
    enum { LONGEST = 3800 }; /* trainers have 4096 bytes for folder and name */
    const struct lines f = {name, data, 0, listener, 0};
    const struct cmn_cfg_line *l;
    char why[160];

    if (data->text && cmn_text_is_utf16(data->text)) {
        tell(&f, CMN_CFG_BAD_LINE, NULL, CMN_UTF16);
        return;
    }

    if (!data->lines) {
        tell(&f, CMN_CFG_BAD_LINE, NULL, "the .data file is empty");
    }
    for (int i = 0; i < data->lines; i++) {
        int again;
        l = &data->each[i];
        if (!l->key && l->value[0] == '[') {
            tell(&f, CMN_CFG_BAD_LINE, l,
                 "%.40s: a .data file has no sections: is this the cfg? The .data file comes first",
                 l->value);
            return;
        }
        if (check_line(&f, l)) {
            continue;
        }
        if (!cmn_cfg_number_find("", l->key) &&
            (strstr(l->value, " #") || strchr("~$", l->value[0]))) {
            tell(&f, CMN_CFG_UNUSED_KEY, l,
                 "%s=%.80s: Darknet takes all of it for the value: it knows no comment, ~ or $ "
                 "there",
                 l->key, l->value);
        }
        if (strchr("\"'", l->value[0])) {
            tell(&f, CMN_CFG_BAD_LINE, l,
                 "%s=%.80s: write it without the quotes, which would be a part of it", l->key,
                 l->value);
        }
        if (strlen(l->value) > LONGEST) {
            tell(&f, CMN_CFG_BAD_LINE, l, "%.40s=: a value of %zu bytes, and it may have %d",
                 l->key, strlen(l->value), LONGEST);
        }
        again = l != cmn_cfg_find(data, -1, l->key);
        if (!again) {
            check_number(&f, l, "");
        }
        if (cmn_data_key_describe(l->key, again, why, sizeof why)) {
            tell(&f, CMN_CFG_UNUSED_KEY, l, "%s=%.80s %s", l->key, l->value, why);
        }
    }
}

/* ---- [net] ---- */

/* Returns the line of a key of [net], or NULL. */
static const struct cmn_cfg_line *net_line(struct cmn_cfg_walk *w, const char *key)
{
    return cmn_cfg_find(w->q->cfg, 0, key);
}

static void check_batch(struct cmn_cfg_walk *w)
{
    int batch = cmn_cfg_int(w->q->cfg, 0, "batch", 1);
    int parts = cmn_cfg_int(w->q->cfg, 0, "subdivisions", 1), rest = batch % parts;

    if (batch < parts) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, net_line(w, "batch"),
                     "batch=%d: must be at least subdivisions=%d", batch, parts);
    } else if (rest) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, net_line(w, "batch"),
                     "batch=%d: no multiple of subdivisions=%d, a step would have %d images; write "
                     "batch=%d or %d",
                     batch, parts, batch - rest, batch - rest, batch - rest + parts);
    }
}

/* Trainers of detectors end at max_batches; those of classifiers have no end without it. */
static void check_end(struct cmn_cfg_walk *w)
{
    const char *epochs = cmn_cfg_text(w->q->cfg, 0, "cmn_epochs", "off");
    const char *driver = w->q->driver;
    int ends =
        driver ? cmn_cfg_is_among(" detector yolo coco super ", driver) : w->q->answer == CMN_BOXES;

    if (w->q->trains && ends && !w->q->epochs && !strcmp(epochs, "off") &&
        cmn_cfg_int(w->q->cfg, 0, "max_batches", 0) < 1) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, net_line(w, "max_batches"),
                     "%s: nothing would be trained: write max_batches=N, or cmn_epochs=N",
                     net_line(w, "max_batches") ? "max_batches=0" : "[net] without max_batches");
    }
}

static void check_policy(struct cmn_cfg_walk *w)
{
    const struct cmn_cfg_line *policy = net_line(w, "policy"), *steps = net_line(w, "steps");
    const struct cmn_cfg_line *scales = net_line(w, "scales");
    const char *is = policy ? policy->value : "constant";
    int n, m;

    if (!strcmp(is, "poly") && cmn_cfg_int(w->q->cfg, 0, "max_batches", 0) < 1) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, policy, "policy=poly needs max_batches of at least 1");
    }
    if (!strcmp(is, "step") && cmn_cfg_int(w->q->cfg, 0, "step", 1) < 1) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, net_line(w, "step"),
                     "policy=step needs step of at least 1");
    }
    if (strcmp(is, "steps")) {
        return;
    }
    if (!steps || !scales) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, policy, "policy=steps needs steps= and scales=");
        return;
    }
    n = cmn_cfg_numbers_in(steps->value);
    m = cmn_cfg_numbers_in(scales->value);
    if (n != m) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, scales,
                     "scales=%.80s: %d of them for %d steps; each of steps= needs one",
                     scales->value, m, n);
    }
}

/* Sets the shape of the network's input. */
static void check_input(struct cmn_cfg_walk *w)
{
    struct cmn_cfg_shape in = {.w = cmn_cfg_whole(w, "width", 0),
                               .h = cmn_cfg_whole(w, "height", 0),
                               .c = cmn_cfg_whole(w, "channels", 0),
                               .known = 1};

    in.values = cmn_cfg_whole(w, "inputs", in.w * in.h * in.c);
    if (in.values < 1) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "[net] needs width=, height= and channels=, or inputs=");
        in.known = 0;
    }
    if (in.values * w->batch > 2147483647.0) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "the input of a micro-batch would have %.0f values, and Darknet counts them "
                     "up to 2147483647: make it smaller, or subdivisions larger",
                     in.values * w->batch);
    }
    w->shape[0] = in;
}

/* AlexeyAB's rule for detectors, which most people follow: 2000 iterations for each class and at
 * least 6000, and a smaller learning rate after 80 and 90 % of them
 * (github.com/AlexeyAB/darknet, README, "How to train to detect your custom objects"). */
static void advise(struct cmn_cfg_walk *w, int classes)
{
    enum { EACH = 2000, LEAST = 6000 };
    const struct cmn_cfg_line *most = net_line(w, "max_batches"), *steps = net_line(w, "steps");
    int has = most ? atoi(most->value) : 0;
    long long should = classes * (long long)EACH > LEAST ? classes * (long long)EACH : LEAST;

    if (cmn_cfg_has_more() && cmn_cfg_int(w->q->cfg, 0, "batch", 1) == 1) {
        cmn_cfg_tell(w, CMN_CFG_ADVICE, net_line(w, "batch"),
                     "batch=1 is for a test: this Darknet trains detectors with 2 images a step "
                     "or more: batch=64, subdivisions=16");
    }
    if (has > 0 && has < should) {
        cmn_cfg_tell(
            w, CMN_CFG_ADVICE, most,
            "max_batches=%d is short for classes=%d: the usual number is %d for each class, "
            "and at least %d: max_batches=%lld, steps=%lld,%lld",
            has, classes, EACH, LEAST, should, should * 8 / 10, should * 9 / 10);
    } else if (has > 0 && steps && atoi(steps->value) >= has) {
        cmn_cfg_tell(
            w, CMN_CFG_ADVICE, steps,
            "steps=%.80s lie behind max_batches=%d, so that the learning rate never falls: "
            "80 and 90 %% of it are steps=%lld,%lld",
            steps->value, has, has * 8LL / 10, has * 9LL / 10);
    }
}

/* A layer that finds boxes squashes its input by itself. */
static void advise_activation(struct cmn_cfg_walk *w)
{
    const struct cmn_cfg_file *cfg = w->q->cfg;
    const struct cmn_cfg_line *before = cmn_cfg_find(cfg, w->section - 1, NULL),
                              *l = cmn_cfg_find(cfg, w->section - 1, "activation");
    char type[32];

    cmn_cfg_section_name(before->key, type, sizeof type);
    if (!strcmp(type, "convolutional") && (!l || strncmp(l->value, "linear", 6)) &&
        !cmn_cfg_int(cfg, w->section, "new_coords", 0) && strcmp(w->type, "detection") != 0) {
        cmn_cfg_tell(w, CMN_CFG_ADVICE, l ? l : before,
                     "%s before %s: it takes numbers of any sign: write activation=linear",
                     l ? "this activation" : "[convolutional] without activation= is logistic",
                     w->head->key);
    }
}

/* ---- what a command needs ---- */

/* The last layer that a command needs, and the shape of its images: 3 channels, or a square. */
static const struct {
    const char *driver, *last, *more; /* `more`: only AlexeyAB's Darknet has these, or NULL */
    int boxes, classes;               /* coords=4; classes= if it must be one number */
} trainers[] = {
    {"detector", " [yolo] [region] ", " [Gaussian_yolo] [contrastive] ", 1, 0},
    {"yolo", " [detection] ", NULL, 1, 0},
    {"coco", " [detection] ", NULL, 1, 0},
    {"isegmenter", " [iseg] ", NULL, 0, 80},
};

/* segmenter and isegmenter compare pixels: the network divides both sides by a whole number. */
static void check_pixels(struct cmn_cfg_walk *w, const char *driver)
{
    const struct cmn_cfg_shape *in = &w->shape[0], *out = &w->shape[w->section];
    double by = out->w >= 1 ? floor(in->w / out->w) : 0;

    if (out->known && (by < 1 || in->w != by * out->w || in->h != by * out->h)) {
        cmn_cfg_tell(
            w, CMN_CFG_BAD_LAYER, NULL,
            "%s train: the network makes %.0f x %.0f pixels of %.0f x %.0f, and must divide "
            "both sides by the same whole number",
            driver, out->w, out->h, in->w, in->h);
    }
}

static void check_last(struct cmn_cfg_walk *w, const char *driver)
{
    if (!strcmp(driver, "segmenter") || !strcmp(driver, "isegmenter")) {
        check_pixels(w, driver);
    }
    for (size_t i = 0; i < sizeof trainers / sizeof trainers[0]; i++) {
        const char *more = cmn_cfg_has_more() && trainers[i].more ? trainers[i].more : "";

        if (strcmp(trainers[i].driver, driver)) {
            continue;
        }
        if (!cmn_cfg_is_among(trainers[i].last, w->head->key) &&
            !cmn_cfg_is_among(more, w->head->key)) {
            cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                         "%s is the last layer, and %s train needs one of%s%s", w->head->key,
                         driver, trainers[i].last, more + (more[0] == ' '));
        } else if (trainers[i].boxes && cmn_cfg_whole(w, "coords", 4) != 4) {
            cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, cmn_cfg_find(w->q->cfg, w->section, "coords"),
                         "coords=%.0f: %s train needs coords=4", cmn_cfg_whole(w, "coords", 4),
                         driver);
        } else if (trainers[i].classes && cmn_cfg_whole(w, "classes", 20) != trainers[i].classes) {
            cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, cmn_cfg_find(w->q->cfg, w->section, "classes"),
                         "classes=%.0f: %s train needs classes=%d", cmn_cfg_whole(w, "classes", 20),
                         driver, trainers[i].classes);
        }
    }
}

/* Returns the line that lets a classifier's crop have no pixel, or NULL. */
static const struct cmn_cfg_line *too_small_a_crop(struct cmn_cfg_walk *w, double width)
{
    static const char *const keys[] = {"min_crop", "max_crop", "min_ratio", "max_ratio"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct cmn_cfg_line *l = net_line(w, keys[i]);
        if (l && strtod(l->value, NULL) * (strstr(keys[i], "ratio") ? width : 1) < 1) {
            return l;
        }
    }
    return NULL;
}

/* Loaders give each network the images that its command has, whatever its input. */
static void check_images(struct cmn_cfg_walk *w)
{
    const struct cmn_cfg_shape *in = &w->shape[0];
    int more = cmn_cfg_has_more(), boxes = w->q->answer == CMN_BOXES;
    const struct cmn_cfg_line *l;

    if (!in->known || w->q->answer == CMN_NO_ANSWER) {
        return;
    }
    if (in->w < 1 || in->h < 1 || in->c < 1 || in->values != in->w * in->h * in->c) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, net_line(w, "inputs"),
                     "images of width=%.0f, height=%.0f and channels=%.0f do not fill inputs=%.0f",
                     in->w, in->h, in->c, in->values);
    } else if (in->c != 3 && (in->c != 1 || (boxes && !more))) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, net_line(w, "channels"),
                     "channels=%.0f: %s of this Darknet has images of %s", in->c,
                     boxes ? "a detector" : "a classifier",
                     boxes && !more ? "3 channels: write channels=3" : "1 or 3 channels");
    } else if (!boxes && w->q->trains && !more && (l = too_small_a_crop(w, in->w))) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, l, "%s=%s: a crop would have no pixel: at least 1",
                     l->key, l->value);
    } else if (!boxes && w->q->trains && !more && in->w != in->h) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, net_line(w, "height"),
                     "width=%.0f height=%.0f: a classifier's images are square, so write the same "
                     "number for both",
                     in->w, in->h);
    }
}

/* ---- the whole cfg ---- */

/* The layers that learn, and what one of unknown shape may have. */
#define LEARNING \
    " yolo Gaussian_yolo region detection iseg cost softmax logistic contrastive l2norm "
#define UNKNOWN_MANY 1e300

static void check_classes(struct cmn_cfg_walk *w, int classes)
{
    const struct cmn_cfg_line *in_data = cmn_cfg_find(w->q->data, -1, "classes");
    const struct cmn_cfg_line *in_cfg = cmn_cfg_find(w->q->cfg, w->section, "classes");

    if (in_data && atoi(in_data->value) != classes) {
        cmn_cfg_tell(w, CMN_CFG_BAD_CLASSES, in_cfg, "%sclasses=%d, and %.200s:%d says classes=%d",
                     in_cfg ? "" : "without a number ", classes, w->q->data_name, in_data->line,
                     atoi(in_data->value));
    }
}

static int has_tree(const struct cmn_cfg_question *q)
{
    int found = 0;

    for (int i = 1; i < q->cfg->sections; i++) {
        found |= cmn_cfg_find(q->cfg, i, "tree") != NULL;
    }
    return found;
}

/* Compares the outputs of a classifier or a regressor with the classes of
 * the .data file. */
static void check_outputs(struct cmn_cfg_walk *w, struct cmn_cfg_shape out)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(w->q->data, -1, "classes");
    const struct cmn_cfg_line *leaves = cmn_cfg_find(w->q->data, -1, "leaves");
    int regressor = w->q->driver && !strcmp(w->q->driver, "regressor");
    int classes = l ? atoi(l->value) : regressor ? 1 : 2;

    if (leaves && w->q->answer == CMN_CLASSES && !cmn_cfg_has_more() && !has_tree(w->q)) {
        cmn_cfg_say(w->listener, CMN_CFG_BAD_CLASSES, w->q->data_name, leaves->line,
                    "leaves=%.80s are those of a tree, and the cfg has no tree=: remove it",
                    leaves->value);
    }
    if ((w->q->answer != CMN_CLASSES && !regressor) || !out.known || out.values == classes ||
        (cmn_cfg_has_more() &&
         (cmn_cfg_find(w->q->data, -1, "tree") || cmn_cfg_int(w->q->data, -1, "tag", 0)))) {
        return;
    }
    if (l) {
        cmn_cfg_say(
            w->listener, CMN_CFG_BAD_CLASSES, w->q->data_name, l->line,
            "classes=%d, and the network of %.300s has %.0f outputs: its last layer needs one "
            "for each class",
            classes, w->q->name, out.values);
    } else {
        cmn_cfg_say(
            w->listener, CMN_CFG_BAD_CLASSES, w->q->data_name, 0,
            "without classes= Darknet takes %d, and the network of %.300s has %.0f outputs: "
            "add a line classes=%.0f",
            classes, w->q->name, out.values, out.values);
    }
}

/* What the layers so far say about those behind them: they share one truth. */
struct seen {
    int classes; /* of the last layer that finds boxes; -1: none does */
    double max;  /* numbers of its truth */
};

/* Layers that find boxes share one truth. */
static void check_same_boxes(struct cmn_cfg_walk *w, struct seen *seen)
{
    int classes =
        cmn_cfg_int(w->q->cfg, w->section, "classes", strcmp(w->type, "detection") ? 20 : 1);
    double truths = cmn_cfg_truths(w);
    const struct cmn_cfg_line *each = cmn_cfg_find(w->q->cfg, w->section, "counters_per_class");

    if (w->q->data) {
        check_classes(w, classes);
    }
    if (seen->classes >= 0 && strcmp(w->type, "detection") &&
        (classes != seen->classes || truths != seen->max)) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, cmn_cfg_find(w->q->cfg, w->section, "classes"),
                     "layers that find boxes need the same classes= and max=: here %d classes and "
                     "%.0f numbers of truth, before %d and %.0f",
                     classes, truths, seen->classes, seen->max);
    }
    if (w->q->trains && !w->drawn && w->section > 1) {
        advise_activation(w);
    }
    if (seen->classes < 0 && w->q->trains && !w->drawn) {
        advise(w, classes);
    }
    if (each && cmn_cfg_has_more() && cmn_cfg_numbers_in(each->value) != classes) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, each,
                     "counters_per_class has %d numbers, and needs one for each of the %d classes",
                     cmn_cfg_numbers_in(each->value), classes);
    }
    seen->classes = classes;
    seen->max = truths;
}

/* Checks that each layer that learns finds as much truth as it compares its output with. */
static void check_truths(struct cmn_cfg_walk *w, double truth)
{
    for (w->section = 1; w->section < w->q->cfg->sections; w->section++) {
        char name[32];
        double needs;
        w->head = cmn_cfg_find(w->q->cfg, w->section, NULL);
        cmn_cfg_section_name(w->head->key, name, sizeof name);
        w->type = name;
        w->in = w->shape[w->section - 1];
        needs = w->in.known ? cmn_cfg_truths(w) : 0;
        if (needs > truth) {
            cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                         "%s compares %.0f values with a truth of %.0f, that of the last layer",
                         w->head->key, needs, truth);
        }
        if (cmn_cfg_whole(w, "truth", 0)) {
            truth = w->shape[w->section].known ? w->shape[w->section].values : UNKNOWN_MANY;
        }
    }
}

/* Goes through the layers: sets their shapes, and tells of what does not fit. Returns whether one
 * learns. */
static int walk_layers(struct cmn_cfg_walk *w, const char *bad, char *name, size_t bytes)
{
    struct seen seen = {.classes = -1};
    int learns = 0;

    for (w->section = 1; w->section < w->q->cfg->sections; w->section++) {
        w->head = cmn_cfg_find(w->q->cfg, w->section, NULL);
        cmn_cfg_section_name(w->head->key, name, bytes);
        w->type = name;
        if (w->section == 1 && !strcmp(name, "cost")) {
            cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL, "[cost] must not be the first layer");
        }
        w->in = w->shape[w->section - 1];
        if (cmn_cfg_shape(w) || bad[w->section]) {
            w->out.known = 0;
        }
        w->shape[w->section] = w->out;
        if (cmn_cfg_is_among(" yolo Gaussian_yolo region detection ", name)) {
            check_same_boxes(w, &seen);
        }
        learns |= cmn_cfg_is_among(LEARNING, name) && !cmn_cfg_whole(w, "noloss", 0);
    }
    w->section--;
    return learns;
}

/* Returns whether the training draws other sizes: random= of a classifier's [net], or of the last
 * layer, which finds boxes. AlexeyAB's Darknet draws others, and looks after them by itself. */
static int draws_sizes(struct cmn_cfg_walk *w)
{
    int section = w->q->answer == CMN_CLASSES ? 0 : w->section;

    return w->q->trains && w->q->answer != CMN_NO_ANSWER && w->shape[0].w >= 1 &&
           !cmn_cfg_has_more() && strcmp(w->type, "detection") != 0 &&
           cmn_cfg_int(w->q->cfg, section, "random", 0);
}

/* Goes through the layers with each size that random= may draw, until one does not fit. */
static void check_sizes(struct cmn_cfg_walk *w, const char *bad, char *name, size_t bytes)
{
    enum { STEP = 32 };
    const int classes = w->q->answer == CMN_CLASSES;
    const int from = classes ? CMN_SMALLEST_CLASSIFIER : CMN_SMALLEST_DETECTOR,
              to = classes ? CMN_LARGEST_CLASSIFIER : CMN_LARGEST_DETECTOR;

    for (int side = from; side <= to && !w->faults; side += STEP) {
        w->drawn = side;
        w->shape[0].w = w->shape[0].h = side;
        w->shape[0].values = side * (double)side * w->shape[0].c;
        walk_layers(w, bad, name, bytes);
    }
}

static void check_layers(struct cmn_cfg_walk *w, const char *bad)
{
    char name[32] = "";
    int learns = walk_layers(w, bad, name, sizeof name);
    double last = w->in.known ? cmn_cfg_truths(w) : UNKNOWN_MANY;

    last = last > 0                     ? last
           : w->shape[w->section].known ? w->shape[w->section].values
                                        : UNKNOWN_MANY;
    if (w->q->trains && w->q->driver) {
        check_last(w, w->q->driver);
    }
    if (w->q->trains && !learns) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LAYER, NULL,
                     "no layer of the network learns: end it with [softmax], [cost] or [yolo]");
    }
    if (w->q->data) {
        check_outputs(w, w->shape[w->section]);
    }
    if (w->q->trains && !cmn_cfg_has_more()) {
        check_truths(w, last);
        w->section = w->q->cfg->sections - 1;
    }
    cmn_cfg_section_name(cmn_cfg_find(w->q->cfg, w->section, NULL)->key, name, sizeof name);
    w->type = name;
    if (draws_sizes(w)) {
        struct cmn_cfg_shape in = w->shape[0];
        check_sizes(w, bad, name, sizeof name);
        w->shape[0] = in;
        w->drawn = 0;
    }
    w->section = 0;
    w->head = cmn_cfg_find(w->q->cfg, 0, NULL);
    check_images(w);
}

/* Checks [net] and its layers; bad[i] is set if a number of section i is wrong. */
static void check_sections(struct cmn_cfg_walk *w, const char *bad)
{
    const struct cmn_cfg_line *first = cmn_cfg_find(w->q->cfg, 0, NULL);

    w->head = first;
    if (!first || (strcmp(first->key, "[net]") && strcmp(first->key, "[network]"))) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LINE, first, "the first section is %s, and must be [net]",
                     first ? first->key : "missing");
        return;
    }
    if (w->q->cfg->sections < 2) {
        cmn_cfg_tell(w, CMN_CFG_BAD_LINE, first, "the cfg has no layers");
        return;
    }
    w->type = "net";
    if (!bad[0]) {
        check_batch(w);
        check_end(w);
        check_policy(w);
        w->batch = (double)cmn_cfg_int(w->q->cfg, 0, "batch", 1) /
                   cmn_cfg_int(w->q->cfg, 0, "subdivisions", 1) *
                   cmn_cfg_int(w->q->cfg, 0, "time_steps", 1);
        check_input(w);
    }
    check_layers(w, bad);
}

void cmn_cfg_check(const struct cmn_cfg_question *q, const struct cmn_cfg_listener *listener)
{
    const struct lines f = {q->name, q->cfg, 1, listener,
                            (q->trains ? CMN_USE_TRAINS : 0) |
                                (q->answer == CMN_BOXES ? CMN_USE_BOXES : 0)};
    struct cmn_cfg_walk w = {.q = q, .listener = listener};
    char *bad;

    if (q->cfg->text && cmn_text_is_utf16(q->cfg->text)) {
        tell(&f, CMN_CFG_BAD_LINE, NULL, CMN_UTF16);
        return;
    }
    bad = cmn_calloc((size_t)q->cfg->sections + 1, 1);
    for (int i = 0; i < q->cfg->lines; i++) {
        const struct cmn_cfg_line *l = &q->cfg->each[i];
        if (check_cfg_line(&f, l) && l->section >= 0) {
            bad[l->section] = 1;
        }
    }
    w.shape = cmn_calloc((size_t)q->cfg->sections + 1, sizeof *w.shape);
    check_sections(&w, bad);
    free(w.shape);
    free(bad);
}
