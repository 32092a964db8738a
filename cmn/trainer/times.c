/* Extension: where the time of a step goes, for the report and the timeline. It keeps its times in
 * struct cmn_step, since other extensions and the report read them. */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/timeline.h"
#include "mpi/call.h"
#include "report/row.h"
#include "trainer/extension.h"

static void begin(void *self, struct cmn_step *p)
{
    (void)self;
    p->kept.began = p->sums.since = p->ended = cmn_clock();
}

static void before_step(void *self, struct cmn_step *p)
{
    (void)self;
    p->began = p->micro_batch_began;
    p->sums.load += p->began - p->ended;
    cmn_timeline_span(CMN_SPAN_LOAD, -1, p->ended, p->began);
}

static void before_micro_batch(void *self, struct cmn_step *p)
{
    (void)self;
    p->layer_ended = p->micro_batch_began;
}

/* A layer's span begins where the one before has ended: Darknet says only when a layer is done. */
static void after_layer(void *self, struct cmn_step *p, int backward, int layer)
{
    (void)self;
    if (cmn_timeline_on && p->layer_ended > 0) {
        cmn_timeline_span(backward ? CMN_SPAN_BACKWARD : CMN_SPAN_FORWARD, layer, p->layer_ended,
                          cmn_clock());
    }
}

static void before_layer(void *self, struct cmn_step *p)
{
    (void)self;
    if (cmn_timeline_on && p->layer_ended > 0) {
        p->layer_ended = cmn_clock();
    }
}

static void after_micro_batch(void *self, struct cmn_step *p)
{
    double took = cmn_clock() - p->micro_batch_began;

    (void)self;
    p->layer_ended = 0;
    if (p->done) {
        p->computing += took;
        p->computed++;
    }
    if (!cmn_step_is_last(p)) {
        p->sums.compute += took;
    }
}

static void before_exchange(void *self, struct cmn_step *p)
{
    (void)self;
    p->sums.compute += p->exchange_began - p->micro_batch_began;
}

/* With local SGD the exchange is after the update. */
static void after_sums(void *self, struct cmn_step *p)
{
    (void)self;
    if (p->model->optimizer.policy->own_weights) {
        p->micro_batch_began = cmn_clock();
        p->sums.exchange += p->micro_batch_began - p->exchange_began;
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, p->exchange_began, p->micro_batch_began);
    }
}

/* An update that was part of the exchange counts as computation. */
static void after_exchange(void *self, struct cmn_step *p)
{
    const struct cmn_optimizer *o = &p->model->optimizer;

    (void)self;
    p->micro_batch_began = cmn_clock();
    p->sums.exchange += p->micro_batch_began - p->exchange_began - o->updating;
    p->sums.compute += o->updating;
    if (!o->policy->own_weights) {
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, p->exchange_began, p->micro_batch_began);
    }
}

static void after_update(void *self, struct cmn_step *p)
{
    double now = cmn_clock();

    (void)self;
    p->sums.compute += now - p->micro_batch_began;
    if (!p->fused) {
        cmn_timeline_span(CMN_SPAN_UPDATE, -1, p->micro_batch_began, now);
    }
}

static void after_step(void *self, struct cmn_step *p)
{
    (void)self;
    p->sums.steps++;
}

/* Gathers each rank's times on rank 0. */
static struct cmn_rank_times *gather(const struct cmn_step *p)
{
    const struct cmn_topology *top = &p->session->topology;
    struct cmn_rank_times mine = {
        .compute = p->sums.compute, .load = p->sums.load, .wait = p->sums.exchange};
    struct cmn_rank_times *all = top->rank ? NULL : cmn_calloc((size_t)top->size, sizeof *all);

    memcpy(mine.host, top->host, sizeof mine.host);
    cmn_status_wait("the report of the ranks");
    MPI_CALL(MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, top->world));
    cmn_status_wait(NULL);
    return all;
}

static void fill_row(void *self, struct cmn_step *p, struct cmn_row *row)
{
    double passed = cmn_clock() - p->sums.since;

    (void)self;
    row->rank = gather(p);
    row->ranks = p->session->topology.size;
    row->compute = p->sums.compute / passed;
    row->exchange = p->sums.exchange / passed;
    row->load = p->sums.load / passed;
    row->steps = p->sums.steps;
}

const struct cmn_extension cmn_times_extension = {
    .name = "times",
    .begin = begin,
    .before_step = before_step,
    .before_micro_batch = before_micro_batch,
    .after_layer = after_layer,
    .before_layer = before_layer,
    .after_micro_batch = after_micro_batch,
    .before_exchange = before_exchange,
    .after_exchange = after_exchange,
    .after_sums = after_sums,
    .after_update = after_update,
    .after_step = after_step,
    .fill_row = fill_row,
};
