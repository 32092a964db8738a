#include "trainer/feed.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"

/* ---- whose images ---- */

/* An image of a recurrent network is one step of a sequence: time_steps of them are one of the
 * cfg's batch. */
static void count_steps(struct cmn_feed *f)
{
    int steps = cmn_net_time_steps(f->net);

    f->sequences = f->local;
    f->first_sequence = f->offset;
    f->total *= steps;
    f->local *= steps;
    f->offset *= steps;
}

void cmn_feed_open(struct cmn_feed *f, const struct cmn_session *s, struct cmn_net *net, int batch)
{
    long rank = s->topology.rank, size = s->topology.size;

    *f = (struct cmn_feed){.session = s, .net = net};
    if (s->options.batch == CMN_BATCH_PER_RANK || s->command->does != CMN_TRAINS) {
        f->local = batch;
        f->total = batch * s->topology.size;
        f->offset = batch * s->topology.rank;
    } else if (batch < size) {
        cmn_fatal(
            "cmn_batch=global: %d images a micro-batch (batch divided by subdivisions) cannot "
            "be divided over %ld ranks: raise batch, or lower subdivisions or the number of "
            "ranks",
            batch, size);
    } else {
        f->total = batch;
        f->offset = (int)(batch * rank / size);
        f->local = (int)(batch * (rank + 1) / size) - f->offset;
    }
    count_steps(f);
}

void cmn_feed_close(struct cmn_feed *f)
{
    cmn_sampler_close(f->sampler);
    f->sampler = NULL;
}

size_t cmn_feed_step_images(const struct cmn_feed *f)
{
    return (size_t)f->total * (size_t)cmn_net_subdivisions(f->net);
}

size_t cmn_feed_own_images(const struct cmn_feed *f)
{
    return (size_t)f->local * (size_t)cmn_net_subdivisions(f->net);
}

/* ---- learning rate ----
 *
 * cmn_scale_lr=linear: N ranks with a batch each take N times the cfg's rate (linear scaling:
 * Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017). It is the
 * same as another learning_rate in the cfg, so each policy means what it means, and burn_in is the
 * warm-up: from 0 to the scaled rate, by `power`. */

enum { WARM_EPOCHS = 5 }; /* of Goyal et al. */

static int scales_rate(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;

    return s->options.scale_lr == CMN_SCALE_LINEAR && s->command->does == CMN_TRAINS &&
           s->options.batch == CMN_BATCH_PER_RANK;
}

void cmn_feed_scale_rate(const struct cmn_feed *f)
{
    if (scales_rate(f)) {
        cmn_net_scale_learning_rate(f->net, (float)f->session->topology.size);
    }
}

/* What burn_in is in this training, in words. */
static void describe_warm_up(const struct cmn_feed *f, char *text, size_t bytes)
{
    int burn_in = cmn_net_burn_in(f->net), last = cmn_net_last_iteration(f->net);
    size_t images = f->session->train_images * WARM_EPOCHS;

    if (burn_in && last && burn_in >= last) {
        snprintf(text, bytes,
                 ": never reached, for burn_in=%d does not end before iteration %d, the last one: "
                 "lower it",
                 burn_in, last);
    } else if (burn_in) {
        snprintf(text, bytes, ", reached after burn_in=%d iterations", burn_in);
    } else if (images) {
        snprintf(text, bytes,
                 " from the first iteration on; where that diverges, warm up by burn_in (%d epochs "
                 "are %zu iterations)",
                 WARM_EPOCHS, images / cmn_feed_step_images(f));
    } else {
        snprintf(text, bytes,
                 " from the first iteration on; where that diverges, warm up by burn_in");
    }
}

void cmn_feed_tell_rate(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;
    char warm_up[256];

    if (s->options.scale_lr != CMN_SCALE_LINEAR || s->topology.size == 1) {
        return;
    }
    if (!scales_rate(f)) {
        cmn_say("cmn_scale_lr=linear changes nothing with cmn_batch=global: the batch of all ranks "
                "is the cfg's");
        return;
    }
    describe_warm_up(f, warm_up, sizeof warm_up);
    cmn_say("learning rate %g, %d times the cfg's%s", (double)cmn_net_learning_rate(f->net),
            s->topology.size, warm_up);
}

