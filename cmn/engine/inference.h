/* Running a network on images, as evaluations do: lists, images, predictions, boxes.
 *
 * All functions are local and blocking unless a comment says otherwise. Input that Darknet cannot
 * read ends the job. */
#ifndef CMN_INFERENCE_H
#define CMN_INFERENCE_H

#include <stddef.h>

#include "engine/net_tree.h"

struct cmn_net;

/* ---- lists ---- */

/* Collective in a job: rank 0 reads the file for all ranks. Returns the lines of a list of images
 * and sets *n to their number. They are never freed. */
char **cmn_read_paths(const char *file, int *n);

/* The message for a file with too few names or labels. Arguments: file, number, "names" or
 * "labels", classes. */
#define CMN_TOO_FEW_NAMES "%s has %d %s for classes=%d: add the missing ones, or lower classes"

/* ---- images ---- */

enum cmn_image_fit {
    CMN_IMAGE_STRETCH,   /* stretched to the size of the network's input */
    CMN_IMAGE_CROP,      /* the largest part in the middle that has the input's shape */
    CMN_IMAGE_LETTERBOX, /* the whole image, between grey bars */
};

struct cmn_image {
    float *data;       /* in the network's input format: channel by channel, 0 to 1 */
    int width, height; /* pixels of the image in the file */
};

/* Thread-safe. Loads an image and fits it to the network's input. The caller frees it with
 * cmn_image_free(). */
struct cmn_image cmn_image_load(const struct cmn_net *net, const char *path,
                                enum cmn_image_fit fit);
void cmn_image_free(struct cmn_image *image);

/* ---- predictions ---- */

/* Runs forward without training on n images together: cmn_net_inputs() and cmn_net_truths() floats
 * for each. `truth` may be NULL if the caller does not need the loss. Changes the layers' outputs
 * and the loss. */
void cmn_net_predict(struct cmn_net *net, float *input, float *truth, int n);

/* Fills best[] with the k classes of image i of the last prediction that have the highest outputs,
 * the best first, out of the first `classes` outputs. The outputs of a tree of classes become
 * probabilities first. */
void cmn_net_best_classes(struct cmn_net *net, int i, int classes, int k, int *best);

/* ---- boxes ---- */

struct cmn_detection {
    float x, y, width, height; /* centre and size, in pixels of the file's image */
    const float *score;        /* one score per class; 0: suppressed, or below the threshold */
};

struct cmn_detections {
    struct cmn_detection *each;
    int n;
    void *owned;
};

struct cmn_detect_thresholds {
    float score;     /* the lowest score that counts */
    float hierarchy; /* lowest probability at which a tree of classes is followed downwards */
    /* The intersection over union above which the box with the lower score is suppressed. */
    float nms;
};

/* Predicts the boxes of one image; the network's batch must be 1. Free them with
 * cmn_detections_free(). */
struct cmn_detections cmn_net_detect(struct cmn_net *net, const struct cmn_image *image,
                                     const struct cmn_detect_thresholds *thresholds);

/* Returns whether all outputs of the layers that find boxes were finite in the last
 * cmn_net_detect(). */
int cmn_net_found_numbers(const struct cmn_net *net);
void cmn_detections_free(struct cmn_detections *found);

#endif
