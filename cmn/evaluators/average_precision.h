/* Average precision: how well found boxes agree with the true ones. Pure arithmetic on arrays, in
 * double precision and in an order that the boxes alone decide: any number of ranks gets the same
 * bits. docs/use/evaluation.md has the definitions. All local. */
#ifndef CMN_AVERAGE_PRECISION_H
#define CMN_AVERAGE_PRECISION_H

#include <stddef.h>

/* Centre and size, in any unit that found and true boxes have in common. */
struct cmn_box {
    float x, y, w, h;
};

/* Thresholds of intersection over union: 0.50, 0.55 … 0.95, and the caller's. */
enum { CMN_IOU_STEPS = 10, CMN_IOU_OWN = CMN_IOU_STEPS, CMN_IOU_ALL };

struct cmn_found {
    int image, index; /* of the image, and of the box in it; they order equal scores */
    int class;
    float score;
    struct cmn_box box;
    unsigned hits; /* bit i: with threshold i it is matched to a true box */
    double iou;    /* with that true box, for CMN_IOU_OWN; 0: it is not matched */
};

struct cmn_truth {
    int class;
    struct cmn_box box;
};

/* Thresholds and the method. */
struct cmn_precision_plan {
    double iou;       /* the caller's threshold, above 0 and up to 1 */
    float confidence; /* boxes with a higher score count in tp, fp, fn */
    int points;       /* of recall at which precision is taken: 0 (all of them), 11 or 101 */
};

struct cmn_precision {
    long boxes, found;      /* true boxes, and found ones of any score */
    double ap[CMN_IOU_ALL]; /* average precision, 0 to 1; -1: no true box */
    long tp, fp, fn;        /* with the caller's thresholds */
    double precision, recall, f1;
    double iou; /* mean over the true positives */
};

/* Intersection over union; 0 for boxes without an area. */
double cmn_iou(const struct cmn_box *a, const struct cmn_box *b);

/* The threshold number i. */
double cmn_iou_threshold(const struct cmn_precision_plan *plan, int i);

/* For one image: sorts `found` and fills hits and iou of each. In order of falling scores each
 * found box takes, among the true boxes of its class that are not taken, the one with the highest
 * intersection over union, if that reaches the threshold. */
void cmn_match(struct cmn_found *found, size_t n, const struct cmn_truth *truth, size_t truths,
               const struct cmn_precision_plan *plan);

/* For all images, matched before: sorts `found` and fills each[0 … classes-1] and *all, whose
 * counts are sums and whose `ap` are means over the classes that have true boxes (-1: none has).
 * `boxes` holds the number of true boxes of each class. */
void cmn_precision(struct cmn_found *found, size_t n, const long *boxes, int classes,
                   const struct cmn_precision_plan *plan, struct cmn_precision *each,
                   struct cmn_precision *all);

/* The mean of ap over the first CMN_IOU_STEPS thresholds: mAP@0.5:0.95 of `all`; -1: there is no
 * true box. */
double cmn_precision_mean(const struct cmn_precision *p);

#endif
