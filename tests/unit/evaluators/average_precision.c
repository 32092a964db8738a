/* Average precision: cases with known answers, and the boxes of tests/golden/boxes.py against COCO's
 * own tool. */
#include "check.h"

#include <math.h>

#include "evaluators/average_precision.h"
#include "golden/boxes.h"

enum { CLASSES = 3, IMAGES = 12, MOST = 64, GRID = 16 };

static struct cmn_found found[MOST];
static struct cmn_truth truth[IMAGES][MOST];
static size_t founds, truths[IMAGES];
static struct cmn_precision each[CLASSES], all;

static void clear(void)
{
    founds = 0;
    memset(truths, 0, sizeof truths);
}

/* A box with whole corners on the grid, so that the areas are exact. */
static struct cmn_box on_grid(int left, int top, int right, int bottom)
{
    return (struct cmn_box){(float)(left + right) / (2 * GRID), (float)(top + bottom) / (2 * GRID),
                            (float)(right - left) / GRID, (float)(bottom - top) / GRID};
}

static void find_box(int image, int class, float score, struct cmn_box box)
{
    found[founds] = (struct cmn_found){
        .image = image, .index = (int)founds, .class = class, .score = score, .box = box};
    founds++;
}

static void add_truth(int image, int class, struct cmn_box box)
{
    truth[image][truths[image]++] = (struct cmn_truth){class, box};
}

static void assert_near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-12)) {
        fail_msg("%.15g, not %.15g", is, should);
    }
}

static void check_rates(const struct cmn_precision *p)
{
    assert_int_equal(p->fn, p->boxes - p->tp);
    assert_near(p->precision * (double)(p->tp + p->fp), (double)p->tp);
    assert_near(p->recall * (double)p->boxes, (double)p->tp);
    assert_near(p->f1 * (p->precision + p->recall), 2 * p->precision * p->recall);
}

/* Each image's boxes are matched by themselves, as a rank does, in whichever order they are. */
static void evaluate(const struct cmn_precision_plan *plan, int backwards)
{
    static struct cmn_found one[MOST], done[MOST];
    long boxes[CLASSES] = {0};
    size_t n = 0;

    for (int i = 0; i < IMAGES; i++) {
        size_t m = 0;
        for (size_t k = 0; k < founds; k++) {
            const struct cmn_found *f = &found[backwards ? founds - 1 - k : k];
            if (f->image == i) {
                one[m++] = *f;
            }
        }
        cmn_match(one, m, truth[i], truths[i], plan);
        memcpy(done + n, one, m * sizeof *one);
        n += m;
        for (size_t k = 0; k < truths[i]; k++) {
            boxes[truth[i][k].class]++;
        }
    }
    cmn_precision(done, n, boxes, CLASSES, plan, each, &all);
    assert_int_equal(all.found, founds);
    for (int c = 0; c < CLASSES; c++) {
        assert_int_equal(each[c].boxes, boxes[c]);
        check_rates(&each[c]);
    }
    check_rates(&all);
}

/* A true box in each of the images named, of each class in turn; of each box that is found its
 * image, class, score, and how many sixteenths it covers of the true box of its image and class, if
 * there is one. What is asked: the mean over the classes at thresholds of 0.50 and 0.75, and the
 * counts and the mean IoU with a threshold of 0.60 and a confidence of 0.25. */
static const struct {
    const char *what, *truth, *found;
    double ap50, ap75;
    long tp, fp, fn;
    double iou;
} cases[] = {
    {"nothing", "", "", -1, -1, 0, 0, 0, 0},
    {"nothing is true", "", "a1 .9 16", -1, -1, 0, 1, 0, 0},
    {"nothing is found", "a", "", 0, 0, 0, 0, 1, 0},
    {"all is right, and a class without truth does not count", "ab,c", "a0 .3 16 b0 .9 16 c1 .5 16",
     1, 1, 3, 0, 0, 1},
    {"a box of another class is wrong", "a,b", "a1 .9 16", 0, 0, 0, 1, 2, 0},
    {"thresholds", "abcd", "a0 .9 16 b0 .8 12 c0 .7 11 d0 .6 8", 1, .5, 3, 1, 1,
     (16 + 12 + 11) / 48.},
    {"of two boxes on one the better score has it", "a", "a0 .8 16 a0 .9 10", 1, .5, 1, 1, 0,
     10 / 16.},
    {"only a score above the confidence counts", "ab", "a0 .25 16 b0 .26 16", 1, 1, 1, 0, 1, 1},
    {"of equal scores the first image is first", "a,b", "b0 .5 16 a0 .5 16 b1 .5 16 a1 .5 16", .75,
     .75, 2, 2, 0, 1},
    {"then the first box", "a", "a0 .5 10 a0 .5 16", 1, .5, 1, 1, 0, 10 / 16.},
};

