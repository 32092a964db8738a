#include "optimizers/update_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compression/compressor.h"
#include "optimizers/lars.h"
#include "base/log.h"
#include "base/reduce.h"
#include "base/timeline.h"

/* ---- the beginning ---- */

static int skips(const struct cmn_options *o)
{
    return o->nonfinite == CMN_NONFINITE_SKIP;
}

void cmn_policy_plan(struct cmn_policy *s, const struct cmn_topology *t,
                     const struct cmn_options *o, const struct cmn_communicator *c, void *self,
                     int adam)
{
    memset(s, 0, sizeof *s);
    s->topology = t;
    s->options = o;
    s->communicator = *c;
    s->whole = c;
    s->self = self;
    s->local = t->device < 0 ? o->local_steps : 1;
    s->delayed = t->device < 0 && o->double_buffering;
    s->adam = adam;
    s->separate_momentum = t->device < 0 && s->local == 1 && !adam &&
                           (s->delayed || o->compress != CMN_COMPRESS_NONE ||
                            o->dtype != CMN_FP32 || o->lars > 0 || skips(o));
    /* The communicator's own rule is that of momentum, which lies among the gradients. */
    if (s->separate_momentum || s->local > 1 || adam) {
        s->communicator.step = NULL;
        s->communicator.common = NULL;
    }
    if (s->delayed || s->local > 1) {
        s->communicator.memory = NULL; /* what is exchanged is a copy */
    }
}

/* Floats of the block that are final when backward has done a layer: all tensors of this and of later layers. */
static int find_ends(struct cmn_policy *s)
{
    const struct cmn_gradients *g = s->gradients;
    int span = 0;

    s->final = calloc((size_t)s->layers + 1, sizeof *s->final);
    if (!s->final) {
        return cmn_fail("out of memory");
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        const float *end;
        if (t->kind != CMN_GRADIENT) {
            continue;
        }
        end = g->exchange.tensor[span].data + g->exchange.tensor[span].n;
        s->final[t->layer] = (size_t)(end - g->exchange.block.data);
        span++;
    }
    for (int i = s->layers - 1; i >= 0; i--) {
        s->final[i] = s->final[i] > s->final[i + 1] ? s->final[i] : s->final[i + 1];
    }
    return 0;
}

static int get_memory(struct cmn_policy *s, size_t floats, float **memory)
{
    size_t bytes = (floats * sizeof **memory + 63) / 64 * 64;

    if (s->whole->memory) {
        return s->whole->memory(s->self, floats, memory);
    }
    *memory = s->own = aligned_alloc(64, bytes);
    if (!s->own) {
        return cmn_fail("out of memory: %zu MiB for what is exchanged", bytes >> 20);
    }
    memset(s->own, 0, bytes);
    return 0;
}

int cmn_policy_exchange(struct cmn_policy *s, int copies)
{
    const struct cmn_exchange *from = &s->gradients->exchange;
    size_t n = from->block.n, all = n * (size_t)copies;
    float *memory = NULL;
    int tensors = 0;

    s->tensor = calloc((size_t)from->tensors * (size_t)copies + 1, sizeof *s->tensor);
    if (!s->tensor) {
        return cmn_fail("out of memory");
    }
    if (get_memory(s, all + CMN_METRICS, &memory)) {
        return -1;
    }
    for (int copy = 0; copy < copies; copy++) {
        for (int i = 0; i < from->tensors; i++) {
            struct cmn_span *to = &s->tensor[tensors++];
            *to = from->tensor[i];
            to->data = memory + (size_t)copy * n + (from->tensor[i].data - from->block.data);
        }
    }
    s->x = (struct cmn_exchange){
        .tensor = s->tensor,
        .tensors = tensors,
        .block = {.data = memory, .n = all},
        .metrics = {.data = memory + all, .n = CMN_METRICS},
    };
    return 0;
}

int cmn_policy_open(struct cmn_policy *s, struct cmn_gradients *g, int layers)
{
    const struct cmn_communicator *c = &s->communicator;
    int overlaps =
        c->begin && s->local == 1 && !s->delayed && !skips(s->options) && s->topology->size > 1;
    const char *why = !c->begin     ? "it cannot exchange in the background"
                      : c->no_begin ? c->no_begin(s->self)
                                    : NULL;
    struct cmn_options o = *s->options;

    s->gradients = g;
    s->layers = layers;
    if (cmn_policy_refuse(s, why)) {
        return -1;
    }
    o.overlap = overlaps && !why ? o.overlap : CMN_OVERLAP_OFF;
    cmn_bucket_tuner_open(&s->tuner, &o, g->exchange.block.n);
    if (find_ends(s)) {
        return -1;
    }
    if (s->separate_momentum) {
        s->velocity = calloc(g->exchange.block.n + 1, sizeof *s->velocity);
        if (!s->velocity) {
            return cmn_fail("out of memory");
        }
        return s->delayed ? cmn_policy_exchange(s, 1) : 0;
    }
    return s->local > 1 ? cmn_local_sgd_open(s) : 0;
}

