/* Average precision: how well found boxes agree with the true ones. Pure arithmetic on arrays, in
 * double precision and in an order that depends only on the boxes, so any number of ranks gets the
 * same bits. docs/use/evaluation.md has the definitions. All calls are local. */
#ifndef CMN_AVERAGE_PRECISION_H
#define CMN_AVERAGE_PRECISION_H

#include <stddef.h>

/* Centre and size, in any unit that is common to found and true boxes. */
struct cmn_box {
    float x, y, w, h;
};

/* Thresholds of intersection over union (IoU): 0.50, 0.55 … 0.95, and the caller's own. */
enum { CMN_IOU_STEPS = 10, CMN_IOU_OWN = CMN_IOU_STEPS, CMN_IOU_ALL };

struct cmn_found {
    int image, index; /* number of the image and of the box in it; the order of equal scores */
    int class;
    float score;
    struct cmn_box box;
    unsigned hits; /* bit i: it is matched to a true box at threshold i */
    double iou;    /* IoU with the true box matched at CMN_IOU_OWN; 0: not matched */
};

struct cmn_truth {
    int class;
    struct cmn_box box;
};

/* The thresholds, and the method of averaging. */
struct cmn_precision_plan {
    double iou;       /* the caller's IoU threshold, above 0 and at most 1 */
    float confidence; /* only boxes with a higher score count for tp, fp and fn */
    int points;       /* points of recall at which precision is averaged: 0 (all), 11 or 101 */
};

struct cmn_precision {
    long boxes, found;      /* number of true boxes; of found boxes of any score */
    double ap[CMN_IOU_ALL]; /* average precision at each threshold, 0 to 1; -1: no true box */
    long tp, fp, fn;        /* with the caller's thresholds */
    double precision, recall, f1;
    double iou; /* mean IoU of the true positives */
};

/* Returns the intersection over union; 0 for boxes without an area. */
double cmn_iou(const struct cmn_box *a, const struct cmn_box *b);

/* Returns threshold number i. */
double cmn_iou_threshold(const struct cmn_precision_plan *plan, int i);

/* For one image: sorts `found` and fills in hits and iou of each box. In the order of falling
 * scores each found box is matched, among the true boxes of its class that are not yet matched, to
 * the one with the highest IoU, if that reaches the threshold. */
void cmn_match(struct cmn_found *found, size_t n, const struct cmn_truth *truth, size_t truths,
               const struct cmn_precision_plan *plan);

/* For all images, after cmn_match(): sorts `found` and fills in each[0 … classes-1] and *all. The
 * counts of *all are sums, and its `ap` are means over the classes that have true boxes (-1: none
 * has). `boxes` has the number of true boxes of each class. */
void cmn_precision(struct cmn_found *found, size_t n, const long *boxes, int classes,
                   const struct cmn_precision_plan *plan, struct cmn_precision *each,
                   struct cmn_precision *all);

/* Returns the mean of ap over the first CMN_IOU_STEPS thresholds, which for `all` is mAP@0.5:0.95;
 * -1 if there is no true box. */
double cmn_precision_mean(const struct cmn_precision *p);

#endif
