/* Trainings without data: a network whose gradients are known, driven through optimizer.h. */
#ifndef TESTS_SIDES_H
#define TESTS_SIDES_H

#include "ranks/ranks.h"

#include <math.h>

#include "compression/compressor.h"
#include "engine/darknet_net.h"
#include "engine/net.h"
#include "mpi/device.h"
#include "nets.h"
#include "optimizers/optimizer.h"

enum { UPDATES = 7, IMAGES = 24, EVERY = 3 };

static const float RATE = 0.1F, MOMENTUM = 0.75F, DECAY = 0.002F;

/* AlexeyAB's Darknet does not train it on the CPU. */
#ifdef NETWORKS_BY_VALUE
#define RARE
#else
#define RARE "[deconvolutional]\nfilters=3\nsize=2\nstride=2\n[maxpool]\nsize=2\nstride=2\n"
#endif

/* Small tensors and large ones, of layers of each kind, with normalisation and a rate of their own. */
static const char cfg[] = "[net]\nbatch=2\nheight=6\nwidth=6\nchannels=2\n"
                          "[convolutional]\nfilters=8\nsize=3\npad=1\nbatch_normalize=1\n" RARE
                          "[convolutional]\nfilters=8\nsize=3\npad=1\n"
                          "[local]\nfilters=3\nsize=3\nstride=1\npad=1\n"
                          "[connected]\noutput=45\nbatch_normalize=1\nlearning_rate=0.5\n"
                          "[connected]\noutput=251\n[connected]\noutput=4\n[softmax]\n";

/* Whether the next sides are updated by Adam's rule. Its numbers: the divisor is no small one, as these
 * gradients are now and then almost 0. */
static int with_adam;
/* The step after which the next sides leave one out; 0: none. */
static int skip_after;
static const char adams_lines[] = "adam=1\nB1=0.8\nB2=0.9\neps=0.01\n";

static inline struct cmn_options options_of(const char *communicator)
{
    struct cmn_options o;

    cmn_options_default(&o);
    snprintf(o.communicator, sizeof o.communicator, "%s", communicator);
    return o;
}

struct side {
    const struct cmn_topology *t;
    struct cmn_options o;
    const struct cmn_communicator *c;
    void *self;
    network *net;
    struct cmn_gradients g;
    struct cmn_optimizer s;
    double told; /* of the first metrics, the sums that came */
};

static inline void open_side(struct side *s, const struct cmn_topology *t,
                             const struct cmn_options *o)
{
    const char *why;
    char text[1024];

    memset(s, 0, sizeof *s);
    s->t = t;
    s->o = *o;
    s->c = cmn_communicator_choose(t, &s->o, &why);
    CHECK_SAYING(s->c && s->c->open(&s->self, s->c, t, &s->o) == 0, "%s", cmn_reason());
    srand(5);
    gpu_index = t->device;
    snprintf(text, sizeof text, "[net]\n%s%s", with_adam ? adams_lines : "",
             cfg + strlen("[net]\n"));
    s->net = nets_parse(text);
    cmn_optimizer_plan(&s->s, t, &s->o, s->c, s->self, with_adam, NULL);
    cmn_gradient_exchange_open(&s->g, cmn_net_of(s->net), &s->s.communicator, s->self);
    CHECK(s->g.on_gpu == (t->device >= 0));
    cmn_optimizer_open(&s->s, &s->g, s->net->n);
    MPI_Barrier(t->world);
    for (int i = 0, k = 0; i < s->g.tensors; i++) { /* rand_normal() is not the same twice */
        const struct cmn_tensor *x = &s->g.tensor[i];
        for (size_t j = 0; x->kind == CMN_GRADIENT && j < x->n; j++) {
            (*x->weight)[j] = (float)((int)((j * 5 + (size_t)k) % 17) - 8) / 32;
        }
        k += x->kind == CMN_GRADIENT;
    }
    cmn_gradients_push(&s->g, CMN_WEIGHT);
    MPI_Barrier(t->world);
    cmn_optimizer_begin(&s->s);
}

static inline int is_delayed(const struct side *s)
{
    return s->s.policy == &cmn_double_buffering || s->s.policy == &cmn_delayed_local_sgd;
}

static inline void close_side(struct side *s)
{
    cmn_optimizer_close(&s->s);
    cmn_gradients_close(&s->g);
    nets_free(s->net);
    s->c->close(s->self);
}

