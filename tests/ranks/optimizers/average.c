/* cmn_ema (ema.h) with each way to update, in each shape of nodes, against its formula in double;
 * and the training has the same bits as without. */
#include "sides.h"

static const double DECAY_OF_AVERAGE = 0.35; /* the early factor is smaller up to the third step */

/* ---- the formula ---- */

struct reference {
    double *weights, *statistics;
    long t, pending; /* updates: in the average, and waiting for a mean of local SGD */
};

static double factor(long t)
{
    return fmin(DECAY_OF_AVERAGE, (1 + (double)t) / (10 + (double)t));
}

static void follow(double *average, const float *now, size_t n, double stays)
{
    for (size_t i = 0; i < n; i++) {
        average[i] = stays * average[i] + (1 - stays) * (double)now[i];
    }
}

static double *doubles(const float *x, size_t n)
{
    double *copy = calloc(n + 1, sizeof *copy);

    follow(copy, x, n, 0);
    return copy;
}

/* Delayed local SGD: the latest mean of the weights. */
static const float *latest_mean(const struct side *s)
{
    struct cmn_state state;

    for (int i = 0; cmn_optimizer_state((struct cmn_optimizer *)&s->s, i, &state); i++) {
        if (!strcmp(state.name, "common")) {
            return state.data;
        }
    }
    return NULL;
}

/* Weights of which all ranks have the same, one behind the other; the caller frees. With delayed
 * local SGD that is the latest mean. */
static float *common_weights(const struct side *s, size_t *n)
{
    float *all = weights(s, n);
    size_t to = 0;

    for (int i = 0; i < s->g.exchange.tensors && s->s.policy == &cmn_delayed_local_sgd; i++) {
        const struct cmn_span *x = &s->g.exchange.tensor[i];
        memcpy(all + to, latest_mean(s) + (x->data - s->g.exchange.block.data), x->n * sizeof *all);
        to += x->n;
    }
    return all;
}

/* What the average is after this step. A mean of local SGD comes every EVERY steps, a delayed one
 * EVERY steps later; the last step makes one. */
static void refer(struct reference *r, const struct side *s, int number, const float *statistics,
                  size_t few)
{
    int stale = s->s.policy == &cmn_double_buffering, local = s->s.policy->own_weights;
    int first = s->s.policy == &cmn_delayed_local_sgd ? 2 * EVERY : EVERY;
    double stays = 1;
    float *now;
    size_t n;

    r->pending += number > stale;
    if (local && number < UPDATES && (number % EVERY || number < first)) {
        return;
    }
    for (; r->pending; r->pending--) {
        stays *= factor(++r->t);
    }
    now = common_weights(s, &n);
    follow(r->weights, now, n, stays);
    follow(r->statistics, statistics, few, stays);
    free(now);
}

/* ---- trainings ---- */

/* A rank's own, as batch normalisation has left them. */
static void set_statistics(const struct side *s, float *x, size_t few, int number)
{
    for (size_t i = 0; i < few; i++) {
        x[i] = (float)((i * 3 + (size_t)(number * 7 + s->t->rank)) % 13) / 4;
    }
    cmn_gradients_unpack(&s->g, CMN_STATISTIC, x);
}

static void compare(const struct side *s, const float *got, const double *want, size_t n,
                    const char *what)
{
    double off = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += want[i] * want[i];
    }
    CHECK_SAYING(n > 20 && all > 0 && off < 1e-13 * all, "%s, %s: %s are %g of the norm away",
                 s->c->name, s->s.policy->name, what, sqrt(off / all));
}

/* The weights at the end; the caller frees. */
static float *average_one(const struct cmn_topology *t, const struct cmn_options *o, size_t *n)
{
    struct reference r = {.t = 0};
    struct side s;
    size_t few;
    float *now, *average, *statistics;

    open_side(&s, t, o);
    few = cmn_gradients_floats(&s.g, CMN_STATISTIC);
    statistics = calloc(few + 1, sizeof *statistics);
    set_statistics(&s, statistics, few, 0);
    cmn_optimizer_begin(&s.s);
    MPI_Barrier(t->world);
    now = weights(&s, n);
    r.weights = doubles(now, *n);
    r.statistics = doubles(statistics, few);
    for (int i = 1; i <= UPDATES; i++) {
        set_statistics(&s, statistics, few, i);
        step(&s, i);
        refer(&r, &s, i, statistics, few);
    }
    free(now);
    now = weights(&s, n);
    CHECK_SAYING(s.s.ema.steps == r.t && r.t >= UPDATES - 1, "%ld, not %ld", s.s.ema.steps, r.t);
    MPI_Barrier(t->world);
    cmn_ema_swap_in(&s.s.ema, &s.g);
    average = weights(&s, n);
    cmn_ema_restore(&s.s.ema, &s.g);
    compare(&s, average, r.weights, *n, "weights");
    compare(&s, s.s.ema.statistics, r.statistics, few, "statistics");
    CHECK_SAYING(same_everywhere(average, *n * sizeof *average), "%s", s.c->name);
    free(average);
    average = weights(&s, n);
    CHECK_SAYING(!memcmp(average, now, *n * sizeof *now), "%s: the weights are not back",
                 s.c->name);
    MPI_Barrier(t->world);
    close_side(&s);
    free(average), free(statistics), free(r.weights), free(r.statistics);
    return now;
}

WORLD_TEST(averages)
{
    static const char *const names[] = {"flat", "shm", "two_dimensional", "naive"};

    for (size_t i = 0; i < COUNT(names); i++) {
        for (int way = 0; way < 7; way++) {
            struct cmn_options o = options_of(names[i]);
            float *got, *without;
            size_t n;
            o.clip = way == 1 ? 2.5 : 0;
            o.lars = way == 2 ? 0.01 : 0;
            o.compress = way == 3 ? CMN_COMPRESS_POWERSGD : CMN_COMPRESS_OFF;
            o.local_steps = way == 4 || way == 5 ? EVERY : 1;
            o.double_buffering = way >= 5;
            /* What is no communicator's once; one node has no link to hide or to save. */
            if (failure[0] || (i > 1 && way) || (i == 1 && (way == 2 || way >= 5)) ||
                (way == 3 && (i || t->inter_size == 1))) {
                continue;
            }
            without = trained(t, &o, &n);
            o.ema = DECAY_OF_AVERAGE;
            got = average_one(t, &o, &n);
            CHECK_SAYING(!memcmp(got, without, n * sizeof *got),
                         "%s, way %d, nodes %s: other weights", names[i], way, shape);
            free(got);
            free(without);
        }
    }
}

RANK_TESTS(NULL, NULL)
