#include "evaluators/average_precision.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

double cmn_iou(const struct cmn_box *a, const struct cmn_box *b)
{
    double aw = a->w, ah = a->h, bw = b->w, bh = b->h;
    double left = a->x - aw / 2 > b->x - bw / 2 ? a->x - aw / 2 : b->x - bw / 2;
    double right = a->x + aw / 2 < b->x + bw / 2 ? a->x + aw / 2 : b->x + bw / 2;
    double top = a->y - ah / 2 > b->y - bh / 2 ? a->y - ah / 2 : b->y - bh / 2;
    double bottom = a->y + ah / 2 < b->y + bh / 2 ? a->y + ah / 2 : b->y + bh / 2;
    double common;

    /* Written as a negation, so that NaN gives no intersection. */
    if (!(right > left && bottom > top)) {
        return 0;
    }
    common = (right - left) * (bottom - top);
    return common / (aw * ah + bw * bh - common);
}

double cmn_iou_threshold(const struct cmn_precision_plan *plan, int i)
{
    return i == CMN_IOU_OWN ? plan->iou : (50 + 5 * i) / 100.0;
}

/* Orders boxes by class, then by falling score. No two boxes compare equal, so any sort gives the
 * same order. */
static int before(const void *pa, const void *pb)
{
    const struct cmn_found *a = pa, *b = pb;

    if (a->class != b->class) {
        return a->class < b->class ? -1 : 1;
    }
    if (a->score != b->score) {
        return a->score > b->score ? -1 : 1;
    }
    if (a->image != b->image) {
        return a->image < b->image ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

/* `found` may be NULL if n is 0, which qsort does not allow. */
static void sort(struct cmn_found *found, size_t n)
{
    if (n) {
        qsort(found, n, sizeof *found, before);
    }
}

/* Matches one found box at every threshold. Bit i of taken[j] says that another found box is
 * matched to true box j at threshold i. */
static void match_one(struct cmn_found *f, const struct cmn_truth *truth, size_t truths,
                      const struct cmn_precision_plan *plan, unsigned *taken)
{
    double best[CMN_IOU_ALL] = {0};
    size_t whose[CMN_IOU_ALL] = {0};

    f->hits = 0;
    f->iou = 0;
    for (size_t j = 0; j < truths; j++) {
        double iou = truth[j].class == f->class ? cmn_iou(&f->box, &truth[j].box) : 0;
        for (int i = 0; i < CMN_IOU_ALL; i++) {
            if (iou > best[i] && !(taken[j] >> i & 1)) {
                best[i] = iou;
                whose[i] = j;
            }
        }
    }
    for (int i = 0; i < CMN_IOU_ALL; i++) {
        if (best[i] > 0 && best[i] >= cmn_iou_threshold(plan, i)) {
            taken[whose[i]] |= 1u << i;
            f->hits |= 1u << i;
        }
    }
    if (f->hits >> CMN_IOU_OWN & 1) {
        f->iou = best[CMN_IOU_OWN];
    }
}

void cmn_match(struct cmn_found *found, size_t n, const struct cmn_truth *truth, size_t truths,
               const struct cmn_precision_plan *plan)
{
    unsigned *taken = cmn_calloc(truths, sizeof *taken);

    sort(found, n);
    for (size_t i = 0; i < n; i++) {
        match_one(&found[i], truth, truths, plan, taken);
    }
    free(taken);
}

/* Replaces precision[i], the precision of the first i+1 boxes, by the maximum of precision[i …
 * n-1]. */
static void envelope(double *precision, size_t n)
{
    for (size_t i = n; i-- > 1;) {
        if (precision[i - 1] < precision[i]) {
            precision[i - 1] = precision[i];
        }
    }
}

/* Returns whether `right` of `boxes` boxes reach the recall number k of `points`. COCO's tool
 * compares with multiples of 0.01 in floating point, in which 0.70 is a bit more than 14 / 20. */
static int reaches(long right, long boxes, long k, int points)
{
    return points == 101 ? (double)right / (double)boxes >= (double)k * .01
                         : right * (points - 1) >= k * boxes;
}

/* Returns the mean of the envelope at `points` points of recall from 0 to 1. It counts as 0 beyond
 * the highest recall. */
static double at_points(const double *precision, const long *right, size_t n, long boxes,
                        int points)
{
    double sum = 0;
    size_t i = 0;

    for (long k = 0; k < points; k++) {
        while (i < n && !reaches(right[i], boxes, k, points)) {
            i++;
        }
        sum += i < n ? precision[i] : 0;
    }
    return sum / points;
}

/* Returns the area below the envelope over recall. Each matched box adds one step of recall. */
static double area(const double *precision, const long *right, size_t n, long boxes)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (right[i] > (i ? right[i - 1] : 0)) {
            sum += precision[i];
        }
    }
    return sum / (double)boxes;
}

