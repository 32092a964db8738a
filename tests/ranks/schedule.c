/* When gradients are exchanged changes no bit (overlap, sizes of buckets), or changes what it says: double buffering and local
 * steps are held against a simulation of all ranks in one process. And what a restart needs is what is said. */
#include "ranks.h"

#include "codecs/codec.h"
#include "nets.h"
#include "schedule.h"

enum { UPDATES = 7, IMAGES = 24, EVERY = 3 };

static const float RATE = 0.1F, MOMENTUM = 0.75F, DECAY = 0.002F;

/* Small tensors and large ones, of layers with normalisation, parts, and a rate of their own. */
static const char cfg[] = "[net]\nbatch=2\nheight=6\nwidth=6\nchannels=2\n"
                          "[convolutional]\nfilters=8\nsize=3\npad=1\nbatch_normalize=1\n"
                          "[crnn]\nhidden_filters=4\noutput_filters=8\n"
                          "[connected]\noutput=45\nbatch_normalize=1\nlearning_rate=0.5\n"
                          "[connected]\noutput=131\n[connected]\noutput=4\n[softmax]\n";

struct side {
    const struct cmn_topology *t;
    struct cmn_options o;
    const struct cmn_communicator *c;
    void *self;
    network *net;
    struct cmn_gradients g;
    struct cmn_schedule s;
};

static void open_side(struct side *s, const struct cmn_topology *t, const struct cmn_options *o)
{
    const char *why;

    memset(s, 0, sizeof *s);
    s->t = t;
    s->o = *o;
    s->c = cmn_communicator_choose(t, &s->o, &why);
    CHECK_SAYING(s->c && s->c->open(&s->self, t, &s->o) == 0, "%s", cmn_reason());
    srand(5);
    s->net = nets_parse(cfg);
    cmn_schedule_plan(&s->s, t, &s->o, s->c, s->self);
    CHECK_SAYING(cmn_gradients_open(&s->g, s->net, &s->s.communicator, s->self) == 0, "%s",
                 cmn_reason());
    CHECK_SAYING(cmn_schedule_open(&s->s, &s->g, s->net->n) == 0, "%s", cmn_reason());
    MPI_Barrier(t->world);
    for (int i = 0, k = 0; i < s->g.tensors; i++) { /* rand_normal() is not the same twice */
        const struct cmn_tensor *x = &s->g.tensor[i];
        for (size_t j = 0; x->kind == CMN_GRADIENT && j < x->n; j++) {
            (*x->weight)[j] = (float)((int)((j * 5 + (size_t)k) % 17) - 8) / 32;
        }
        k += x->kind == CMN_GRADIENT;
    }
    MPI_Barrier(t->world);
    CHECK_SAYING(cmn_schedule_begin(&s->s) == 0, "%s", cmn_reason());
}

static void close_side(struct side *s)
{
    cmn_schedule_close(&s->s);
    cmn_gradients_close(&s->g);
    free_network(s->net);
    s->c->close(s->self);
}

/* The gradient of a rank's own loss, which draws each weight to a place of its own; Darknet adds the update. */
static float gradient(float w, size_t j, int tensor, int rank, int step)
{
    float place = (float)((int)((j * 7 + (size_t)(tensor + step * 5)) % 23) - 11) * (float)(rank + 1) / 16;

    return place - 2 * w;
}

static void step(struct side *s, int number)
{
    struct cmn_rule rule = {IMAGES / s->t->size, RATE, MOMENTUM, DECAY, 0};
    int fresh;

    for (int i = 0; i < CMN_TALLIES; i++) {
        s->s.tally[i] = (float)(s->t->rank + i + number);
    }
    for (int layer = s->net->n - 1; layer >= 0; layer--) {
        for (int i = 0, k = 0; i < s->g.tensors; i++) {
            const struct cmn_tensor *x = &s->g.tensor[i];
            for (size_t j = 0; x->kind == CMN_GRADIENT && x->layer == layer && j < x->n; j++) {
                (*x->at)[j] += gradient((*x->weight)[j], j, k, s->t->rank, number);
            }
            k += x->kind == CMN_GRADIENT;
        }
        CHECK_SAYING(cmn_schedule_backwarded(&s->s, layer) == 0, "%s", cmn_reason());
        CHECK(cmn_schedule_poll(&s->s) == 0);
    }
    fresh = cmn_schedule_update(&s->s, &rule, IMAGES);
    CHECK_SAYING(fresh >= 0, "%s", cmn_reason());
    for (int i = 0; i < s->net->n && !rule.done; i++) {
        update_args a = {.batch = rule.batch,
                         .learning_rate = rule.rate,
                         .momentum = rule.momentum,
                         .decay = rule.decay};
        if (s->net->layers[i].update) {
            s->net->layers[i].update(s->net->layers[i], a);
        }
    }
    fresh |= cmn_schedule_updated(&s->s, number == UPDATES);
    CHECK_SAYING(fresh >= 0, "%s", cmn_reason());
    for (int i = 0; i < CMN_TALLIES && fresh && s->s.local == 1; i++) {
        int of = number - s->s.stale, n = s->t->size;
        CHECK_SAYING(s->s.tally[i] == (float)(n * (of + i) + n * (n - 1) / 2), "%d: %g", i,
                     (double)s->s.tally[i]);
    }
}

