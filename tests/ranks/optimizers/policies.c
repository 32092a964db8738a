/* Double buffering, local steps, clipping, LARS and Adam are held against a simulation of all ranks in
 * one process. (When gradients are exchanged, in which buckets and by what changes no bit:
 * tests/ranks/hooks/combinations.c.) */
#include "sides.h"

#ifdef NETWORKS_BY_VALUE /* AlexeyAB's tree does not know it on the CPU */
enum { NO_ADAM = 1 };
#else
enum { NO_ADAM = 0 };
#endif

static const double TRUST = 0.5;
static const double LIMIT = 2.5; /* shorter than the mean gradient of any number of ranks */

/* Weights and momentum of a rank, or of all, where they are the same; Adam's moments are v and s. */
struct replica {
    double *w, *v, *s;
};

/* Runs `what` over all weights: their number, their tensor's, and the place within that. */
#define FOR_EACH_WEIGHT(side, at, x, k, j)                                                    \
    for (size_t at = 0, once_ = 1; once_; once_ = 0)                                          \
        for (int i_ = 0, k = 0; i_ < (side)->g.tensors;                                       \
             k += (side)->g.tensor[i_++].kind == CMN_GRADIENT)                                \
            for (const struct cmn_tensor *x = &(side)->g.tensor[i_], *end_ = x + 1; x < end_; \
                 x = end_)                                                                    \
                for (size_t j = 0; x->kind == CMN_GRADIENT && j < x->n; j++, at++)

static void apply(const struct side *like, struct replica *r, const double *sum, int images)
{
    FOR_EACH_WEIGHT(like, at, x, k, j)
    {
        double u = sum[at] + r->v[at] - (x->decays ? (double)DECAY * images * r->w[at] : 0);
        r->w[at] += (double)RATE * (double)*x->rate_scale / images * u;
        r->v[at] = (double)MOMENTUM * u;
    }
}

/* Adam as its paper has it, of the sum, and with decay of all tensors; its update number t. */
static void apply_adam(const struct side *like, struct replica *r, const double *sum, int images,
                       int t)
{
    double b1 = (double)like->net->B1, b2 = (double)like->net->B2, eps = (double)like->net->eps;

    FOR_EACH_WEIGHT(like, at, x, k, j)
    {
        double u = sum[at] - (double)DECAY * images * r->w[at];
        r->v[at] = b1 * r->v[at] + (1 - b1) * u;
        r->s[at] = b2 * r->s[at] + (1 - b2) * u * u;
        r->w[at] += (double)RATE * (double)*x->rate_scale * (r->v[at] / (1 - pow(b1, t))) /
                    (sqrt(r->s[at] / (1 - pow(b2, t))) + eps);
    }
}

