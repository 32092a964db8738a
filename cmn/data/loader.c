#include "data/loader.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/stop_request.h"
#include "data/sampler.h"

static _Thread_local struct {
    size_t next;               /* number of the first sample that has no path yet */
    struct cmn_sample *sample; /* those that have one */
    size_t samples, loaded;    /* of them */
    struct cmn_sample own;     /* of a thread that loads one by itself */
    int drawn;                 /* whether its image was */
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
        return mine; /* more threads than images: no image will come to clear the rest away */
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
