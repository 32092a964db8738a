#include "data/sampler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/random.h"

enum purpose { ORDER = 11, PARTS, PLACE, SAMPLE };

/* The shuffled order of one pass over the list, or over this rank's shard. */
struct order {
    int known;
    size_t pass;
    size_t *image;
};

struct cmn_sampler {
    struct cmn_sampler_plan plan;
    size_t *shard; /* this rank's images; NULL unless cmn_scatter=shard */
    size_t count;  /* images in one pass of this rank's stream */
    pthread_mutex_t lock;
    struct order order[2]; /* the latest even and odd pass: a prefetch may span both */
};

static void shuffle(size_t *image, size_t n, uint64_t state)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(cmn_random_step(&state) % i);
        size_t swap = image[i - 1];
        image[i - 1] = image[j];
        image[j] = swap;
    }
}

size_t *cmn_sampler_shard(const struct cmn_sampler_plan *p, size_t *count)
{
    size_t from = p->images * (size_t)p->rank / (size_t)p->size;
    size_t to = p->images * ((size_t)p->rank + 1) / (size_t)p->size;
    size_t *all = cmn_calloc(p->images + 1, sizeof *all);

    for (size_t i = 0; i < p->images; i++) {
        all[i] = i;
    }
    shuffle(all, p->images, cmn_random_hash(p->seed, PARTS, 0, 0));
    *count = to - from;
    memmove(all, all + from, *count * sizeof *all);
    return cmn_realloc(all, *count + 1, sizeof *all);
}

struct cmn_sampler *cmn_sampler_open(const struct cmn_sampler_plan *plan)
{
    struct cmn_sampler *s;

    if (plan->images == 0) {
        cmn_fatal("the list of images is empty: name them in it, one a line");
    }
    if (plan->mode == CMN_SCATTER_SHARD && plan->images < (size_t)plan->size) {
        cmn_fatal("cmn_scatter=shard: %zu images cannot be cut into shards for %d ranks: use fewer "
                  "ranks or cmn_scatter=global",
                  plan->images, plan->size);
    }
    s = cmn_calloc(1, sizeof *s);
    s->plan = *plan;
    s->count = plan->images;
    pthread_mutex_init(&s->lock, NULL);
    if (plan->mode == CMN_SCATTER_SHARD) {
        s->shard = cmn_sampler_shard(plan, &s->count);
    }
    for (int i = 0; i < 2 && plan->mode != CMN_SCATTER_NONE; i++) {
        s->order[i].image = cmn_calloc(s->count, sizeof *s->order[i].image);
    }
    return s;
}

/* Returns the image at a place of this rank's stream. The caller holds the lock. */
static size_t image_at(struct cmn_sampler *s, size_t place)
{
    size_t pass = place / s->count;
    struct order *o = &s->order[pass % 2];
    uint64_t whose = s->shard ? (uint64_t)s->plan.rank + 1 : 0;

    if (!o->known || o->pass != pass) {
        for (size_t i = 0; i < s->count; i++) {
            o->image[i] = s->shard ? s->shard[i] : i;
        }
        shuffle(o->image, s->count, cmn_random_hash(s->plan.seed, ORDER, whose, pass));
        o->pass = pass;
        o->known = 1;
    }
    return o->image[place % s->count];
}

void cmn_sampler_next(struct cmn_sampler *s, size_t first, size_t n, struct cmn_sample *sample)
{
    const struct cmn_sampler_plan *p = &s->plan;
    uint64_t rank = (uint64_t)p->rank;
    size_t earlier = p->origin / p->step * p->mine;

    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++) {
        size_t k = first + i;
        size_t place = p->origin + k / p->mine * p->step + p->offset + k % p->mine;
        size_t own = p->mode == CMN_SCATTER_GLOBAL ? place : earlier + k;
        sample[i].pass = own / s->count;
        sample[i].place = own % s->count;
        switch (p->mode) {
        case CMN_SCATTER_GLOBAL:
            sample[i].image = image_at(s, place);
            sample[i].seed = cmn_random_hash(p->seed, PLACE, place, 0);
            break;
        case CMN_SCATTER_SHARD:
            sample[i].image = image_at(s, earlier + k);
            sample[i].seed = cmn_random_hash(p->seed, SAMPLE, rank, earlier + k);
            break;
        default:
            sample[i].seed = cmn_random_hash(p->seed, SAMPLE, rank, earlier + k);
            sample[i].image = (size_t)(cmn_random_hash(sample[i].seed, 0, 0, 0) % p->images);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

void cmn_sampler_close(struct cmn_sampler *s)
{
    if (!s) {
        return;
    }
    free(s->order[0].image);
    free(s->order[1].image);
    free(s->shard);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
