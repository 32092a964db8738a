/* cmn_nonfinite=skip: a step that is left out changes neither weights nor momentum, and the compressor keeps what it has. */
#include "sides.h"

#include <math.h>

enum { AFTER = 3 }; /* this step a bad one comes */

static void bad_step(struct side *s)
{
    struct cmn_rule rule = {IMAGES / s->t->size, RATE, MOMENTUM, DECAY, 0};
    const struct cmn_span *block = &s->g.exchange.block;
    int fresh;

    for (size_t i = 0; i < block->n; i++) {
        block->data[i] += s->t->rank == s->t->size - 1 ? NAN : 1;
    }
    fresh = cmn_policy_skip(&s->s, &rule, IMAGES);
    CHECK_SAYING(fresh == s->s.delayed, "%d: %s", fresh, cmn_reason());
    CHECK(rule.done);
    s->told += fresh ? (double)s->s.metrics[0] : 0;
    CHECK(cmn_policy_after_update(&s->s, 0) == 0);
}

/* All weights after the steps, with a bad one among them or without; the caller frees. */
static float *after(const struct cmn_topology *t, const struct cmn_options *o, int with_bad,
                    size_t *n)
{
    struct side s;
    float *result;

    open_side(&s, t, o);
    CHECK(s.s.separate_momentum && !s.s.communicator.step);
    for (int i = 1; i <= UPDATES; i++) {
        step(&s, i);
        if (with_bad && i == AFTER) {
            bad_step(&s);
        }
    }
    check_told(&s, s.told);
    result = weights(&s, n);
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

static void left_out_in(const struct cmn_topology *t, const char *shape)
{
    static const char *const names[] = {"flat", "shm", "hierarchical"};

    (void)shape;
    for (size_t i = 0; i < COUNT(names) && !failure[0]; i++) {
        for (int way = 0; way < 4; way++) {
            struct cmn_options o;
            cmn_options_default(&o);
            snprintf(o.communicator, sizeof o.communicator, "%s", names[i]);
            o.nonfinite = CMN_NONFINITE_SKIP;
            o.compress = way == 1 ? CMN_COMPRESS_TOPK : CMN_COMPRESS_NONE;
            o.double_buffering = way == 2;
            o.lars = way == 3 ? 0.01 : 0;
            if (t->inter_size > 1 ? i < 2 || way < 2 : way != 1 && (way != 2 || i == 0)) {
                left_out_one(t, &o,
                             way == 1   ? "topk"
                             : way == 2 ? "double buffering"
                             : way == 3 ? "LARS"
                                        : "plain");
            }
        }
    }
}

static void left_out(void **state)
{
    (void)state;
    left_out_in(&top, "");
    if (top.size == 3) {
        struct cmn_topology t;
        cmn_topology_open_as(&t, top.rank > 1);
        left_out_in(&t, "2+1");
        cmn_topology_close(&t);
    }
    settle();
}

/* What does not go with it says so. */
static void refused(void **state)
{
    static const struct {
        long local, overlap;
        int adam;
        const char *why;
    } way[] = {
        {4, CMN_OVERLAP_AUTO, 0, "each rank updates by itself"},
        {1, CMN_OVERLAP_ON, 0, "cmn_overlap=on does not go with cmn_nonfinite=skip"},
        {1, CMN_OVERLAP_AUTO, 0, NULL},
        {1, CMN_OVERLAP_AUTO, 1, NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(way); i++) {
        struct cmn_options o;
        struct cmn_policy s;
        cmn_options_default(&o);
        o.nonfinite = CMN_NONFINITE_SKIP;
        o.local_steps = way[i].local;
        o.overlap = way[i].overlap;
        cmn_policy_plan(&s, &top, &o, cmn_communicator_find("flat"), NULL, way[i].adam);
        CHECK(s.separate_momentum == (way[i].local == 1 && !way[i].adam));
        CHECK((cmn_policy_refuse(&s, NULL) == 0) ==
              (!way[i].why || (top.size == 1 && way[i].local == 1)));
        CHECK_SAYING(!way[i].why || (top.size == 1 && way[i].local == 1) ||
                         strstr(cmn_reason(), way[i].why),
                     "%s", cmn_reason());
    }
    settle();
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(left_out),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(run);
}
