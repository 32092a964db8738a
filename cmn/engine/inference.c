/* Running a network on images. */
#include "engine/inference.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef CMN_ALEXEYAB
#include "stb_image.h"
#endif

#include "base/log.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/net.h"

/* ---- lists ---- */

char **cmn_read_paths(const char *file, int *n)
{
    list *lines = get_paths((char *)file);
    char **paths = (char **)list_to_array(lines);

    *n = lines->size;
    free_list(lines);
    return paths;
}

char **cmn_read_names(const char *file, int *n)
{
    char **names = get_labels((char *)file);

    for (*n = 0; names[*n];) {
        ++*n;
    }
    return names;
}

/* ---- images ---- */

/* The middle of the image, as large as possible, in the network's size. */
static image crop_centre(image whole, int w, int h)
{
#ifdef CMN_ALEXEYAB
    /* As its validate_classifier_single() does it. */
    image resized = resize_min(whole, w);
    image middle = crop_image(resized, (resized.w - w) / 2, (resized.h - h) / 2, w, h);

    if (resized.data != whole.data) {
        free_image(resized);
    }
    return middle;
#else
    return center_crop_image(whole, w, h);
#endif
}

struct cmn_image cmn_image_load(const struct cmn_net *handle, const char *path,
                                enum cmn_image_fit fit)
{
    const network *net = cmn_network(handle);
    image whole = load_image((char *)path, 0, 0, net->c), fitted;
    struct cmn_image result = {whole.data, whole.w, whole.h};

    if (fit == CMN_IMAGE_STRETCH && whole.w == net->w && whole.h == net->h) {
        return result;
    }
    switch (fit) {
    case CMN_IMAGE_CROP:
        fitted = crop_centre(whole, net->w, net->h);
        break;
    case CMN_IMAGE_LETTERBOX:
        fitted = letterbox_image(whole, net->w, net->h);
        break;
    default:
        fitted = resize_image(whole, net->w, net->h);
        break;
    }
    free_image(whole);
    result.data = fitted.data;
    return result;
}

void cmn_image_free(struct cmn_image *image)
{
    free(image->data);
    image->data = NULL;
}

#ifdef CMN_ALEXEYAB

static unsigned char *load_pixels(const char *path, int channels, int *w, int *h, int *c,
                                  const char **reason)
{
    unsigned char *pixels = stbi_load(path, w, h, c, channels);

    *reason = pixels ? NULL : stbi_failure_reason();
    return pixels;
}

#endif

int cmn_image_try(const char *path, int channels, struct cmn_image_size *found)
{
    const char *reason;
    unsigned char *pixels;
    struct stat about;
    int c = 0;

    if (!stat(path, &about) && S_ISFIFO(about.st_mode)) {
        return cmn_fail("not a file"); /* it may never end */
    }
    /* As load_image_stb() does it, but for the floats. */
    pixels = load_pixels(path, channels, &found->width, &found->height, &c, &reason);
    if (!pixels) {
        return cmn_fail("%s", reason);
    }
    found->channels = channels ? channels : c;
    free(pixels);
    return 0;
}

enum cmn_image_fit cmn_net_detector_fit(const struct cmn_net *net)
{
    const network *n = cmn_network(net);

#ifdef CMN_ALEXEYAB
    return n->letter_box ? CMN_IMAGE_LETTERBOX : CMN_IMAGE_STRETCH;
#else
    return n->layers[n->n - 1].type == DETECTION ? CMN_IMAGE_STRETCH : CMN_IMAGE_LETTERBOX;
#endif
}

/* ---- predictions ---- */

#ifdef CMN_ALEXEYAB

static void forward(network *net, float *input, float *truth)
{
    network_state state = {.input = input, .truth = truth, .net = *net};

    forward_network(*net, state);
}

#else

static void forward(network *net, float *input, float *truth)
{
    network before = *net;

    net->input = input;
    net->truth = truth;
    net->train = 0;
    net->delta = NULL;
    forward_network(net);
    net->input = before.input;
    net->truth = before.truth;
    net->train = before.train;
    net->delta = before.delta;
}

#endif

