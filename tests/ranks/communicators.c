/* Communicators × lengths; run.sh adds × numbers of ranks. Values are small integers, so sums are
 * exact whatever the order of the additions, and known in closed form. */
#include "ranks.h"

#include "communicator.h"

enum { ALIGN = 16, GUARD = 32, TENSORS = 4, TALLY = 16 };

static struct cmn_options options;

/* What a communicator gets, with a guard of its own on both sides of the block. */
struct world {
    float *memory;
    struct cmn_span tensor[TENSORS + 1];    /* and, behind the last, the tally */
    int spans;
    struct cmn_exchange x;
};

static size_t padded(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void make_world(struct world *w, const size_t *n, int tensors)
{
    size_t total = 0, at = GUARD;

    for (int i = 0; i < tensors; i++) {
        total += padded(n[i]);
    }
    w->memory = aligned_alloc(64, padded(total + TALLY + 2 * GUARD) * sizeof *w->memory);
    memset(w->memory, 0, padded(total + TALLY + 2 * GUARD) * sizeof *w->memory);
    for (int i = 0; i < GUARD; i++) {
        w->memory[i] = w->memory[GUARD + total + TALLY + (size_t)i] = -1234.5F;
    }
    for (int i = 0; i < tensors; i++) {
        w->tensor[i] = (struct cmn_span){w->memory + at, n[i]};
        at += padded(n[i]);
    }
    w->tensor[tensors] = (struct cmn_span){w->memory + at, TALLY};
    w->spans = tensors + 1;
    w->x = (struct cmn_exchange){w->tensor, tensors, {w->memory + GUARD, total}, w->tensor[tensors],
                                  NULL};
}

static float whole(size_t i, int rank)
{
    return (float)((int)(i % 1009) - 504) * (float)(rank + 1);
}

static float fraction(size_t i, int rank)
{
    return 1.0F / (float)(i % 997 + 3) / (float)(rank + 1);
}

static void fill(const struct world *w, float (*value)(size_t, int))
{
    for (int t = 0; t < w->spans; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            w->tensor[t].data[i] = value(i + (size_t)t, top.rank);
        }
    }
}

/* The sum of `whole` over the ranks: 1 + 2 + … + size. */
static void check_sums(const struct world *w, const char *name)
{
    for (int t = 0; t < w->spans; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            float want = whole(i + (size_t)t, 0) * (float)(top.size * (top.size + 1) / 2);
            CHECK_SAYING(w->tensor[t].data[i] == want, "%s, %zu floats, at %zu: %g, not %g", name,
                         w->tensor[t].n, i, (double)w->tensor[t].data[i], (double)want);
        }
    }
}

static void check_untouched(const struct world *w, const char *name)
{
    const float *end = w->x.tally.data + w->x.tally.n;

    for (int i = 0; i < GUARD; i++) {
        CHECK_SAYING(w->memory[i] == -1234.5F, "%s wrote before the block", name);
        CHECK_SAYING(end[i] == -1234.5F, "%s wrote behind the tally", name);
    }
    for (int t = 0; t < w->spans; t++) {
        for (size_t i = w->tensor[t].n; i < padded(w->tensor[t].n); i++) {
            CHECK_SAYING(w->tensor[t].data[i] == 0, "%s wrote into the padding", name);
        }
    }
}

static void exchange(const struct cmn_communicator *c, const size_t *n, int tensors)
{
    struct world w;
    void *self = NULL;

    make_world(&w, n, tensors);
    CHECK_SAYING(c->open(&self, &top, &options) == 0, "%s", cmn_reason());
    for (int call = 0; call < 2; call++) {
        fill(&w, whole);
        CHECK_SAYING(c->allreduce(self, &w.x) == 0, "%s", cmn_reason());
        check_sums(&w, c->name);
        check_untouched(&w, c->name);
    }
    /* Sums of fractions depend on the order of the additions, and still must agree. */
    fill(&w, fraction);
    CHECK(c->allreduce(self, &w.x) == 0);
    check_untouched(&w, c->name);
    CHECK_SAYING(same_everywhere(w.x.block.data, (w.x.block.n + TALLY) * sizeof(float)),
                 "%s, %zu floats: not the same bits", c->name, w.x.block.n);
    for (size_t i = 0; i < w.tensor[0].n; i++) {
        double want = 0;
        for (int rank = 0; rank < top.size; rank++) {
            want += (double)fraction(i, rank);
        }
        CHECK(w.tensor[0].data[i] > want * 0.999999 && w.tensor[0].data[i] < want * 1.000001);
    }
    c->close(self);
    free(w.memory);
}