TEST(cases_with_known_answers)
{
    const struct cmn_precision_plan plan = {.iou = .6, .confidence = .25f, .points = 0};
    const struct cmn_box whole = on_grid(0, 0, 16, 16);

    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        size_t k = i / 2;
        int kind = 0, sixteenths, used;
        float score;
        char image;
        clear();
        for (const char *at = cases[k].truth; *at; at++) {
            if (*at == ',') {
                kind++;
            } else {
                add_truth(*at - 'a', kind, whole);
            }
        }
        for (const char *box = cases[k].found;
             sscanf(box, " %c%d %f %d%n", &image, &kind, &score, &sixteenths, &used) == 4;
             box += used) {
            find_box(image - 'a', kind, score, on_grid(0, 0, sixteenths, 16));
        }
        evaluate(&plan, i % 2);
        if (fabs(all.ap[0] - cases[k].ap50) > 1e-12 || fabs(all.ap[5] - cases[k].ap75) > 1e-12 ||
            all.tp != cases[k].tp || all.fp != cases[k].fp || all.fn != cases[k].fn ||
            fabs(all.iou - cases[k].iou) > 1e-12) {
            fail_msg("%s: %g, %g; %ld, %ld, %ld; %g", cases[k].what, all.ap[0], all.ap[5], all.tp,
                     all.fp, all.fn, all.iou);
        }
    }
}

TEST(boxes_without_an_area_match_nothing)
{
    struct cmn_box good = on_grid(0, 0, 8, 8), flat = good, odd = good;

    flat.h = 0;
    odd.w = NAN;
    assert_near(cmn_iou(&good, &good), 1);
    assert_near(cmn_iou(&good, &flat), 0);
    assert_near(cmn_iou(&flat, &flat), 0);
    assert_near(cmn_iou(&good, &odd), 0);
}

/* COCO's tool works in floating point where we count, so that sums of a hundred numbers differ by
 * 1e-15. */
static void check_golden(int points, int own)
{
    const struct cmn_precision_plan plan = {
        .iou = (50 + 5 * own) / 100., .confidence = .25F, .points = points};
    double mean[CMN_IOU_STEPS] = {0}, of_all = 0;

    evaluate(&plan, own % 2);
    for (size_t k = 0; k < COUNT(golden_precision); k++) {
        const struct golden_precision *p = &golden_precision[k];
        for (int t = 0; t < CMN_IOU_STEPS && p->points == points; t++) {
            if (fabs(each[p->class].ap[t] - p->ap[t]) > 1e-12) {
                fail_msg("%d points, class %d, threshold %d: %.15g, not %.15g", points, p->class, t,
                         each[p->class].ap[t], p->ap[t]);
            }
            mean[t] += p->ap[t] / 2;
        }
    }
    for (int t = 0; t < CMN_IOU_STEPS; t++) {
        assert_near(all.ap[t], mean[t]);
        of_all += mean[t] / CMN_IOU_STEPS;
    }
    assert_near(all.ap[CMN_IOU_OWN], mean[own]);
    assert_near(cmn_precision_mean(&all), of_all);
    assert_near(each[2].ap[0], -1); /* it has no true box */
}

TEST(as_cocos_tool)
{
    static const int points[] = {101, 11, 0};

    clear();
    for (size_t i = 0; i < COUNT(golden_truth); i++) {
        const struct golden_box *b = &golden_truth[i];
        add_truth(b->image, b->class, on_grid(b->left, b->top, b->right, b->bottom));
    }
    for (size_t i = 0; i < COUNT(golden_found); i++) {
        const struct golden_box *b = &golden_found[i];
        find_box(b->image, b->class, (float)b->score / 256,
                 on_grid(b->left, b->top, b->right, b->bottom));
    }
    assert_int_equal(COUNT(golden_precision), 2 * COUNT(points));
    for (size_t i = 0; i < COUNT(points); i++) {
        for (int own = 0; own < CMN_IOU_STEPS; own++) {
            check_golden(points[i], own);
        }
    }
}

TESTS(NULL, NULL)