void cmn_feed_set_epochs(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;
    size_t images = (size_t)s->options.epochs * s->train_images;
    size_t steps = (images + cmn_feed_step_images(f) - 1) / cmn_feed_step_images(f);

    if (steps > INT_MAX) {
        cmn_fatal("cmn_epochs=%ld: %zu iterations are more than Darknet can count; lower it",
                  s->options.epochs, steps);
    }
    if (steps) {
        cmn_net_set_last_iteration(f->net, (int)steps);
    }
}

/* ---- the next samples ---- */

/* A loader thread may come here. The first time the main thread waits for it; later it works with
 * the network. */
static void open_sampler(struct cmn_feed *f, size_t images)
{
    const struct cmn_session *s = f->session;
    struct cmn_sampler_plan plan;

    if (f->sampler) {
        return;
    }
    plan = (struct cmn_sampler_plan){
        .mode = (enum cmn_scatter_mode)s->options.scatter,
        .seed = s->seed,
        .rank = s->topology.rank,
        .size = s->topology.size,
        .images = images,
        /* By micro-batches, so that one holds the same images on any number of ranks. */
        .step = (size_t)f->total,
        .offset = (size_t)f->offset,
        .mine = (size_t)f->local,
        .origin = cmn_net_seen(f->net),
    };
    f->batch = cmn_feed_own_images(f);
    f->sampler = cmn_sampler_open(&plan);
}

size_t cmn_feed_next_batch(struct cmn_feed *f, size_t n, size_t images)
{
    size_t first = f->drawn;

    open_sampler(f, images);
    if (n != f->batch) {
        cmn_fatal("the trainer asks for %zu images a batch, the network takes %zu: is the network "
                  "the one that load_network has loaded last?",
                  n, f->batch);
    }
    f->drawn += n;
    return first;
}

void cmn_feed_rewind(struct cmn_feed *f)
{
    f->drawn -= f->batch;
}

size_t cmn_feed_next_sample(struct cmn_feed *f, size_t rows)
{
    struct cmn_sample sample;

    open_sampler(f, rows);
    cmn_sampler_next(f->sampler, f->drawn++, 1, &sample);
    return sample.image;
}

void cmn_feed_seed_sequence(const struct cmn_feed *f, int i)
{
    uint64_t which = (uint64_t)(f->first_sequence + i);

    if (f->session->options.scatter != CMN_SCATTER_GLOBAL) {
        cmn_fatal(
            "cmn_scatter: a text has no images to scatter, each rank reads its own sequences; "
            "leave the key away");
    }
    cmn_random_named(CMN_RANDOM_SEQUENCE,
                     cmn_random_hash((uint64_t)cmn_net_seen(f->net), which, 0, 0));
}

/* ---- the samples of a step ---- */

void cmn_feed_begin_step(struct cmn_feed *f)
{
    f->step_first = f->step_end;
    f->step_end += cmn_feed_own_images(f);
}

size_t cmn_feed_samples(const struct cmn_feed *f, int micro_batch, struct cmn_sample **sample)
{
    size_t one = (size_t)f->local, n = micro_batch < 0 ? cmn_feed_own_images(f) : one;
    size_t first = f->step_first + (micro_batch < 0 ? 0 : (size_t)micro_batch * one);

    *sample = NULL;
    if (!f->sampler) {
        return 0;
    }
    *sample = cmn_calloc(n + 1, sizeof **sample);
    cmn_sampler_next(f->sampler, first, n, *sample);
    return n;
}

void cmn_feed_name_sample(const struct cmn_feed *f, const struct cmn_sample *sample, char *text,
                          size_t bytes)
{
    char **paths = atomic_load(&((struct cmn_feed *)f)->paths);

    if (paths) {
        snprintf(text, bytes, "%s", paths[sample->image]);
    } else {
        snprintf(text, bytes, "sample %zu of the data", sample->image);
    }
}
