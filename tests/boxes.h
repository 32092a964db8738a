/* Found and true boxes of a few images, and their evaluation as ranks do it: for the tests of
 * average precision. */
#ifndef TESTS_BOXES_H
#define TESTS_BOXES_H

#include "check.h"

#include <math.h>

#include "evaluators/average_precision.h"

enum { CLASSES = 4, IMAGES = 12, MOST = 400, GRID = 16 };

static struct cmn_found found[MOST];
static struct cmn_truth truth[IMAGES][MOST];
static size_t founds, truths[IMAGES];
static struct cmn_precision each[CLASSES], all;

static inline void clear(void)
{
    founds = 0;
    memset(truths, 0, sizeof truths);
}

/* A box with whole corners on the grid, so that the areas are exact. */
static inline struct cmn_box on_grid(int left, int top, int right, int bottom)
{
    return (struct cmn_box){(float)(left + right) / (2 * GRID), (float)(top + bottom) / (2 * GRID),
                            (float)(right - left) / GRID, (float)(bottom - top) / GRID};
}

static inline void find_box(int image, int class, float score, struct cmn_box box)
{
    found[founds] = (struct cmn_found){
        .image = image, .index = (int)founds, .class = class, .score = score, .box = box};
    founds++;
}

static inline void add_truth(int image, int class, struct cmn_box box)
{
    truth[image][truths[image]++] = (struct cmn_truth){class, box};
}

/* Each image's boxes are matched by themselves, as a rank does. */
static inline void evaluate(const struct cmn_precision_plan *plan)
{
    static struct cmn_found one[MOST], done[MOST];
    long boxes[CLASSES] = {0};
    size_t n = 0;

    for (int i = 0; i < IMAGES; i++) {
        size_t m = 0;
        for (size_t k = 0; k < founds; k++) {
            if (found[k].image == i) {
                one[m++] = found[k];
            }
        }
        cmn_match(one, m, truth[i], truths[i], plan);
        memcpy(done + n, one, m * sizeof *one);
        n += m;
        for (size_t k = 0; k < truths[i]; k++) {
            boxes[truth[i][k].class]++;
        }
    }
    assert_int_equal(n, founds);
    cmn_precision(done, n, boxes, CLASSES, plan, each, &all);
}

#endif
