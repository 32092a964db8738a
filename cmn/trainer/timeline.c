/* Extension, cmn_timeline: the trace of the last steps of all ranks (report/trace.h). */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/timeline.h"
#include "report/trace.h"
#include "trainer/extension.h"

struct timeline {
    char file[CMN_TEXT];
    long steps;
    const char **layer; /* the layers' types */
    struct cmn_trace *trace;
};

static void *open_timeline(struct cmn_step *p)
{
    struct timeline *t = cmn_calloc(1, sizeof *t);

    t->steps = cmn_options_timeline(p->session->options.timeline, t->file);
    if (!t->file[0]) {
        free(t);
        return NULL;
    }
    return t;
}

static void close_timeline(void *self)
{
    struct timeline *t = self;

    cmn_trace_close(t->trace);
    free(t->layer);
    free(t);
}

/* Estimates how many spans a step records: two for each layer, some for shards and buckets, for
 * waiting on each rank of the node, and for the rest. */
static size_t spans_of_step(const struct cmn_step *p)
{
    const struct cmn_model *m = p->model;
    size_t layers = (size_t)cmn_net_layers(m->net);
    size_t micro_batches = (size_t)cmn_net_subdivisions(m->net);
    size_t ranks = (size_t)p->session->topology.intra_size;

    return 2 * layers * micro_batches + 4 * (size_t)m->gradients.tensors + 8 * ranks + 16;
}

static void begin(void *self, struct cmn_step *p)
{
    struct timeline *t = self;
    int layers = cmn_net_layers(p->model->net);
    struct cmn_trace_plan plan = {
        .topology = &p->session->topology,
        .steps = t->steps,
        .spans = spans_of_step(p),
        .about = {.name = t->file, .layers = layers, .began = p->kept.began},
    };

    t->layer = cmn_calloc((size_t)layers, sizeof *t->layer);
    for (int i = 0; i < layers; i++) {
        t->layer[i] = cmn_net_layer_name(p->model->net, i);
    }
    plan.about.layer = t->layer;
    t->trace = cmn_trace_open(&plan);
}

static void after_step(void *self, struct cmn_step *p)
{
    (void)self;
    cmn_timeline_span(CMN_SPAN_STEP, (int)cmn_step_iteration(p), p->ended, cmn_clock());
}

static void after_report(void *self, struct cmn_step *p)
{
    struct timeline *t = self;
    int ends = cmn_step_ends_training(p);

    if (p->due.row || ends) {
        cmn_status_wait("the timeline of the ranks");
        cmn_trace_write(t->trace, ends);
        cmn_status_wait(NULL);
    }
}

const struct cmn_extension cmn_timeline_extension = {
    .name = "timeline",
    .open = open_timeline,
    .close = close_timeline,
    .begin = begin,
    .after_step = after_step,
    .after_report = after_report,
};