void cmn_net_predict(struct cmn_net *handle, float *input, float *truth, int n)
{
    int batch = cmn_net_batch(handle);

    if (n != batch) {
        cmn_net_set_batch(handle, n);
    }
    forward(cmn_network(handle), input, truth);
    if (n != batch) {
        cmn_net_set_batch(handle, batch);
    }
}

void cmn_net_best_classes(struct cmn_net *handle, int i, int classes, int k, int hierarchy,
                          int *best)
{
    const network *net = cmn_network(handle);
    float *out = net->output + (size_t)i * (size_t)net->outputs;

    if (hierarchy && net->hierarchy) {
#ifdef CMN_ALEXEYAB
        hierarchy_predictions(out, net->outputs, net->hierarchy, 1);
#else
        hierarchy_predictions(out, net->outputs, net->hierarchy, 1, 1);
#endif
    }
    top_k(out, classes, k, best);
}

/* ---- boxes ---- */

#ifdef CMN_ALEXEYAB

static detection *find_boxes(network *net, const struct cmn_image *image,
                             const struct cmn_detect_thresholds *t, int *n)
{
    const layer *last = &net->layers[net->n - 1];
    detection *dets = get_network_boxes(net, image->width, image->height, t->score, t->hierarchy,
                                        NULL, 0, n, net->letter_box);

    if (last->nms_kind == DEFAULT_NMS) {
        do_nms_sort(dets, *n, last->classes, t->nms);
    } else {
        diounms_sort(dets, *n, last->classes, t->nms, last->nms_kind, last->beta_nms);
    }
    return dets;
}

#else

static detection *find_boxes(network *net, const struct cmn_image *image,
                             const struct cmn_detect_thresholds *t, int *n)
{
    detection *dets =
        get_network_boxes(net, image->width, image->height, t->score, t->hierarchy, NULL, 0, n);

    do_nms_sort(dets, *n, net->layers[net->n - 1].classes, t->nms);
    return dets;
}

#endif

struct cmn_detections cmn_net_detect(struct cmn_net *handle, const struct cmn_image *image,
                                     const struct cmn_detect_thresholds *t)
{
    network *net = cmn_network(handle);
    struct cmn_detections found = {0};
    detection *dets;

    cmn_net_predict(handle, image->data, NULL, net->batch);
    dets = find_boxes(net, image, t, &found.n);
    found.owned = dets;
    found.each = cmn_calloc((size_t)found.n, sizeof *found.each);
    for (int i = 0; i < found.n; i++) {
        const box *b = &dets[i].bbox;
        found.each[i] = (struct cmn_detection){b->x, b->y, b->w, b->h, dets[i].prob};
    }
    return found;
}

void cmn_detections_free(struct cmn_detections *found)
{
    free_detections(found->owned, found->n);
    free(found->each);
    *found = (struct cmn_detections){0};
}

#ifdef CMN_ALEXEYAB

void cmn_label_file(const char *image, char name[CMN_LABEL_FILE])
{
    replace_image_to_label(image, name);
}

#else

void cmn_label_file(const char *image, char name[CMN_LABEL_FILE])
{
    /* As fill_truth_detection does it. */
    static const char *const change[][2] = {
        {"images", "labels"}, {"JPEGImages", "labels"}, {"raw", "labels"}, {".jpg", ".txt"},
        {".png", ".txt"},     {".JPG", ".txt"},         {".JPEG", ".txt"}};

    find_replace((char *)image, (char *)change[0][0], (char *)change[0][1], name);
    for (size_t i = 1; i < sizeof change / sizeof change[0]; i++) {
        find_replace(name, (char *)change[i][0], (char *)change[i][1], name);
    }
}

#endif

struct cmn_label *cmn_read_labels(const char *file, int *n)
{
    box_label *boxes = read_boxes((char *)file, n);
    struct cmn_label *label = cmn_calloc((size_t)*n, sizeof *label);

    for (int i = 0; i < *n; i++) {
        const box_label *b = &boxes[i];
        label[i] = (struct cmn_label){b->id, b->x, b->y, b->w, b->h};
    }
    free(boxes);
    return label;
}
