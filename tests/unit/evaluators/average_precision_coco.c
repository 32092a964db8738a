/* Average precision against COCO's own tool, which tests/golden/boxes.py asked. It works in
 * floating point where we count, so that sums of a hundred numbers differ by 1e-15. */
#include "boxes.h"

#include "golden/boxes.h"

TEST(as_cocos_tool)
{
    static const int points[] = {101, 11, 0};
    double lowest = 1, highest = 0;

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
        struct cmn_precision_plan plan = {.iou = .5, .confidence = .25F, .points = points[i]};
        double mean[CMN_IOU_STEPS] = {0};
        evaluate(&plan);
        for (size_t k = 0; k < COUNT(golden_precision); k++) {
            const struct golden_precision *p = &golden_precision[k];
            for (int t = 0; t < CMN_IOU_STEPS && p->points == plan.points; t++) {
                if (fabs(each[p->class].ap[t] - p->ap[t]) > 1e-12) {
                    fail_msg("%d points, class %d, threshold %d: %.15g, not %.15g", p->points,
                             p->class, t, each[p->class].ap[t], p->ap[t]);
                }
                mean[t] += p->ap[t] / 2;
                lowest = p->ap[t] < lowest ? p->ap[t] : lowest;
                highest = p->ap[t] > highest ? p->ap[t] : highest;
            }
        }
        for (int t = 0; t < CMN_IOU_STEPS; t++) {
            assert_true(fabs(all.ap[t] - mean[t]) < 1e-12);
        }
    }
    /* The boxes can tell: neither all are right nor none. */
    assert_true(lowest > .02 && lowest < .3 && highest > .5 && highest < .98);
}

TESTS(NULL, NULL)
