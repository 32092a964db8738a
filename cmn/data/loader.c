#include "data/loader.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/stop_request.h"
#include "data/sampler.h"

static _Thread_local struct {
    size_t next;               /* number of the first sample that was not given a path */
    struct cmn_sample *sample; /* the samples that were given paths */
    size_t samples, loaded;    /* number of these; how many were begun */
    struct cmn_sample own;     /* the sample of a thread that loads one by itself */
    int drawn;                 /* counts calls of cmn_loader_draw_image() for `own` */
} self;

static void forget(void)
{
    free(self.sample);
    self.sample = NULL;
    self.samples = self.loaded = 0;
}

void cmn_loader_begin(size_t first)
{
    forget();
    cmn_stop_leave_to_main();
    self.next = first;
}

char **cmn_loader_next_paths(struct cmn_sampler *sampler, char **paths, int n)
{
    char **mine = cmn_calloc((size_t)n + 1, sizeof *mine);

    forget();
    if (n == 0) {
        return mine; /* there are more threads than images: no later call would free the rest */
    }
    self.sample = cmn_calloc((size_t)n + 1, sizeof *self.sample);
    cmn_sampler_next(sampler, self.next, (size_t)n, self.sample);
    self.next += (size_t)n;
    self.samples = (size_t)n;
    for (int i = 0; i < n; i++) {
        mine[i] = paths[self.sample[i].image];
    }
    return mine;
}

void cmn_loader_next_image(void)
{
    if (self.loaded == self.samples) {
        return;
    }
    cmn_random_named(CMN_RANDOM_IMAGE, self.sample[self.loaded++].seed);
    if (self.loaded == self.samples) {
        forget(); /* the thread may end before it starts another batch */
    }
}

void cmn_loader_begin_sample(struct cmn_sampler *sampler, size_t number)
{
    forget();
    self.next = number + 1;
    cmn_sampler_next(sampler, number, 1, &self.own);
    self.drawn = 0;
    cmn_random_named(CMN_RANDOM_IMAGE, self.own.seed);
}

size_t cmn_loader_draw_image(size_t images)
{
    return self.drawn++ ? (size_t)cmn_random_int() % images : self.own.image;
}