/* The gradient of a rank's own loss, which draws each weight to a place of its own; Darknet adds
 * the update. */
static inline float own_gradient(float w, size_t j, int tensor, int rank, int step)
{
    float place =
        (float)((int)((j * 7 + (size_t)(tensor + step * 5)) % 23) - 11) * (float)(rank + 1) / 16;

    return place - 2 * w;
}

/* A step that is left out, for a NaN of the last rank. */
static inline void leave_out(struct side *s)
{
    struct cmn_rule rule = {IMAGES / s->t->size, RATE, MOMENTUM, DECAY, 0};
    const struct cmn_span *block = &s->g.exchange.block;
    int fresh;

    for (size_t i = 0; i < block->n && !s->g.on_gpu; i++) {
        block->data[i] += s->t->rank == s->t->size - 1 ? NAN : 1;
    }
    fresh = cmn_optimizer_update(&s->s, &rule, IMAGES, 1);
    CHECK_SAYING(rule.done && fresh == is_delayed(s), "%d, %d", rule.done, fresh);
    s->told += fresh ? (double)s->s.metrics[0] : 0;
    CHECK(cmn_optimizer_after_update(&s->s, 0) == 0);
}

static inline void step(struct side *s, int number)
{
    struct cmn_rule rule = {IMAGES / s->t->size, RATE, MOMENTUM, DECAY, 0};
    int fresh, updates = number - is_delayed(s); /* this one included */

    for (int i = 0; i < CMN_METRICS; i++) {
        s->s.metrics[i] = (float)(s->t->rank + i + number);
    }
    cmn_gradients_pull(&s->g, CMN_WEIGHT);
    cmn_gradients_pull(&s->g, CMN_GRADIENT);
    for (int layer = s->net->n - 1; layer >= 0; layer--) {
        for (int i = 0, k = 0; i < s->g.tensors; i++) {
            const struct cmn_tensor *x = &s->g.tensor[i];
            for (size_t j = 0; x->kind == CMN_GRADIENT && x->layer == layer && j < x->n; j++) {
                (*x->at)[j] += own_gradient((*x->weight)[j], j, k, s->t->rank, number);
            }
            if (x->kind == CMN_GRADIENT && x->layer == layer && x->device) {
                cmn_device_write(*x->device, *x->at, x->n);
            }
            k += x->kind == CMN_GRADIENT;
        }
        cmn_optimizer_after_backward(&s->s, layer);
        cmn_optimizer_poll(&s->s);
    }
    cmn_net_set_updates(cmn_net_of(s->net), updates);
    fresh = cmn_optimizer_update(&s->s, &rule, IMAGES, 0);
    if (!rule.done) {
        nets_update(s->net, (update_args){.batch = rule.batch,
                                          .learning_rate = rule.rate,
                                          .momentum = rule.momentum,
                                          .decay = rule.decay,
                                          .adam = with_adam,
                                          .B1 = s->net->B1,
                                          .B2 = s->net->B2,
                                          .eps = s->net->eps,
                                          .t = updates});
    }
    fresh |= cmn_optimizer_after_update(&s->s, number == UPDATES);
    cmn_optimizer_step_took(&s->s, 0.001);
    cmn_gradients_pull(&s->g, CMN_WEIGHT);
    cmn_gradients_pull(&s->g, CMN_GRADIENT);
    /* Where the ranks have met they have the same weights, and the same momentum unless its mean
     * would come late. */
    for (int i = 0;
         i < s->g.tensors && s->s.policy->own_weights && cmn_optimizer_synchronised(&s->s); i++) {
        const struct cmn_tensor *x = &s->g.tensor[i];
        if (x->kind == CMN_GRADIENT) {
            CHECK_SAYING(same_everywhere(*x->weight, x->n * sizeof(float)), "%s", x->name);
            CHECK_SAYING(is_delayed(s) || same_everywhere(*x->at, x->n * sizeof(float)),
                         "momentum of %s", x->name);
        }
    }
    s->told += fresh ? (double)s->s.metrics[0] : 0;
    for (int i = 0; i < CMN_METRICS && fresh && !s->s.policy->own_weights; i++) {
        int of = number - is_delayed(s), n = s->t->size;
        CHECK_SAYING(s->s.metrics[i] == (float)(n * (of + i) + n * (n - 1) / 2), "%d: %g", i,
                     (double)s->s.metrics[i]);
    }
    if (number == skip_after) {
        leave_out(s);
    }
}