/* All weights, one behind the other; the caller frees them. */
static float *weights(const struct side *s, size_t *n)
{
    float *all = malloc((s->g.exchange.block.n + 1) * sizeof *all);

    *n = 0;
    for (int i = 0; i < s->g.tensors; i++) {
        const struct cmn_tensor *x = &s->g.tensor[i];
        if (x->kind == CMN_GRADIENT) {
            memcpy(all + *n, *x->weight, x->n * sizeof *all);
            *n += x->n;
        }
    }
    return all;
}

static float *trained(const struct cmn_topology *t, const struct cmn_options *o, size_t *n)
{
    struct side s;
    float *result;

    open_side(&s, t, o);
    for (int i = 1; i <= UPDATES; i++) {
        step(&s, i);
    }
    result = weights(&s, n);
    CHECK_SAYING(same_everywhere(result, *n * sizeof *result), "%s", s.c->name);
    MPI_Barrier(t->world);
    close_side(&s);
    return result;
}

static void take_codec(struct cmn_options *o, const struct cmn_codec *codec)
{
    o->dtype = !strcmp(codec->name, "fp16") ? CMN_FP16 : !strcmp(codec->name, "bf16") ? CMN_BF16 : CMN_FP32;
    o->compress = !strcmp(codec->name, "topk")       ? CMN_COMPRESS_TOPK
                  : !strcmp(codec->name, "powersgd") ? CMN_COMPRESS_POWERSGD
                                                     : CMN_COMPRESS_NONE;
}

/* ---- overlap changes no bit ---- */

static void overlap_one(const struct cmn_topology *t, struct cmn_options *o, const char *what)
{
    static const double mib[] = {0.02, 0.0001, 0.05, 100};
    size_t sizes = strcmp(what, "none") && t->size > 2 ? 1 : COUNT(mib);
    size_t n, m;
    float *want, *got;

    o->overlap = CMN_OVERLAP_OFF;
    want = trained(t, o, &n);
    o->overlap = CMN_OVERLAP_ON;
    for (size_t i = 0; i < sizes; i++) {
        o->bucket_mb = mib[i];
        got = trained(t, o, &m);
        CHECK_SAYING(n == m && n > 20000 && !memcmp(want, got, n * sizeof *got),
                     "%.40s, %s, buckets of %g MiB", o->communicator, what, mib[i]);
        free(got);
    }
    o->bucket_mb = 0; /* all sizes in turn */
    o->overlap = CMN_OVERLAP_AUTO;
    got = trained(t, o, &m);
    CHECK_SAYING(!memcmp(want, got, n * sizeof *got), "%.40s, %s, auto", o->communicator, what);
    free(got);
    free(want);
}

static void overlap_in(const struct cmn_topology *t, const char *shape)
{
    static const char *const names[] = {"shm", "two_dimensional", "hierarchical", "flat"};

    (void)shape;
    for (size_t i = 0; i < COUNT(names); i++) {
        for (int k = 0; cmn_codec_at(k); k++) {
            struct cmn_options o;
            cmn_options_default(&o);
            snprintf(o.communicator, sizeof o.communicator, "%s", names[i]);
            take_codec(&o, cmn_codec_at(k));
            if ((t->inter_size > 1 || i == 3) && !(i == 3 && k == 0) && t->size > 1 && !failure[0]) {
                overlap_one(t, &o, cmn_codec_at(k)->name);
            }
        }
    }
}