int cmn_policy_begin(struct cmn_policy *s)
{
    const struct cmn_communicator *c = &s->communicator;
    const struct cmn_exchange *x = s->x.block.data ? &s->x : &s->gradients->exchange;

    s->bucket = cmn_bucket_tuner_bucket(&s->tuner);
    if (s->local > 1) {
        cmn_local_sgd_begin(s);
    }
    /* Nothing is begun, but a compressor then has its memory, and can be given that of a training which goes on. */
    return c->begin && (s->separate_momentum || s->local > 1) &&
                   !(c->no_begin && c->no_begin(s->self))
               ? c->begin(s->self, x, 0)
               : 0;
}

/* ---- a step ---- */

int cmn_policy_after_backward(struct cmn_policy *s, int i)
{
    size_t final = s->final[i];

    if (s->bucket && final > s->begun && final - s->begun >= s->bucket) {
        s->begun = final;
        return s->communicator.begin(s->self, &s->gradients->exchange, final);
    }
    return cmn_policy_poll(s);
}

int cmn_policy_poll(struct cmn_policy *s)
{
    return s->topology && s->topology->size > 1 && s->communicator.poll
               ? s->communicator.poll(s->self)
               : 0;
}

/* Updates the weights with `sums` and what momentum kept; zeroes the sums. */
static void update(struct cmn_policy *s, float *sums, const struct cmn_rule *rule, int images)
{
    struct cmn_gradients *g = s->gradients;
    double began = cmn_clock();
    int span = 0;

    cmn_gradients_rates(g, images, rule->rate, rule->decay);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        struct cmn_sgd_slice how = {.momentum = rule->momentum};
        size_t at;
        float *part[2];
        if (t->kind != CMN_GRADIENT) {
            continue;
        }
        at = (size_t)(g->exchange.tensor[span].data - g->exchange.block.data);
        how.rate = g->rate[span];
        how.decay = g->decay[span++];
        if (s->options->lars > 0 && t->decays) {
            cmn_lars_prepare(&how, *t->weight, sums + at, t->n, s->options->lars, images,
                             rule->decay);
        }
        part[0] = s->velocity + at;
        part[1] = sums + at;
        cmn_reduce_sgd(*t->weight, part, 2, 0, &how, t->n);
    }
    s->updating = cmn_clock() - began;
    cmn_timeline_span(CMN_SPAN_UPDATE, -1, began, began + s->updating);
}

/* Ends the exchange that is under way: its sums are in x. */
int cmn_policy_complete(struct cmn_policy *s)
{
    if (!s->under_way) {
        return 0;
    }
    s->under_way = 0;
    s->arrived = 1;
    return s->communicator.allreduce(s->self, &s->x);
}

/* The sums of the step before update the weights, if there are any, and the metrics is theirs then: 1. */
static int take_stale(struct cmn_policy *s, const struct cmn_rule *rule, int images)
{
    int fresh;

    if (cmn_policy_complete(s)) {
        return -1;
    }
    fresh = s->arrived;
    if (fresh) {
        memcpy(s->metrics, s->x.metrics.data, sizeof s->metrics);
        update(s, s->x.block.data, rule, images);
    }
    s->arrived = 0;
    return fresh;
}

static int update_stale(struct cmn_policy *s, const struct cmn_rule *rule, int images)
{
    struct cmn_span *block = &s->gradients->exchange.block;
    float metrics[CMN_METRICS];
    int fresh;

    memcpy(metrics, s->metrics, sizeof metrics);
    fresh = take_stale(s, rule, images);
    if (fresh < 0) {
        return -1;
    }
    memcpy(s->x.block.data, block->data, block->n * sizeof *block->data);
    memset(block->data, 0, block->n * sizeof *block->data);
    memcpy(s->x.metrics.data, metrics, sizeof metrics);
    s->under_way = 1;
    return s->communicator.begin(s->self, &s->x, s->x.block.n + s->x.metrics.n) ? -1 : fresh;
}

static int update_pure(struct cmn_policy *s, const struct cmn_rule *rule, int images)
{
    struct cmn_gradients *g = s->gradients;

    memcpy(g->metrics, s->metrics, sizeof s->metrics);
    if (s->communicator.allreduce(s->self, &g->exchange)) {
        return -1;
    }
    memcpy(s->metrics, g->metrics, sizeof s->metrics);
    update(s, g->exchange.block.data, rule, images);
    return 1;
}

