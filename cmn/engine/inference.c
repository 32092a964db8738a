/* Running a network on images. */
#include "engine/inference.h"

#include <stdlib.h>

#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/net.h"
#include "engine/nonfinite.h"

/* ---- lists ---- */

char **cmn_read_paths(const char *file, int *n)
{
    list *lines = get_paths((char *)file);
    char **paths = (char **)list_to_array(lines);

    *n = lines->size;
    free_list(lines);
    return paths;
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
        fitted = cmn_tree_crop_centre(whole, net->w, net->h);
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

/* ---- predictions ---- */

void cmn_net_predict(struct cmn_net *handle, float *input, float *truth, int n)
{
    int batch = cmn_net_batch(handle);

    if (n != batch) {
        cmn_net_set_batch(handle, n);
    }
    cmn_tree_predict(cmn_network(handle), input, truth);
    if (n != batch) {
        cmn_net_set_batch(handle, batch);
    }
}

void cmn_net_best_classes(struct cmn_net *handle, int i, int classes, int k, int *best)
{
    const network *net = cmn_network(handle);
    float *out = net->output + (size_t)i * (size_t)net->outputs;

    if (net->hierarchy) {
        cmn_tree_hierarchy(net, out);
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
    dets =
        cmn_tree_boxes(net, image->width, image->height, t->score, t->hierarchy, t->nms, &found.n);
    found.owned = dets;
    found.each = cmn_calloc((size_t)found.n, sizeof *found.each);
    for (int i = 0; i < found.n; i++) {
        const box *b = &dets[i].bbox;
        found.each[i] = (struct cmn_detection){b->x, b->y, b->w, b->h, dets[i].prob};
    }
    return found;
}

int cmn_net_found_numbers(const struct cmn_net *handle)
{
    const network *net = cmn_network(handle);

    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        if (cmn_tree_layer(l).finds_boxes && cmn_nonfinite_find(l->output, (size_t)l->outputs)) {
            return 0;
        }
    }
    return 1;
}

void cmn_detections_free(struct cmn_detections *found)
{
    free_detections(found->owned, found->n);
    free(found->each);
    *found = (struct cmn_detections){0};
}