static void overlap(void **state)
{
    (void)state;
    in_every_world(overlap_in);
    settle();
}

/* ---- double buffering and local steps do what they say ---- */

/* Weights and momentum of a rank, or of all, where they are the same. */
struct replica {
    double *w, *v;
};

/* Runs `what` over all weights: their number, their tensor's, and the place within that. */
#define FOR_EACH_WEIGHT(side, at, x, k, j)                                                         \
    for (size_t at = 0, once_ = 1; once_; once_ = 0)                                               \
        for (int i_ = 0, k = 0; i_ < (side)->g.tensors; k += (side)->g.tensor[i_++].kind == CMN_GRADIENT) \
            for (const struct cmn_tensor *x = &(side)->g.tensor[i_], *end_ = x + 1; x < end_; x = end_) \
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

static void add_gradients(const struct side *like, const struct replica *r, int rank, int number, double *sum)
{
    FOR_EACH_WEIGHT(like, at, x, k, j)
    {
        sum[at] += (double)gradient((float)r->w[at], j, k, rank, number);
    }
}

/* In every step the sum of all ranks' gradients, or that of the step before. */
static void simulate_sums(const struct side *like, struct replica *r, size_t n, int stale)
{
    double *sum = calloc(n, sizeof *sum), *before = calloc(n, sizeof *sum);

    for (int number = 1; number <= UPDATES; number++) {
        memcpy(before, sum, n * sizeof *sum);
        memset(sum, 0, n * sizeof *sum);
        for (int rank = 0; rank < like->t->size; rank++) {
            add_gradients(like, r, rank, number, sum);
        }
        if (!stale || number > 1) {
            apply(like, r, stale ? before : sum, IMAGES);
        }
    }
    free(sum);
    free(before);
}

/* Each rank by itself, the mean every EVERY steps and at the end. Late means give the same at the end: these gradients are linear in
 * the weights, and what a rank moves by when a mean arrives is nothing in the sum over all ranks. */
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
                r[rank].w[at] = w;
                r[rank].v[at] = v;
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
    float *begin, *got;

    open_side(&s, t, o);
    begin = weights(&s, &n);
    for (int rank = 0; rank < t->size; rank++) {
        r[rank] = (struct replica){calloc(n, sizeof(double)), calloc(n, sizeof(double))};
        for (size_t i = 0; i < n; i++) {
            r[rank].w[i] = (double)begin[i];
        }
    }
    if (o->local_steps > 1) {
        simulate_local(&s, r, n);
    } else {
        simulate_sums(&s, r, n, (int)o->double_buffering);
    }
    got = trained(t, o, &n);
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - r[0].w[i];
        CHECK_SAYING(d < 1e-4 && d > -1e-4, "%s, local %ld, stale %ld: weight %zu of %zu is %g, not %g",
                     s.c->name, o->local_steps, o->double_buffering, i, n, (double)got[i], r[0].w[i]);
    }
    for (int rank = 0; rank < t->size; rank++) {
        free(r[rank].w);
        free(r[rank].v);
    }
    free(got);
    free(begin);
    close_side(&s);
}

static void simulated_in(const struct cmn_topology *t, const char *shape)
{
    static const char *const names[] = {"flat", "shm", "two_dimensional", "hierarchical", "naive"};

    (void)shape;
    for (size_t i = 0; i < COUNT(names); i++) {
        for (int way = 0; way < 4; way++) {
            struct cmn_options o;
            cmn_options_default(&o);
            snprintf(o.communicator, sizeof o.communicator, "%s", names[i]);
            o.local_steps = way & 1 ? EVERY : 1;
            o.double_buffering = way / 2;
            /* One node has no link whose time could be hidden, naive nothing to hide it with. */
            if (!failure[0] && !(o.double_buffering && ((t->inter_size == 1 && i > 0) || i == 4))) {
                hold_against_simulation(t, &o);
            }
        }
    }
}

static void as_simulated(void **state)
{
    (void)state;
    in_every_world(simulated_in);
    settle();
}

/* ---- a restart ---- */

static size_t all_state(struct side *s, int i, struct cmn_state *state)
{
    const struct cmn_span *b = &s->g.exchange.block;

    if (i == 0) {
        *state = (struct cmn_state){"gradients", b->data, b->n * sizeof *b->data};
        return 1;
    }
    return (size_t)cmn_schedule_state(&s->s, i - 1, state);
}

