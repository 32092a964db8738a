/* Plans of the sampler for jobs of several ranks, and what they draw. */
#ifndef TESTS_PLANS_H
#define TESTS_PLANS_H

#include "check.h"

#include "base/log.h"
#include "data/sampler.h"

/* `batch` images of a step over `size` ranks; shares differ by at most one, as cmn_batch=global
 * makes them. */
static inline struct cmn_sampler_plan plan_of(enum cmn_scatter_mode mode, size_t images, int size,
                                              int rank, size_t batch)
{
    size_t offset = batch * (size_t)rank / (size_t)size;
    struct cmn_sampler_plan plan = {
        .mode = mode,
        .seed = 7,
        .rank = rank,
        .size = size,
        .images = images,
        .step = batch,
        .offset = offset,
        .mine = batch * ((size_t)rank + 1) / (size_t)size - offset,
    };

    return plan;
}

static inline struct cmn_sample *draw(const struct cmn_sampler_plan *plan, size_t first, size_t n)
{
    struct cmn_sampler *s = cmn_sampler_open(plan);
    struct cmn_sample *sample = calloc(n + 1, sizeof *sample);

    if (!s) {
        fail_msg("%s", cmn_reason());
    }
    cmn_sampler_next(s, first, n, sample);
    cmn_sampler_close(s);
    return sample;
}

/* What all ranks together take in steps 0 … steps-1, step by step and rank by rank. */
static inline struct cmn_sample *stream_of(struct cmn_sampler_plan plan, size_t steps)
{
    struct cmn_sample *stream = calloc(plan.step * steps, sizeof *stream);
    size_t origin = plan.origin;

    for (int rank = 0; rank < plan.size; rank++) {
        struct cmn_sampler_plan p = plan_of(plan.mode, plan.images, plan.size, rank, plan.step);
        struct cmn_sample *mine;
        p.origin = origin;
        p.seed = plan.seed;
        mine = draw(&p, 0, p.mine * steps);
        for (size_t s = 0; s < steps; s++) {
            memcpy(stream + s * p.step + p.offset, mine + s * p.mine, p.mine * sizeof *mine);
        }
        free(mine);
    }
    return stream;
}

struct job {
    size_t images;
    int size;
    size_t batch; /* of all ranks */
};

static const struct job jobs[] = {
    {60000, 7, 700}, {60000, 7, 1000}, {10, 3, 3}, {10, 3, 4}, {10, 3, 11}, {3, 5, 5},    {3, 5, 8},
    {1, 1, 1},       {1, 1, 3},        {7, 2, 2},  {7, 2, 5},  {7, 2, 14},  {100, 4, 10}, {5, 5, 5},
};

#endif
