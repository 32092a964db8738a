/* Average precision: cases with known answers, random boxes against a second implementation, and the
 * boxes of tests/golden/boxes.py against COCO's own tool. */
#include "check.h"

#include <math.h>

#include "evaluators/average_precision.h"
#include "golden/boxes.h"

enum { CLASSES = 4, IMAGES = 12, MOST = 400, GRID = 16 };

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

/* Each image's boxes are matched by themselves, as a rank does. */
static void evaluate(const struct cmn_precision_plan *plan)
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

/* ---- random boxes ----
 *
 * The second implementation follows the definition word by word, in whole numbers, without sorting
 * and without an envelope. */

static long corner(double v)
{
    return lround(v * 2 * GRID);
}

/* Whether the intersection is at least `percent` of the union; *common tells of how much, to
 * compare boxes by. */
static int overlap(const struct cmn_box *a, const struct cmn_box *b, long percent, long *common,
                   long *joined)
{
    long aw = corner(a->w), ah = corner(a->h), bw = corner(b->w), bh = corner(b->h);
    long al = corner(a->x) - aw / 2, at = corner(a->y) - ah / 2;
    long bl = corner(b->x) - bw / 2, bt = corner(b->y) - bh / 2;

    *common = 0;
    for (long x = 0; x < 2 * GRID; x++) {
        for (long y = 0; y < 2 * GRID; y++) {
            int in_a = x >= al && x < al + aw && y >= at && y < at + ah;
            int in_b = x >= bl && x < bl + bw && y >= bt && y < bt + bh;
            *common += in_a && in_b;
        }
    }
    *joined = aw * ah + bw * bh - *common;
    return *common * 100 >= percent * *joined;
}

static int first_of(const struct cmn_found *a, const struct cmn_found *b)
{
    if (a->score != b->score) {
        return a->score > b->score;
    }
    return a->image != b->image ? a->image < b->image : a->index < b->index;
}

/* Marks right[k] for each found box of the class, in the order order[]; returns how many there
 * are. */
static size_t judge(int class, long percent, int *right, size_t *order)
{
    static int used[MOST], taken[IMAGES][MOST];
    size_t n = 0;

    memset(used, 0, sizeof used);
    memset(taken, 0, sizeof taken);
    for (;;) {
        size_t next = MOST;
        for (size_t k = 0; k < founds; k++) {
            if (!used[k] && found[k].class == class &&
                (next == MOST || first_of(&found[k], &found[next]))) {
                next = k;
            }
        }
        if (next == MOST) {
            return n;
        }
        const struct cmn_found *f = &found[next];
        long best_common = 0, best_joined = 1;
        int best = -1;
        for (size_t j = 0; j < truths[f->image]; j++) {
            long common, joined;
            if (truth[f->image][j].class != class || taken[f->image][j]) {
                continue;
            }
            if (overlap(&f->box, &truth[f->image][j].box, percent, &common, &joined) &&
                common > 0 && common * best_joined > best_common * joined) {
                best = (int)j;
                best_common = common;
                best_joined = joined;
            }
        }
        if (best >= 0) {
            taken[f->image][best] = 1;
        }
        used[next] = 1;
        right[n] = best >= 0;
        order[n++] = next;
    }
}

/* The highest precision among the prefixes whose recall is at least level/steps. */
static double best_precision(const int *right, size_t n, long boxes, long level, long steps)
{
    double best = 0;

    for (size_t end = 1; end <= n; end++) {
        long hits = 0;
        for (size_t k = 0; k < end; k++) {
            hits += right[k];
        }
        /* COCO's tool has its 101 recalls as multiples of 0.01 in floating point. */
        if ((steps == 100 ? (double)hits / (double)boxes >= (double)level * .01
                          : hits * steps >= level * boxes) &&
            (double)hits / (double)end > best) {
            best = (double)hits / (double)end;
        }
    }
    return best;
}

static double slow_ap(const int *right, size_t n, long boxes, int points)
{
    double sum = 0;

    if (points) {
        for (long k = 0; k < points; k++) {
            sum += best_precision(right, n, boxes, k, points - 1);
        }
        return sum / points;
    }
    for (long k = 1; k <= boxes; k++) {
        sum += best_precision(right, n, boxes, k, boxes);
    }
    return sum / (double)boxes;
}