/* Arrays with an entry for each found box of a class. */
struct curve {
    double *precision;
    long *right; /* right[i]: how many of the first i+1 boxes are matched */
};

static double average(const struct cmn_found *found, size_t n, long boxes, int threshold,
                      int points, const struct curve *c)
{
    long right = 0;

    if (boxes == 0) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        right += found[i].hits >> threshold & 1;
        c->right[i] = right;
        c->precision[i] = (double)right / (double)(i + 1);
    }
    envelope(c->precision, n);
    return points ? at_points(c->precision, c->right, n, boxes, points)
                  : area(c->precision, c->right, n, boxes);
}

/* Fills in the rates that follow from the counts. `iou` is the sum of IoU over the true
 * positives. */
static void rate(struct cmn_precision *p, double iou)
{
    p->fn = p->boxes - p->tp;
    p->precision = p->tp + p->fp ? (double)p->tp / (double)(p->tp + p->fp) : 0;
    p->recall = p->boxes ? (double)p->tp / (double)p->boxes : 0;
    p->f1 = p->tp ? 2 * (double)p->tp / (double)(2 * p->tp + p->fp + p->fn) : 0;
    p->iou = p->tp ? iou / (double)p->tp : 0;
}

/* Counts true and false positives. Returns the sum of IoU over the true positives. */
static double count(const struct cmn_found *found, size_t n, float confidence,
                    struct cmn_precision *p)
{
    double iou = 0;

    for (size_t i = 0; i < n && found[i].score > confidence; i++) {
        int hit = found[i].hits >> CMN_IOU_OWN & 1;
        p->tp += hit;
        p->fp += !hit;
        iou += found[i].iou;
    }
    return iou;
}

static void add(struct cmn_precision *all, const struct cmn_precision *one)
{
    all->boxes += one->boxes;
    all->found += one->found;
    all->tp += one->tp;
    all->fp += one->fp;
    for (int k = 0; k < CMN_IOU_ALL && one->boxes; k++) {
        all->ap[k] += one->ap[k];
    }
}

void cmn_precision(struct cmn_found *found, size_t n, const long *boxes, int classes,
                   const struct cmn_precision_plan *plan, struct cmn_precision *each,
                   struct cmn_precision *all)
{
    struct curve c = {cmn_calloc(n, sizeof(double)), cmn_calloc(n, sizeof(long))};
    double iou = 0;
    size_t at = 0;
    int counted = 0;

    memset(all, 0, sizeof *all);
    sort(found, n);
    for (int k = 0; k < classes; k++) {
        size_t end = at;
        double sum;
        while (end < n && found[end].class == k) {
            end++;
        }
        each[k] = (struct cmn_precision){.boxes = boxes[k], .found = (long)(end - at)};
        for (int i = 0; i < CMN_IOU_ALL; i++) {
            each[k].ap[i] = average(found + at, end - at, boxes[k], i, plan->points, &c);
        }
        sum = count(found + at, end - at, plan->confidence, &each[k]);
        rate(&each[k], sum);
        add(all, &each[k]);
        iou += sum;
        counted += boxes[k] > 0;
        at = end;
    }
    rate(all, iou);
    for (int i = 0; i < CMN_IOU_ALL; i++) {
        all->ap[i] = counted ? all->ap[i] / counted : -1;
    }
    free(c.precision);
    free(c.right);
}

double cmn_precision_mean(const struct cmn_precision *p)
{
    double sum = 0;

    for (int i = 0; i < CMN_IOU_STEPS; i++) {
        sum += p->ap[i];
    }
    return sum / CMN_IOU_STEPS;
}
