/* Average precision: cases with known answers. Random ones are in average_precision_random.c. */
#include "boxes.h"

static const struct cmn_precision_plan usual = {.iou = .5, .confidence = .25f, .points = 0};

static void assert_near(double is, double should)
{
    if (fabs(is - should) > 1e-12) {
        fail_msg("%.15g, not %.15g", is, should);
    }
}

TEST(perfect_boxes_have_one_everywhere)
{
    clear();
    for (int i = 0; i < 6; i++) {
        add_truth(i, i % 2, on_grid(1, 2, 7, 9));
        find_box(i, i % 2, .3f + .1f * (float)i, on_grid(1, 2, 7, 9));
    }
    evaluate(&usual);
    assert_near(all.ap[0], 1);
    assert_near(cmn_precision_mean(&all), 1);
    assert_near(each[1].ap[9], 1);
    assert_near(all.precision, 1);
    assert_near(all.recall, 1);
    assert_near(all.f1, 1);
    assert_near(all.iou, 1);
    assert_int_equal(all.tp, 6);
    assert_int_equal(all.fp + all.fn, 0);
    assert_near(each[2].ap[0], -1); /* no true box of that class: it does not count */
}

TEST(nothing_found_is_zero)
{
    clear();
    add_truth(0, 1, on_grid(1, 2, 7, 9));
    evaluate(&usual);
    assert_near(all.ap[0], 0);
    assert_near(each[1].ap[0], 0);
    assert_near(each[0].ap[0], -1);
    assert_int_equal(all.fn, 1);
    assert_near(all.precision + all.recall + all.f1 + all.iou, 0);
}

TEST(nothing_true_is_not_defined)
{
    clear();
    cmn_match(NULL, 0, NULL, 0, &usual);
    evaluate(&usual);
    assert_near(all.ap[0], -1);
    find_box(3, 1, .9f, on_grid(1, 2, 7, 9));
    evaluate(&usual);
    assert_near(all.ap[0], -1);
    assert_near(cmn_precision_mean(&all), -1);
    assert_int_equal(all.fp, 1);
}

TEST(a_second_box_on_the_same_truth_is_wrong)
{
    clear();
    add_truth(0, 0, on_grid(0, 0, 8, 8));
    add_truth(1, 0, on_grid(0, 0, 8, 8));
    find_box(0, 0, .9f, on_grid(0, 0, 8, 8));
    find_box(0, 0, .8f, on_grid(0, 0, 8, 8));
    find_box(1, 0, .7f, on_grid(0, 0, 8, 8));
    evaluate(&usual);
    /* right, wrong, right: precisions 1, 1/2, 2/3 at recalls 1/2, 1/2, 1 */
    assert_near(each[0].ap[0], .5 * 1 + .5 * 2 / 3);
    assert_int_equal(all.tp, 2);
    assert_int_equal(all.fp, 1);
    assert_near(all.precision, 2. / 3);
    assert_near(all.f1, .8);
}

/* The better of two boxes comes second: it gets what the first has left, and not what is taken. */
TEST(a_taken_box_is_not_taken_again)
{
    clear();
    add_truth(0, 0, on_grid(0, 0, 8, 8));
    add_truth(0, 0, on_grid(0, 2, 8, 10));
    find_box(0, 0, .9f, on_grid(0, 0, 8, 8));
    find_box(0, 0, .8f, on_grid(0, 1, 8, 9)); /* 7/9 with either */
    evaluate(&usual);
    assert_near(each[0].ap[0], 1);
    assert_near(each[0].ap[5], 1);  /* 0.75 */
    assert_near(each[0].ap[6], .5); /* 0.80 */
    assert_near(all.iou, (1 + 7. / 9) / 2);
}

TEST(the_class_and_the_image_must_agree)
{
    clear();
    add_truth(0, 0, on_grid(0, 0, 8, 8));
    find_box(0, 1, .9f, on_grid(0, 0, 8, 8));
    find_box(1, 0, .9f, on_grid(0, 0, 8, 8));
    evaluate(&usual);
    assert_near(all.ap[0], 0);
    assert_int_equal(all.fp, 2);
    assert_int_equal(all.fn, 1);
}

TEST(a_threshold_that_is_met_exactly_counts)
{
    struct cmn_precision_plan plan = usual;

    clear();
    add_truth(0, 0, on_grid(0, 0, 8, 8));
    find_box(0, 0, .9f, on_grid(0, 0, 4, 8));
    evaluate(&plan);
    assert_near(each[0].ap[0], 1);
    assert_near(each[0].ap[1], 0);
    plan.iou = .51;
    evaluate(&plan);
    assert_near(each[0].ap[CMN_IOU_OWN], 0);
    assert_int_equal(all.tp, 0);
    plan.confidence = .9f; /* a score must be above it */
    evaluate(&plan);
    assert_int_equal(all.fp, 0);
    assert_int_equal(all.fn, 1);
}

/* Three of four are found, the second box is wrong. */
TEST(the_three_ways_to_take_points)
{
    struct cmn_precision_plan plan = usual;

    clear();
    for (int i = 0; i < 4; i++) {
        add_truth(i, 0, on_grid(0, 0, 8, 8));
    }
    find_box(0, 0, .9f, on_grid(0, 0, 8, 8));
    find_box(0, 0, .8f, on_grid(8, 8, 12, 12));
    find_box(1, 0, .7f, on_grid(0, 0, 8, 8));
    find_box(2, 0, .6f, on_grid(0, 0, 8, 8));
    evaluate(&plan);
    assert_near(each[0].ap[0],
                .25 * 1 +
                    .5 * .75); /* precisions 1, 1/2, 2/3, 3/4: the last one holds from 1/4 on */
    plan.points = 11;
    evaluate(&plan);
    assert_near(each[0].ap[0], (3 * 1 + 5 * .75) / 11); /* 0, .1, .2; .3 … .7 */
    plan.points = 101;
    evaluate(&plan);
    assert_near(each[0].ap[0], (26 * 1 + 50 * .75) / 101); /* 0 … .25; .26 … .75 */
}

/* Of equal scores the one of the earlier image, and in it of the earlier box, comes first: on
 * any number of ranks. */
TEST(ties_are_broken_by_image_then_box)
{
    clear();
    add_truth(1, 0, on_grid(0, 0, 8, 8));
    find_box(1, 0, .5f, on_grid(0, 0, 8, 8));
    find_box(0, 0, .5f, on_grid(0, 0, 8, 8));
    evaluate(&usual);
    assert_near(each[0].ap[0], .5); /* the wrong one of image 0 first */
    found[1].image = 2;
    evaluate(&usual);
    assert_near(each[0].ap[0], 1);
    found[1].image = 1;
    found[1].box = on_grid(0, 0, 8, 7);
    evaluate(&usual);
    assert_near(each[0].ap[9], 1);
    found[1].index = -1; /* now the smaller one takes the true box; for 0.95 it is too small */
    evaluate(&usual);
    assert_near(each[0].ap[0], 1);
    assert_near(each[0].ap[9], .5);
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
    clear();
    add_truth(0, 0, good);
    find_box(0, 0, .9f, odd);
    find_box(0, 0, .8f, good);
    evaluate(&usual);
    assert_near(each[0].ap[0], .5);
}

TESTS(NULL, NULL)
