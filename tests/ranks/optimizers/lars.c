/* LARS (cmn_lars_rate) on several ranks, in each shape of nodes, against the formulas of the paper in
 * double, for all ranks in one process. */
#include "sides.h"

#include <math.h>

static const double TRUST = 0.5;

/* Weights, and what momentum keeps of their last move, of all tensors one behind the other. */
struct replica {
    double *w, *v;
};

static double norm(const double *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

/* The paper's step, for weights; Darknet's, for all else. `slope` is the mean gradient of the
 * loss. */
static void move(const struct cmn_tensor *x, double *w, double *v, const double *slope)
{
    double rate = (double)RATE * (double)*x->rate_scale, decay = (double)DECAY;
    double length = norm(w, x->n), steep = norm(slope, x->n);
    double trust = x->decays && length > 0 ? TRUST * length / (steep + decay * length) : 1;

    for (size_t j = 0; j < x->n; j++) {
        v[j] = x->decays ? (double)MOMENTUM * v[j] + rate * trust * (slope[j] + decay * w[j])
                         : (double)MOMENTUM * v[j] + slope[j];
        w[j] -= x->decays ? v[j] : rate * v[j];
    }
}

static void simulate(const struct side *like, struct replica *r, int stale)
{
    size_t n = like->g.exchange.block.n;
    double *slope = calloc(n, sizeof *slope), *before = calloc(n, sizeof *before);

    for (int number = 1; number <= UPDATES; number++) {
        size_t at = 0;
        memcpy(before, slope, n * sizeof *slope);
        for (int i = 0, k = 0; i < like->g.tensors; i++) {
            const struct cmn_tensor *x = &like->g.tensor[i];
            if (x->kind != CMN_GRADIENT) {
                continue;
            }
            for (size_t j = 0; j < x->n; j++) {
                slope[at + j] = 0;
                for (int rank = 0; rank < like->t->size; rank++) {
                    slope[at + j] -=
                        (double)own_gradient((float)r->w[at + j], j, k, rank, number) / IMAGES;
                }
            }
            if (!stale || number > 1) {
                move(x, r->w + at, r->v + at, (stale ? before : slope) + at);
            }
            at += x->n;
            k++;
        }
    }
    free(slope);
    free(before);
}

static void hold_against(const struct cmn_topology *t, const struct cmn_options *o)
{
    struct side s;
    struct replica r;
    size_t n;
    double moved = 0;
    float *begin, *got;

    open_side(&s, t, o);
    begin = weights(&s, &n);
    r = (struct replica){calloc(n, sizeof(double)), calloc(n, sizeof(double))};
    for (size_t i = 0; i < n; i++) {
        r.w[i] = (double)begin[i];
    }
    simulate(&s, &r, (int)o->double_buffering);
    got = trained(t, o, &n);
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - r.w[i];
        moved += fabs((double)got[i] - (double)begin[i]);
        CHECK_SAYING(d < 1e-5 && d > -1e-5, "%s, stale %ld: weight %zu of %zu is %g, not %g",
                     s.c->name, o->double_buffering, i, n, (double)got[i], r.w[i]);
    }
    CHECK_SAYING(moved > 0.01 * (double)n, "the weights have hardly moved: %g", moved / (double)n);
    free(r.w);
    free(r.v);
    free(got);
    free(begin);
    close_side(&s);
}

WORLD_TEST(as_in_the_paper)
{
    static const char *const names[] = {"flat", "shm"};

    (void)shape;
    for (size_t i = 0; i < COUNT(names); i++) {
        for (int stale = 0; stale < 2; stale++) {
            struct cmn_options o;
            cmn_options_default(&o);
            snprintf(o.communicator, sizeof o.communicator, "%s", names[i]);
            o.lars = TRUST;
            o.double_buffering = stale;
            if (!failure[0] && !(stale && t->inter_size == 1 && i > 0)) {
                hold_against(t, &o);
            }
        }
    }
}

/* |w| = 5 and |g| = 13 of 2 images' sum 26, by hand. */
RANK_TEST(by_hand)
{
    CHECK(fabs(cmn_lars_rate(5, 26, 0.1, 2, 0) - 0.1 * 5 / 13) < 1e-12);
    CHECK(fabs(cmn_lars_rate(5, 26, 0.1, 2, 0.4) - 0.1 * 5 / (13 + 0.4 * 5)) < 1e-12);
    CHECK(cmn_lars_rate(0, 26, 0.1, 2, 0.4) == 1);
    CHECK(cmn_lars_rate(5, 0, 0.1, 2, 0) == 1);
    CHECK(fabs(cmn_lars_rate(5, 0, 0.1, 2, 0.5) - 0.2) < 1e-12);
}

RANK_TESTS(NULL, NULL)
