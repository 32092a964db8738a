/* Running a network on images, as evaluations do: lists, images, predictions, boxes.
 *
 * All calls are local and blocking unless they say otherwise. What Darknet cannot read ends the
 * job. */
#ifndef CMN_INFERENCE_H
#define CMN_INFERENCE_H

#include <stddef.h>

struct cmn_net;

/* ---- lists ---- */

/* Collective in a job: rank 0 reads the file for all. The lines of a list of images; *n of
 * them. Never freed. */
char **cmn_read_paths(const char *file, int *n);

/* Collective in a job. The same for names of classes, one a line; the array ends with NULL. */
char **cmn_read_names(const char *file, int *n);

/* What is said of a file with too few of them: file, number, "names" or "labels", classes. */
#define CMN_TOO_FEW_NAMES "%s has %d %s for classes=%d: add the missing ones, or lower classes"

/* ---- images ---- */

enum cmn_image_fit {
    CMN_IMAGE_STRETCH,   /* to the size of the network's input */
    CMN_IMAGE_CROP,      /* the largest part in the middle that has the input's shape */
    CMN_IMAGE_LETTERBOX, /* the whole image, between grey bars */
};

struct cmn_image {
    float *data;       /* as the network's input takes it: channel by channel, 0 to 1 */
    int width, height; /* of the file's image */
};

/* Thread-safe. The caller frees with cmn_image_free. */
struct cmn_image cmn_image_load(const struct cmn_net *net, const char *path,
                                enum cmn_image_fit fit);
void cmn_image_free(struct cmn_image *image);

/* Thread-safe. Whether trainers can read this image: decodes it as they do, in `channels` of them
 * (0: as many as the file has), which become those of *found. 0, or -1 with a reason. */
struct cmn_image_size {
    int width, height, channels;
};
int cmn_image_try(const char *path, int channels, struct cmn_image_size *found);

/* How Darknet fits images into this detector's input: networks of [detection] stretch them. */
enum cmn_image_fit cmn_net_detector_fit(const struct cmn_net *net);

/* ---- predictions ---- */

/* Forward without training, of n images at once: cmn_net_inputs() and cmn_net_truths() floats
 * of each. `truth` may be NULL where nobody asks for the loss. Changes the layers' outputs, the
 * loss, and the state of recurrent layers, which is 0 before: each image stands by itself. */
void cmn_net_predict(struct cmn_net *net, float *input, float *truth, int n);

/* The k classes of image i of the last prediction that have the highest outputs, the best
 * first, out of the first `classes` outputs. With `hierarchy`, outputs of a tree of classes
 * become probabilities first. */
void cmn_net_best_classes(struct cmn_net *net, int i, int classes, int k, int hierarchy, int *best);

/* ---- boxes ---- */

struct cmn_detection {
    float x, y, width, height; /* centre and size, in pixels of the file's image */
    const float *score;        /* of each class; 0: suppressed, or below the threshold */
};

struct cmn_detections {
    struct cmn_detection *each;
    int n;
    void *owned;
};

struct cmn_detect_thresholds {
    float score;     /* the least that counts */
    float hierarchy; /* of a tree of classes: the least probability to go further down */
    float nms; /* intersection over union from which the box with the lower score is suppressed */
};

/* Predicts the boxes of one image; the network's batch is 1. Free with cmn_detections_free. */
struct cmn_detections cmn_net_detect(struct cmn_net *net, const struct cmn_image *image,
                                     const struct cmn_detect_thresholds *thresholds);

/* Whether all outputs of the layers that find boxes were numbers in the last cmn_net_detect(). */
int cmn_net_found_numbers(const struct cmn_net *net);
void cmn_detections_free(struct cmn_detections *found);

/* A line of a label file. Centre and size in parts of the image. */
struct cmn_label {
    int class;
    float x, y, width, height;
};

/* Where Darknet looks for the labels of an image: "images" becomes "labels", the extension
 * .txt. */
enum { CMN_LABEL_FILE = 4096 };
void cmn_label_file(const char *image, char name[CMN_LABEL_FILE]);

/* The caller frees. */
struct cmn_label *cmn_read_labels(const char *file, int *n);

#endif
