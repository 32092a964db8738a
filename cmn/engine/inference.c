/* Running a network of pjreddie's Darknet on images. */
#include "engine/inference.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "darknet.h"
#include "image.h"
#include "tree.h"

#include "base/log.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
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
        fitted = center_crop_image(whole, net->w, net->h);
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

    return n->layers[n->n - 1].type == DETECTION ? CMN_IMAGE_STRETCH : CMN_IMAGE_LETTERBOX;
}

/* ---- predictions ---- */

void cmn_net_predict(struct cmn_net *handle, float *input, float *truth, int n)
{
    network *net = cmn_network(handle), before = *net;

    if (n != before.batch) {
        set_batch_network(net, n);
    }
    net->input = input;
    net->truth = truth;
    net->train = 0;
    net->delta = NULL;
    forward_network(net);
    net->input = before.input;
    net->truth = before.truth;
    net->train = before.train;
    net->delta = before.delta;
    if (n != before.batch) {
        set_batch_network(net, before.batch);
    }
}

void cmn_net_best_classes(struct cmn_net *handle, int i, int classes, int k, int hierarchy,
                          int *best)
{
    const network *net = cmn_network(handle);
    float *out = net->output + (size_t)i * (size_t)net->outputs;

    if (hierarchy && net->hierarchy) {
        hierarchy_predictions(out, net->outputs, net->hierarchy, 1, 1);
    }
    top_k(out, classes, k, best);
}

/* ---- boxes ---- */

struct cmn_detections cmn_net_detect(struct cmn_net *handle, const struct cmn_image *image,
                                     const struct cmn_detect_thresholds *t)
{
    network *net = cmn_network(handle);
    struct cmn_detections found = {0};
    detection *dets;

    cmn_net_predict(handle, image->data, NULL, net->batch);
    dets = get_network_boxes(net, image->width, image->height, t->score, t->hierarchy, NULL, 0,
                             &found.n);
    do_nms_sort(dets, found.n, net->layers[net->n - 1].classes, t->nms);
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
