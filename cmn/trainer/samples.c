/* What a training is fed with: each rank's share of a batch, and which sample comes next. */
#include "trainer/trainer.h"

#include <limits.h>

#include "darknet.h"
#include "base/log.h"
#include "base/random.h"
#include "data/sampler.h"

/* An image of a recurrent network is one step of a sequence: time_steps of them are one of the cfg's batch. */
static void count_steps(struct cmn_trainer *t)
{
    int steps = t->net->time_steps;

    t->sequences = t->local;
    t->first_sequence = t->offset;
    t->total *= steps;
    t->local *= steps;
    t->offset *= steps;
}

int cmn_trainer_split_batch(struct cmn_trainer *t, int batch)
{
    const struct cmn_topology *top = &t->session->topology;
    long rank = top->rank, size = top->size;

    if (t->session->options.batch == CMN_BATCH_PER_RANK ||
        t->session->command->does != CMN_TRAINS) {
        t->local = batch;
        t->total = batch * top->size;
        t->offset = batch * top->rank;
    } else if (batch < size) {
        return cmn_fail("cmn_batch=global: %d images a pass (batch divided by subdivisions) cannot "
                        "be shared by %ld ranks: raise batch, or lower subdivisions or the number "
                        "of ranks",
                        batch, size);
    } else {
        t->total = batch;
        t->offset = (int)(batch * rank / size);
        t->local = (int)(batch * (rank + 1) / size) - t->offset;
    }
    count_steps(t);
    return 0;
}

size_t cmn_trainer_step_images(const struct cmn_trainer *t)
{
    return (size_t)t->total * (size_t)t->net->subdivisions;
}

int cmn_trainer_epochs(struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    size_t images = (size_t)s->options.epochs * s->train_images;
    size_t steps = (images + cmn_trainer_step_images(t) - 1) / cmn_trainer_step_images(t);

    if (steps > INT_MAX) {
        return cmn_fail("cmn_epochs=%ld: %zu iterations are more than Darknet can count",
                        s->options.epochs, steps);
    }
    if (steps) {
        t->net->max_batches = (int)steps;
    }
    return 0;
}

void cmn_trainer_rewind_batch(struct cmn_trainer *t)
{
    t->drawn -= t->batch;
}

/* A loader thread may come here. The first time the main thread waits for it; later it works with the network. */
static int open_scatter(struct cmn_trainer *t, size_t images)
{
    const struct cmn_session *s = t->session;
    struct cmn_sampler_plan plan;

    if (t->scatter) {
        return 0;
    }
    plan = (struct cmn_sampler_plan){
        .mode = (enum cmn_scatter_mode)s->options.scatter,
        .seed = s->seed,
        .rank = s->topology.rank,
        .size = s->topology.size,
        .images = images,
        /* Pass by pass, so that a pass holds the same images on any number of ranks. */
        .step = (size_t)t->total,
        .offset = (size_t)t->offset,
        .mine = (size_t)t->local,
        .origin = *t->net->seen,
    };
    t->batch = (size_t)t->local * (size_t)t->net->subdivisions;
    t->scatter = cmn_sampler_open(&plan);
    return t->scatter ? 0 : -1;
}

int cmn_trainer_next_batch(struct cmn_trainer *t, size_t n, size_t images, size_t *first)
{
    if (open_scatter(t, images)) {
        return -1;
    }
    if (n != t->batch) {
        return cmn_fail("the trainer asks for %zu images a batch, the network takes %zu", n,
                        t->batch);
    }
    *first = t->drawn;
    t->drawn += n;
    return 0;
}

int cmn_trainer_next_sample(struct cmn_trainer *t, size_t rows, size_t *row)
{
    struct cmn_sample sample;

    if (open_scatter(t, rows)) {
        return -1;
    }
    cmn_sampler_next(t->scatter, t->drawn++, 1, &sample);
    *row = sample.image;
    return 0;
}

int cmn_trainer_seed_sequence(struct cmn_trainer *t, int i)
{
    uint64_t which = (uint64_t)(t->first_sequence + i);

    if (t->session->options.scatter != CMN_SCATTER_GLOBAL) {
        return cmn_fail("cmn_scatter: a text has no images to scatter, each rank goes on with its "
                        "own sequences; leave the key away");
    }
    cmn_random_named(CMN_RANDOM_SEQUENCE, cmn_random_hash((uint64_t)*t->net->seen, which, 0, 0));
    return 0;
}
