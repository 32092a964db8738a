/* cmn_nonfinite=skip: a step that is left out changes neither weights, nor momentum, nor the average
 * of cmn_ema, nor what a compressor keeps. */
#include "sides.h"

/* All weights after the steps, with a bad one among them or without; the caller frees. */
static float *after(const struct cmn_topology *t, const struct cmn_options *o, int with_bad,
                    size_t *n)
{
    struct side s;
    float *result;

    skip_after = with_bad ? 3 : 0;
    open_side(&s, t, o);
    CHECK(s.s.policy->own_velocity);
    CHECK(!s.s.communicator.step == (strcmp(s.c->name, "shm") || is_delayed(&s)));
    steps(&s, 1, UPDATES + 1);
    skip_after = 0;
    check_told(&s, s.told);
    if (o->ema > 0) {
        CHECK(s.s.ema.steps == UPDATES - is_delayed(&s));
        MPI_Barrier(t->world);
        cmn_ema_swap_in(&s.s.ema, &s.g);
    }
    result = weights(&s, n);
    cmn_ema_restore(&s.s.ema, &s.g);
    CHECK(same_everywhere(result, *n * sizeof *result));
    for (size_t i = 0; i < *n; i++) {
        CHECK(fabsf(result[i]) < 100);
    }
    MPI_Barrier(t->world);
    close_side(&s);
    return result;
}

static void left_out_one(const struct cmn_topology *t, const struct cmn_options *o,
                         const char *what)
{
    size_t n, m;
    float *want = after(t, o, 0, &n), *got = after(t, o, 1, &m);
    int same = n == m && !memcmp(want, got, n * sizeof *got);

    /* With double buffering the step after the bad one sees weights that are a step newer. */
    CHECK_SAYING(same != o->double_buffering, "%.40s, %s", o->communicator, what);
    free(want);
    free(got);
}

static void left_out_in(const struct cmn_topology *t)
{
    static const char *const ways[] = {"plain", "powersgd", "double buffering", "LARS", "clipped"};
    static const char *const names[] = {"flat", "shm", "hierarchical"};

    for (size_t i = 0; i < COUNT(names) && !failure[0]; i++) {
        for (int way = 0; way < (int)COUNT(ways); way++) {
            struct cmn_options o = options_of(names[i]);
            o.nonfinite = CMN_NONFINITE_SKIP;
            o.ema = way == 4 ? 0.9 : 0;
            o.clip = way == 4 ? 2.5 : 0;
            o.compress = way == 1 ? CMN_COMPRESS_POWERSGD : CMN_COMPRESS_OFF;
            o.double_buffering = way == 2;
            o.lars = way == 3 ? 0.01 : 0;
            if (t->inter_size > 1 ? i < 2 || way < 2 : way != 1 && (way != 2 || i == 0)) {
                left_out_one(t, &o, ways[way]);
            }
        }
    }
}

RANK_TEST(left_out)
{
    left_out_in(&top);
    if (top.size == 3) {
        struct cmn_topology t;
        cmn_topology_open_as(&t, top.rank > 1);
        left_out_in(&t);
        cmn_topology_close(&t);
    }
}

/* The momentum lies apart from the sums, so that a step can be skipped, but not with Adam. */
static void planned(int adam)
{
    const struct cmn_communicator *c = cmn_communicator_find("flat");
    struct cmn_options o = options_of("flat");
    struct cmn_optimizer s;
    void *self = NULL;

    o.nonfinite = CMN_NONFINITE_SKIP;
    CHECK_SAYING(c->open(&self, c, &top, &o) == 0, "%s", cmn_reason());
    cmn_optimizer_plan(&s, &top, &o, c, self, adam, NULL);
    CHECK(s.policy->own_velocity == !adam);
    c->close(self);
}

RANK_TEST(momentum_lies_apart)
{
    planned(0);
    planned(1);
}

RANK_TESTS(NULL, NULL)