static double norm(const double *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

/* LARS as its paper has it, for weights; Darknet's rule for all else. */
static void apply_lars(const struct side *like, struct replica *r, const double *sum, int images)
{
    double decay = (double)DECAY, *w = r->w, *v = r->v;

    for (int i = 0; i < like->g.tensors; i++) {
        const struct cmn_tensor *x = &like->g.tensor[i];
        double rate, length, steep, trust;
        if (x->kind != CMN_GRADIENT) {
            continue;
        }
        rate = (double)RATE * (double)*x->rate_scale / images;
        length = norm(w, x->n);
        steep = norm(sum, x->n) / images;
        trust = x->decays && length > 0 ? TRUST * length / (steep + decay * length) : 1;
        for (size_t j = 0; j < x->n; j++) {
            double u = sum[j] - (x->decays ? decay * images * w[j] : 0);
            v[j] = (double)MOMENTUM * v[j] + rate * trust * u;
            w[j] += v[j];
        }
        w += x->n;
        v += x->n;
        sum += x->n;
    }
}

static void add_gradients(const struct side *like, const struct replica *r, int rank, int number,
                          double *sum)
{
    FOR_EACH_WEIGHT(like, at, x, k, j)
    {
        sum[at] += (double)own_gradient((float)r->w[at], j, k, rank, number);
    }
}

/* PyTorch's clip_grad_norm_ of the mean gradient. Returns whether it was too long. */
static int clip(double *sum, size_t n, double limit)
{
    double keeps = limit / (norm(sum, n) / IMAGES + 1e-6);

    for (size_t i = 0; i < n && keeps < 1; i++) {
        sum[i] *= keeps;
    }
    return keeps < 1;
}

/* In every step the sum of all ranks' gradients, or that of the step before. Returns the steps that
 * were clipped. */
static int simulate_sums(const struct side *like, struct replica *r, size_t n)
{
    double *sum = calloc(2 * n, sizeof *sum), *before = sum + n;
    int stale = (int)like->o.double_buffering, clipped = 0;

    for (int number = 1; number <= UPDATES; number++) {
        memcpy(before, sum, n * sizeof *sum);
        memset(sum, 0, n * sizeof *sum);
        for (int rank = 0; rank < like->t->size; rank++) {
            add_gradients(like, r, rank, number, sum);
        }
        clipped += like->o.clip > 0 && clip(sum, n, like->o.clip);
        if (like->o.lars > 0 && number > stale) {
            apply_lars(like, r, stale ? before : sum, IMAGES);
        } else if (with_adam && number > stale) {
            apply_adam(like, r, stale ? before : sum, IMAGES, number - stale);
        } else if (number > stale) {
            apply(like, r, stale ? before : sum, IMAGES);
        }
    }
    free(sum);
    return clipped;
}

/* Each rank by itself, the mean every EVERY steps and at the end. Late means give the same at the
 * end: these gradients are linear in the weights, and what a rank moves by when a mean arrives is
 * nothing in the sum over all ranks. */
static void simulate_local(const struct side *like, struct replica *r, size_t n)
{
    int ranks = like->t->size;
    double *own = calloc(n, sizeof *own);

    for (int number = 1; number <= UPDATES; number++) {
        for (int rank = 0; rank < ranks; rank++) {
            memset(own, 0, n * sizeof *own);
            add_gradients(like, &r[rank], rank, number, own);
            apply(like, &r[rank], own, IMAGES / ranks);
        }
        for (size_t at = 0; at < n && (number % EVERY == 0 || number == UPDATES); at++) {
            double w = 0, v = 0;
            for (int rank = 0; rank < ranks; rank++) {
                w += r[rank].w[at] / ranks;
                v += r[rank].v[at] / ranks;
            }
            for (int rank = 0; rank < ranks; rank++) {
                r[rank].w[at] = w, r[rank].v[at] = v;
            }
        }
    }
    free(own);
}

static void hold_against_simulation(const struct cmn_topology *t, const struct cmn_options *o)
{
    struct replica r[5];
    struct side s;
    size_t n;
    double off = 0, all = 0, moved = 0;
    double most = o->lars > 0 ? 1e-5 : 1e-4;
    int clipped = 0;
    float *begin, *got;

    open_side(&s, t, o);
    begin = weights(&s, &n);
    for (int rank = 0; rank < t->size; rank++) {
        double *x = calloc(3 * n, sizeof *x);
        r[rank] = (struct replica){x, x + n, x + 2 * n};
        for (size_t i = 0; i < n; i++) {
            r[rank].w[i] = (double)begin[i];
        }
    }
    if (o->local_steps > 1) {
        simulate_local(&s, r, n);
    } else {
        clipped = simulate_sums(&s, r, n);
    }
    got = trained(t, o, &n);
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - r[0].w[i];
        moved += fabs((double)got[i] - (double)begin[i]);
        CHECK_SAYING(d < most && d > -most,
                     "%s, local %ld, stale %ld, Adam %d: weight %zu of %zu is %g, not %g",
                     s.c->name, o->local_steps, o->double_buffering, with_adam, i, n,
                     (double)got[i], r[0].w[i]);
        off += d * d;
        all += r[0].w[i] * r[0].w[i];
    }
    CHECK_SAYING(o->lars <= 0 || moved > 0.01 * (double)n, "LARS has hardly moved the weights: %g",
                 moved / (double)n);
    if (o->clip > 0) {
        CHECK_SAYING(clipped > UPDATES / 2, "%d steps were clipped", clipped);
        CHECK_SAYING(off < 1e-12 * all, "%s, stale %ld, clipped: %g of the norm away", s.c->name,
                     o->double_buffering, sqrt(off / all));
    }
    for (int rank = 0; rank < t->size; rank++) {
        free(r[rank].w);
    }
    free(got);
    free(begin);
    close_side(&s);
}