static void copy_weights(const struct side *from, const struct side *to)
{
    for (int i = 0; i < from->g.tensors; i++) {
        const struct cmn_tensor *a = &from->g.tensor[i];
        if (a->kind == CMN_GRADIENT) {
            memcpy(*to->g.tensor[i].weight, *a->weight, a->n * sizeof(float));
        }
    }
}

/* Two trainings; the second is stopped in between, and goes on in a third with what was saved. */
static void restart(const struct cmn_topology *t, const struct cmn_options *o, const char *what)
{
    struct side first, second;
    struct cmn_state from, to;
    float *want, *got;
    size_t n, entries = 0;

    want = trained(t, o, &n);
    open_side(&first, t, o);
    open_side(&second, t, o);
    for (int i = 1; i <= UPDATES; i++) {
        if (i == 5) {
            CHECK(cmn_schedule_pause(&first.s) == 0);
            for (; all_state(&first, (int)entries, &from); entries++) {
                CHECK_SAYING(all_state(&second, (int)entries, &to) && from.bytes == to.bytes &&
                                 !strcmp(from.name, to.name),
                             "%s: %s", what, from.name);
                memcpy(to.data, from.data, from.bytes);
            }
            copy_weights(&first, &second);
            MPI_Barrier(t->world);
        }
        step(i < 5 ? &first : &second, i);
    }
    got = weights(&second, &n);
    CHECK_SAYING(!memcmp(want, got, n * sizeof *got), "%.40s, %s: other bits after a restart", o->communicator,
                 what);
    free(want);
    free(got);
    MPI_Barrier(t->world);
    close_side(&first);
    close_side(&second);
}

static void restart_in(const struct cmn_topology *t, const char *shape)
{
    (void)shape;
    for (int k = 0; cmn_codec_at(k); k++) {
        for (int way = 0; way < 4 && !failure[0]; way++) {
            struct cmn_options o;
            cmn_options_default(&o);
            take_codec(&o, cmn_codec_at(k));
            snprintf(o.communicator, sizeof o.communicator, t->inter_size > 1 ? "two_dimensional" : "flat");
            o.local_steps = way & 1 ? EVERY : 1;
            o.double_buffering = way / 2;
            restart(t, &o, cmn_codec_at(k)->name);
        }
    }
}

static void restarts(void **state)
{
    (void)state;
    in_every_world(restart_in);
    settle();
}

/* ---- which bucket is chosen ---- */

static int chosen(struct cmn_tuner *t, const double *seconds)
{
    struct cmn_options o;

    cmn_options_default(&o);
    cmn_tuner_open(t, &o, 1 << 22);
    CHECK(t->candidates == 4 && t->bucket[0] == 0 && t->steps == CMN_TUNER_WARMUP + 4 * CMN_TUNER_ROUNDS);
    for (int i = 0; i < t->steps; i++) {
        int trial = i - CMN_TUNER_WARMUP, candidate = trial < 0 ? 0 : trial % 4, is;
        double took = trial < 0 ? 9 : seconds[candidate];
        CHECK(cmn_tuner_bucket(t) == t->bucket[candidate]);
        took += trial / 4 == 1 ? 5 : 0; /* one round that something disturbed */
        took += top.rank == top.size - 1 && candidate == 3 ? 0.5 : 0; /* a rank that is slower with one of them */
        is = cmn_tuner_took(t, took, &top);
        CHECK(is == (i == t->steps - 1));
    }
    CHECK(cmn_tuner_took(t, 1, &top) == 0);
    return t->chosen;
}

static void tunes(void **state)
{
    const double off[] = {1, 1.2, 0.98, 0.9}, third[] = {1, 0.9, 0.8, 0.5}, little[] = {1, 0.95, 0.94, 1};
    struct cmn_tuner t;

    (void)state;
    CHECK(chosen(&t, off) == 0 && cmn_tuner_bucket(&t) == 0 && strstr(t.why, "overlap off: 1000.0 ms"));
    CHECK(chosen(&t, third) == 2 && cmn_tuner_bucket(&t) == t.bucket[2] && strstr(t.why, "overlap on, buckets of"));
    CHECK(chosen(&t, little) == 1);
    settle();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tunes),
        cmocka_unit_test(overlap),
        cmocka_unit_test(as_simulated),
        cmocka_unit_test(restarts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(group);
}
