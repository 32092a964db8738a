/* Extension, with cmn_exact and batch normalisation: the rolling statistics of a step are those of
 * one process, which computes all micro-batches one after the other.
 *
 * The rolling statistics begin each micro-batch with zeros, and so hold what it adds. Before the
 * update the additions of all ranks are added in the order of the micro-batches. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/replicas.h"
#include "trainer/extension.h"

struct exact_statistics {
    float *rolling; /* the statistics before the current step */
    float *added;   /* what each of its micro-batches on this rank has added */
    size_t floats;  /* of all statistics */
};

static void *open_exact_statistics(struct cmn_step *p)
{
    size_t floats = cmn_gradients_floats(&p->model->gradients, CMN_STATISTIC);
    const struct cmn_feed *f = p->feed;
    int micro_batches = f->balance.on ? cmn_feed_exact(f) : f->share.micro_batches;
    struct exact_statistics *s;

    if (!cmn_feed_exact(f) || !floats) {
        return NULL;
    }
    s = cmn_calloc(1, sizeof *s);
    s->rolling = cmn_alloc_floats(floats);
    s->added = cmn_alloc_floats(floats * (size_t)micro_batches);
    s->floats = floats;
    return s;
}

static void close_exact_statistics(void *self)
{
    struct exact_statistics *s = self;

    free(s->rolling);
    free(s->added);
    free(s);
}

static void before_micro_batch(void *self, struct cmn_step *p)
{
    struct exact_statistics *s = self;
    float *added = s->added + (size_t)p->micro_batch * s->floats;

    if (p->micro_batch == 0) {
        cmn_gradients_pack(&p->model->gradients, CMN_STATISTIC, s->rolling);
    }
    memset(added, 0, s->floats * sizeof *added);
    cmn_gradients_unpack(&p->model->gradients, CMN_STATISTIC, added);
}

static void after_micro_batch(void *self, struct cmn_step *p)
{
    struct exact_statistics *s = self;

    cmn_gradients_pack(&p->model->gradients, CMN_STATISTIC,
                       s->added + (size_t)p->micro_batch * s->floats);
}

static void before_exchange(void *self, struct cmn_step *p)
{
    struct exact_statistics *s = self;

    if (!p->skip) {
        cmn_replicas_roll_statistics(&p->model->gradients, &p->session->topology, s->rolling,
                                     s->added, p->feed->first);
    }
}

const struct cmn_extension cmn_exact_statistics_extension = {
    .name = "rolling statistics of cmn_exact",
    .open = open_exact_statistics,
    .close = close_exact_statistics,
    .before_micro_batch = before_micro_batch,
    .after_micro_batch = after_micro_batch,
    .before_exchange = before_exchange,
};