WORLD_TEST(as_simulated)
{
    static const char *const names[] = {"flat", "shm", "two_dimensional", "hierarchical", "naive"};

    for (size_t i = 0; i < COUNT(names); i++) {
        for (int way = 0; way < 11; way++) {
            struct cmn_options o = options_of(names[i]);
            /* Plain and by local steps, clipped, with LARS, by Adam's rule, by that clipped. */
            o.local_steps = way < 4 && way & 1 ? EVERY : 1;
            o.double_buffering = way < 4 ? way / 2 : way == 10 || way % 2;
            o.clip = way == 4 || way == 5 || way == 10 ? LIMIT : 0;
            o.lars = way == 6 || way == 7 ? TRUST : 0;
            with_adam = way > 7;
            if ((with_adam && NO_ADAM) || (o.lars > 0 && i > 1)) {
                continue;
            }
            /* One node has no link whose time could be hidden, naive nothing to hide it with. */
            if (!failure[0] && !(o.double_buffering && ((t->inter_size == 1 && i > 0) || i == 4))) {
                hold_against_simulation(t, &o);
            }
        }
    }
    with_adam = 0;
}

RANK_TEST(clips)
{
    static const struct {
        double limit, norm, keeps;
    } want[] = {
        {20, 10, 1}, {10, 10, 1}, {5, 10, 0.5},     {1, 10, 0.1},
        {5, 0, 1},   {5, NAN, 1}, {5, INFINITY, 0},
    };

    for (size_t i = 0; i < COUNT(want); i++) {
        double keeps = cmn_clip_keeps(want[i].limit, want[i].norm);
        CHECK_SAYING(fabs(keeps - want[i].keeps) < 2e-7 &&
                         (keeps < 1) == (want[i].norm >= 10 && i != 0),
                     "%zu: %g", i, keeps);
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

/* ---- which bucket is chosen ---- */

static int chosen(struct cmn_bucket_tuner *t, const double *seconds)
{
    struct cmn_options o;

    cmn_options_default(&o);
    cmn_bucket_tuner_open(t, &o, 1 << 22);
    CHECK(t->candidates == 4 && t->bucket[0] == 0 &&
          t->steps == CMN_BUCKET_TUNER_WARMUP + 4 * CMN_BUCKET_TUNER_ROUNDS);
    for (int i = 0; i < t->steps; i++) {
        int trial = i - CMN_BUCKET_TUNER_WARMUP, candidate = trial < 0 ? 0 : trial % 4, is;
        double took = trial < 0 ? 9 : seconds[candidate];
        CHECK(cmn_bucket_tuner_bucket(t) == t->bucket[candidate]);
        took += trial / 4 == 1 ? 5 : 0; /* one round that something disturbed */
        took += top.rank == top.size - 1 && candidate == 3
                    ? 0.5
                    : 0; /* a rank that is slower with one of them */
        is = cmn_bucket_tuner_took(t, took, &top);
        CHECK(is == (i == t->steps - 1));
    }
    CHECK(cmn_bucket_tuner_took(t, 1, &top) == 0);
    return t->chosen;
}

RANK_TEST(tunes)
{
    const double off[] = {1, 1.2, 0.98, 0.9}, third[] = {1, 0.9, 0.8, 0.5},
                 little[] = {1, 0.95, 0.94, 1};
    struct cmn_bucket_tuner t;

    CHECK(chosen(&t, off) == 0 && cmn_bucket_tuner_bucket(&t) == 0 &&
          strstr(t.why, "overlap off: 1000.0 ms"));
    CHECK(chosen(&t, third) == 2 && cmn_bucket_tuner_bucket(&t) == t.bucket[2] &&
          strstr(t.why, "overlap on, buckets of"));
    CHECK(chosen(&t, little) == 1);
}

RANK_TESTS(NULL, NULL)