/* Each rank's metrics of each step has come once; with double buffering alone that of the last step
 * does not come any more. */
static inline void check_told(const struct side *s, double told)
{
    int last = UPDATES - (s->s.policy == &cmn_double_buffering), n = s->t->size;
    double want = (double)(last * n * (n - 1) / 2 + n * last * (last + 1) / 2);

    CHECK_SAYING(told == want, "%s, %s: metrics of %g, not %g", s->c->name, s->s.policy->name, told,
                 want);
}

/* All weights, one behind the other; the caller frees them. */
static inline float *weights(const struct side *s, size_t *n)
{
    float *all = malloc((s->g.exchange.block.n + 1) * sizeof *all);

    *n = 0;
    cmn_gradients_pull(&s->g, CMN_WEIGHT);
    for (int i = 0; i < s->g.tensors; i++) {
        const struct cmn_tensor *x = &s->g.tensor[i];
        if (x->kind == CMN_GRADIENT) {
            memcpy(all + *n, *x->weight, x->n * sizeof *all);
            *n += x->n;
        }
    }
    return all;
}

/* Takes the steps from one to before another. */
static inline void steps(struct side *s, int from, int until)
{
    for (int i = from; i < until; i++) {
        step(s, i);
    }
}

static inline float *trained(const struct cmn_topology *t, const struct cmn_options *o, size_t *n)
{
    struct side s;
    float *result;

    open_side(&s, t, o);
    steps(&s, 1, UPDATES + 1);
    check_told(&s, s.told);
    result = weights(&s, n);
    CHECK_SAYING(same_everywhere(result, *n * sizeof *result), "%s", s.c->name);
    MPI_Barrier(t->world);
    close_side(&s);
    return result;
}

/* What a checkpoint keeps: state, and momentum that it names as gradients. */
static inline void hand_over(struct side *from, struct side *to)
{
    struct cmn_momentum_part a, b;
    struct cmn_state x, y;

    cmn_optimizer_pause(&from->s);
    cmn_optimizer_pause(&to->s);
    for (int i = 0; cmn_optimizer_state(&from->s, i, &x); i++) {
        CHECK(cmn_optimizer_state(&to->s, i, &y) && x.bytes == y.bytes);
        memcpy(y.data, x.data, x.bytes);
    }
    if (cmn_optimizer_replicates(&from->s)) {
        a = cmn_optimizer_momentum(&from->s);
        b = cmn_optimizer_momentum(&to->s);
        memcpy(b.data + b.first, a.data + a.first, a.n * sizeof *a.data);
    }
    cmn_optimizer_restored(&to->s);
    cmn_gradients_pull(&from->g, CMN_MOMENT);
    for (int i = 0; i < from->g.tensors; i++) {
        const struct cmn_tensor *t = &from->g.tensor[i];
        if (t->kind == CMN_GRADIENT) {
            memcpy(*to->g.tensor[i].weight, *t->weight, t->n * sizeof(float));
        }
        if (t->kind == CMN_GRADIENT || t->kind == CMN_MOMENT) {
            memcpy(*to->g.tensor[i].at, *t->at, t->n * sizeof(float));
        }
    }
    cmn_gradients_push(&to->g, CMN_MOMENT);
    cmn_gradients_push(&to->g, CMN_WEIGHT);
    if (to->s.policy->own_weights) {
        cmn_gradients_push(&to->g, CMN_GRADIENT);
    }
}

/* A training that is stopped in between continues in another one with what was saved, and ends with
 * the weights `want` of one that was not stopped, which it frees. */
static inline void restart(const struct cmn_topology *t, const struct cmn_options *o,
                           const char *what, float *want)
{
    struct side first, second;
    float *got;
    size_t n;

    open_side(&first, t, o);
    open_side(&second, t, o);
    steps(&first, 1, 5);
    hand_over(&first, &second);
    MPI_Barrier(t->world);
    steps(&second, 5, UPDATES + 1);
    check_told(&second, first.told + second.told);
    got = weights(&second, &n);
    CHECK_SAYING(!memcmp(want, got, n * sizeof *got), "%.40s, %s: other bits after a restart",
                 o->communicator, what);
    free(want);
    free(got);
    MPI_Barrier(t->world);
    close_side(&first);
    close_side(&second);
}

#endif
