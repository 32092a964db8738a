/* How well found boxes agree with the true ones: matching, average precision, its means. Pure arithmetic on arrays, in
 * double precision and in an order that only the boxes decide, so that any number of ranks gets the same bits.
 * docs/evaluation.md has the definitions. All local. */
#ifndef CMN_AVERAGE_PRECISION_H
#define CMN_AVERAGE_PRECISION_H

#include <stddef.h>

/* Centre and size, in any unit that both kinds of boxes share. */
struct cmn_box {
    float x, y, w, h;
};

/* Thresholds of intersection over union: 0.50, 0.55 … 0.95, and one of the caller's choice. */
enum { CMN_IOU_STEPS = 10, CMN_IOU_OWN = CMN_IOU_STEPS, CMN_IOU_ALL };

struct cmn_found {
    int image,
        index; /* number of the image, and of the box in it: they decide between equal scores */
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

/* What is asked. */
struct cmn_precision_plan {
    double iou;       /* the caller's threshold, above 0 and up to 1 */
    float confidence; /* boxes with a higher score count in tp, fp, fn */
    int points;       /* of recall at which precision is taken: 0 (all of them), 11 or 101 */
};

struct cmn_precision {
    long boxes, found;      /* true boxes, and found ones of any score */
    double ap[CMN_IOU_ALL]; /* average precision, 0 to 1; -1: there is no true box */
    long tp, fp, fn;        /* with the caller's thresholds */
    double precision, recall, f1;
    double iou; /* mean over the true positives */
};

/* Intersection over union; 0 for boxes without an area. */
double cmn_iou(const struct cmn_box *a, const struct cmn_box *b);

/* The threshold number i. */
double cmn_iou_threshold(const struct cmn_precision_plan *plan, int i);

/* Of one image: sorts `found` and fills hits and iou of each. The found boxes of a class, the highest score first, each
 * take the true box of that class, among those not taken yet, with which they have the highest intersection over union,
 * if that reaches the threshold. 0, or -1 with a reason when memory is short. */
int cmn_match(struct cmn_found *found, size_t n, const struct cmn_truth *truth, size_t truths,
              const struct cmn_precision_plan *plan);

/* Of all images, matched before: sorts `found` and fills each[0 … classes-1], and *all: sums of the counts, means of `ap` over
 * the classes that have true boxes (-1: none has). `boxes` holds the number of true boxes of each class. 0, or -1 with a reason. */
int cmn_precision(struct cmn_found *found, size_t n, const long *boxes, int classes,
                  const struct cmn_precision_plan *plan, struct cmn_precision *each,
                  struct cmn_precision *all);

/* The mean of ap over the first CMN_IOU_STEPS thresholds: mAP@0.5:0.95 of `all`; -1: there is no true box. */
double cmn_precision_mean(const struct cmn_precision *p);

#endif