/* The sum holds every rank's momentum, so each rank keeps 1/size of it. */
static int update_usual(struct cmn_policy *s, struct cmn_rule *rule, int images)
{
    struct cmn_gradients *g = s->gradients;
    const struct cmn_communicator *c = &s->communicator;

    memcpy(g->metrics, s->metrics, sizeof s->metrics);
    if (c->step ? cmn_gradients_step(g, c, s->self, images, rule->rate, rule->momentum, rule->decay)
                : cmn_gradients_sum(g, c, s->self)) {
        return -1;
    }
    memcpy(s->metrics, g->metrics, sizeof s->metrics);
    rule->batch = images;
    rule->momentum /= (float)s->topology->size;
    rule->done = c->step != NULL;
    return 1;
}

int cmn_policy_update(struct cmn_policy *s, struct cmn_rule *rule, int images)
{
    int fresh = 0;

    s->updating = 0;
    if (s->local > 1) {
        for (int i = 0; i < CMN_METRICS; i++) {
            s->waiting[i] += s->metrics[i];
        }
        return 0;
    }
    if (s->separate_momentum) {
        fresh = s->delayed ? update_stale(s, rule, images) : update_pure(s, rule, images);
        rule->done = 1;
    } else {
        fresh = update_usual(s, rule, images);
    }
    s->begun = 0;
    return fresh < 0 ? cmn_fail_in("%s: sum of the gradients", s->communicator.name) : fresh;
}

int cmn_policy_skip(struct cmn_policy *s, struct cmn_rule *rule, int images)
{
    struct cmn_span *block = &s->gradients->exchange.block;
    int fresh = s->delayed ? take_stale(s, rule, images) : 0;

    s->begun = 0;
    rule->done = 1;
    memset(block->data, 0, block->n * sizeof *block->data);
    return fresh < 0 ? cmn_fail_in("%s: sum of the gradients", s->communicator.name) : fresh;
}

int cmn_policy_after_update(struct cmn_policy *s, int settle)
{
    int fresh = 0;

    s->bucket = cmn_bucket_tuner_bucket(&s->tuner);
    if (s->local > 1 && (++s->since >= s->local || settle)) {
        fresh = cmn_local_sgd_average(s, settle);
        return fresh < 0 ? cmn_fail_in("%s: mean of the weights", s->communicator.name) : fresh;
    }
    return 0;
}

int cmn_policy_synchronised(const struct cmn_policy *s)
{
    return s->local == 1 || (s->since == 0 && !s->under_way && !s->arrived);
}

/* ---- the end ---- */

int cmn_policy_pause(struct cmn_policy *s)
{
    return cmn_policy_complete(s);
}

int cmn_policy_state(struct cmn_policy *s, int i, struct cmn_state *state)
{
    size_t block = s->gradients->exchange.block.n * sizeof(float);
    size_t exchanged = (s->x.block.n + s->x.metrics.n) * sizeof(float);
    const struct cmn_state own[] = {
        {"velocity", s->velocity, block},
        {"sums", s->x.block.data, exchanged},
        {"sums arrived", &s->arrived, sizeof s->arrived},
        {"common", s->common, s->x.block.n * sizeof(float)},
        {"mine", s->mine, s->x.block.n * sizeof(float)},
        {"steps since", &s->since, sizeof s->since},
        {"metrics", s->waiting, sizeof s->waiting},
    };
    enum { OWN = sizeof own / sizeof own[0] };

    for (int k = 0; k < OWN; k++) {
        if (own[k].data && i-- == 0) {
            *state = own[k];
            return 1;
        }
    }
    return s->communicator.state ? s->communicator.state(s->self, i, state) : 0;
}

void cmn_policy_forget_stop_requests(struct cmn_policy *s)
{
    s->waiting[CMN_INTERRUPTS] = s->waiting[CMN_TERMINATIONS] = 0;
    if (s->x.metrics.data) {
        s->x.metrics.data[CMN_INTERRUPTS] = s->x.metrics.data[CMN_TERMINATIONS] = 0;
    }
}

void cmn_policy_close(struct cmn_policy *s)
{
    cmn_policy_complete(s); /* its messages end in memory that is given back */
    free(s->velocity);
    free(s->own);
    free(s->tensor);
    free(s->common);
    free(s->mine);
    free(s->final);
    s->velocity = s->own = s->common = s->mine = NULL;
    s->tensor = NULL;
    s->final = NULL;
}