static long boxes_of(int class)
{
    long n = 0;

    for (int i = 0; i < IMAGES; i++) {
        for (size_t k = 0; k < truths[i]; k++) {
            n += truth[i][k].class == class;
        }
    }
    return n;
}

static void check_against_definition(const struct cmn_precision_plan *plan, long percent)
{
    static int right[MOST];
    static size_t order[MOST];
    double sum[CMN_IOU_ALL] = {0};
    int counted = 0;

    for (int c = 0; c < CLASSES; c++) {
        long boxes = boxes_of(c), tp = 0, fp = 0;
        assert_int_equal(each[c].boxes, boxes);
        counted += boxes > 0;
        for (int i = 0; i < CMN_IOU_ALL; i++) {
            size_t n = judge(c, i == CMN_IOU_OWN ? percent : 50 + 5 * i, right, order);
            double ap = boxes ? slow_ap(right, n, boxes, plan->points) : -1;
            assert_true(fabs(each[c].ap[i] - ap) < 1e-12);
            sum[i] += boxes ? ap : 0;
            for (size_t k = 0; i == CMN_IOU_OWN && k < n; k++) {
                int counts = found[order[k]].score > plan->confidence;
                tp += counts && right[k];
                fp += counts && !right[k];
            }
        }
        assert_int_equal(each[c].tp, tp);
        assert_int_equal(each[c].fp, fp);
        assert_int_equal(each[c].fn, boxes - tp);
    }
    for (int i = 0; i < CMN_IOU_ALL; i++) {
        assert_true(fabs(all.ap[i] - (counted ? sum[i] / counted : -1)) < 1e-12);
    }
}

static unsigned state;

static int draw(int n)
{
    state = state * 1103515245u + 12345u;
    return (int)(state >> 16) % n;
}

static struct cmn_box draw_box(void)
{
    int left = draw(GRID - 4), top = draw(GRID - 4);

    return on_grid(left, top, left + 2 + draw(GRID - left - 2), top + 2 + draw(GRID - top - 2));
}

/* A box that lies near the true one, so that every threshold is met and missed. */
static struct cmn_box near(const struct cmn_box *b)
{
    int left = (int)(corner(b->x) - corner(b->w) / 2) / 2,
        top = (int)(corner(b->y) - corner(b->h) / 2) / 2;
    int right = left + (int)corner(b->w) / 2, bottom = top + (int)corner(b->h) / 2;

    return on_grid(left, top, right - (right - left > 1 ? draw(2) : 0),
                   bottom - (bottom - top > 1 ? draw(2) : 0));
}

/* Few different scores, so that many are equal; images without truth, without boxes, and a class
 * without truth. */
static void draw_case(unsigned seed)
{
    clear();
    state = seed;
    for (int i = 0; i < IMAGES; i++) {
        int n = draw(5);
        for (int k = 0; k < n; k++) {
            struct cmn_box b = draw_box();
            int class = draw(CLASSES - 1);
            add_truth(i, class, b);
            for (int again = draw(4); again > 0; again--) {
                find_box(i, draw(5) ? class : draw(CLASSES), (float)draw(8) / 8, near(&b));
            }
        }
        for (int k = draw(4); k > 0; k--) {
            find_box(i, draw(CLASSES), (float)draw(8) / 8, draw_box());
        }
    }
}

TEST(random_boxes_follow_the_definition)
{
    static const int points[] = {0, 11, 101};
    long matched = 0;

    for (unsigned seed = 1; seed <= 60; seed++) {
        long percent = 10 + 10 * (seed % 9);
        struct cmn_precision_plan plan = {(double)percent / 100, .375f, points[seed % 3]};
        draw_case(seed);
        evaluate(&plan);
        check_against_definition(&plan, percent);
        matched += all.tp;
    }
    assert_true(matched > 500);
}

/* It works in floating point where we count, so that sums of a hundred numbers differ by 1e-15. */
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