static void sums(void **state)
{
    const size_t size = (size_t)top.size;
    const size_t length[] = {0, 1, 3, size - 1, size, size + 1, 1000, (1 << 20) + 3};
    const struct cmn_communicator *c;

    (void)state;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        for (size_t i = 0; i < COUNT(length) && c->sums && !c->refuses(&top, &options); i++) {
            exchange(c, &length[i], 1);
        }
    }
    settle();
}

static void several_tensors(void **state)
{
    const size_t length[][TENSORS] = {{1, 17, 3, 16}, {0, 1000, 0, 5}, {70001, 1, 15, 262144}};
    const struct cmn_communicator *c;

    (void)state;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        for (size_t i = 0; i < COUNT(length) && c->sums && !c->refuses(&top, &options); i++) {
            exchange(c, length[i], TENSORS);
        }
    }
    settle();
}

/* Communicators agree with each other to the last bits but a few. */
static void agree_with_naive(void **state)
{
    const size_t length[TENSORS] = {300000, 7, 1000, 64};
    const struct cmn_communicator *c;
    float *naive = NULL;

    (void)state;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        struct world w;
        void *self = NULL;
        if (!c->sums || c->refuses(&top, &options)) {
            continue;
        }
        make_world(&w, length, TENSORS);
        fill(&w, fraction);
        CHECK(c->open(&self, &top, &options) == 0);
        CHECK(c->allreduce(self, &w.x) == 0);
        if (!naive) {
            CHECK(!strcmp(c->name, "naive"));
            naive = malloc(w.x.block.n * sizeof *naive);
            memcpy(naive, w.x.block.data, w.x.block.n * sizeof *naive);
        }
        for (size_t i = 0; i < w.x.block.n; i++) {
            float d = w.x.block.data[i] - naive[i];
            CHECK_SAYING(d >= -1e-6F && d <= 1e-6F, "%s at %zu", c->name, i);
        }
        c->close(self);
        free(w.memory);
    }
    free(naive);
    settle();
}

static const struct cmn_communicator *choose(const char *name, const char **why)
{
    snprintf(options.communicator, sizeof options.communicator, "%s", name);
    return cmn_communicator_choose(&top, &options, why);
}

static void dummy_exchanges_nothing(void **state)
{
    const size_t length[] = {1000};
    const char *why;
    const struct cmn_communicator *c = choose("dummy", &why);
    struct world w;
    void *self = NULL;

    (void)state;
    CHECK(c && !c->sums);
    make_world(&w, length, 1);
    fill(&w, whole);
    CHECK(c->open(&self, &top, &options) == 0);
    CHECK(c->allreduce(self, &w.x) == 0);
    for (size_t i = 0; i < length[0]; i++) {
        CHECK(w.tensor[0].data[i] == whole(i, top.rank));
    }
    check_untouched(&w, "dummy");
    c->close(self);
    free(w.memory);
    settle();
}

static void choice(void **state)
{
    const struct cmn_communicator *c;
    const char *why = NULL;

    (void)state;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        CHECK(choose(c->name, &why) == (c->refuses(&top, &options) ? NULL : c));
        CHECK(c->cpu && c->gpu && c->use && c->open && c->allreduce && c->close);
    }
    c = choose("auto", &why);
    CHECK(c && c->sums);
    CHECK(why && strstr(why, "auto"));
    CHECK(!choose("ring", &why));
    CHECK(strstr(cmn_reason(), "ring"));
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        CHECK_SAYING(strstr(cmn_reason(), c->name), "%s", cmn_reason());
    }
    settle();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums), cmocka_unit_test(several_tensors),
        cmocka_unit_test(agree_with_naive), cmocka_unit_test(dummy_exchanges_nothing),
        cmocka_unit_test(choice),
    };

    cmn_options_default(&options);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(group);
}
