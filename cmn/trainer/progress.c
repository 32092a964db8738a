#include "trainer/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/timeline.h"
#include "engine/graph_export.h"
#include "engine/replicas.h"
#include "mpi/call.h"
#include "report/graph.h"
#include "report/report.h"
#include "report/trace.h"
#include "trainer/nonfinite_policy.h"
#include "trainer/validation.h"

/* ---- the beginning ---- */

/* Converts images to passes over the training list. 0 if its length is not known. */
static double epochs(const struct cmn_session *s, size_t images)
{
    return s->train_images ? (double)images / (double)s->train_images : 0;
}

static void draw_graph(const struct cmn_training_progress *p)
{
    const char *file = p->session->options.graph;
    struct cmn_graph graph;

    if (file[0]) {
        graph = cmn_export_graph(p->model->net, &p->model->gradients, p->model->name);
        if (cmn_graph_write(&graph, file)) {
            cmn_fatal_reason();
        }
        cmn_graph_free(&graph);
    }
}

static void open_report(struct cmn_training_progress *p)
{
    struct cmn_session *s = p->session;
    struct cmn_report_plan plan = {
        .mode = (enum cmn_report_mode)s->options.report,
        .answer = s->command->answer,
        .json = p->json,
        .chart = s->options.chart,
        .tensorboard = s->options.events,
        .graph = s->options.graph,
        .timeline = p->timeline,
        .first = p->step->first,
        .resume = {.iteration = p->row_at,
                   .epoch = epochs(s, p->row_seen),
                   .same_list = p->resumed},
        .total = cmn_net_last_iteration(p->model->net),
    };

    snprintf(p->json, sizeof p->json, "%s", s->options.json);
    if (!p->json[0]) {
        snprintf(p->json, sizeof p->json, "%s/%s.json", s->backup, p->model->name);
    }
    draw_graph(p);
    s->report = cmn_report_open(&plan);
}

/* Estimates how many spans a step records: two for each layer, some for shards and buckets, for
 * waiting on each rank of the node, and for the rest. */
static size_t spans_of_step(const struct cmn_training_progress *p)
{
    const struct cmn_model *m = p->model;
    size_t layers = (size_t)cmn_net_layers(m->net);
    size_t micro_batches = (size_t)cmn_net_subdivisions(m->net);
    size_t ranks = (size_t)p->session->topology.intra_size;

    return 2 * layers * micro_batches + 4 * (size_t)m->gradients.tensors + 8 * ranks + 16;
}

static void open_timeline(struct cmn_training_progress *p)
{
    const struct cmn_session *s = p->session;
    int layers = cmn_net_layers(p->model->net);
    struct cmn_trace_plan plan = {
        .topology = &s->topology,
        .steps = cmn_options_timeline(s->options.timeline, p->timeline),
        .spans = spans_of_step(p),
        .about = {.name = p->timeline, .layers = layers, .began = p->began},
    };

    if (!p->timeline[0]) {
        return;
    }
    p->layer = cmn_calloc((size_t)layers, sizeof *p->layer);
    for (int i = 0; i < layers; i++) {
        p->layer[i] = cmn_net_layer_name(p->model->net, i);
    }
    plan.about.layer = p->layer;
    p->trace = cmn_trace_open(&plan);
}

void cmn_progress_open(struct cmn_training_progress *p)
{
    /* The report comes last. It needs the timeline's name, and if another file cannot be opened, an
     * earlier training's log is still there. */
    open_timeline(p);
    if (p->session->topology.rank == 0) {
        open_report(p);
    }
}

void cmn_progress_close_report(struct cmn_training_progress *p)
{
    struct cmn_report *r = p->session->report;

    p->session->report = NULL;
    if (cmn_report_close(r)) {
        cmn_fatal_reason();
    }
}

void cmn_progress_close(struct cmn_training_progress *p)
{
    cmn_progress_close_report(p);
    cmn_trace_close(p->trace);
    free(p->layer);
    p->trace = NULL;
    p->layer = NULL;
}

/* ---- rows ---- */

/* This counts steps, since the metrics count only images of steps whose sums have arrived. */
double cmn_progress_speed(const struct cmn_training_progress *p)
{
    const struct cmn_row_sums *sums = &p->step->sums;
    double images = (double)sums->steps * (double)cmn_feed_step_images(p->step->feed);

    return images / (cmn_clock() - sums->since);
}

/* Collective. Gathers each rank's times on rank 0, whose caller frees them; returns NULL on other
 * ranks. */
static struct cmn_rank_times *gather_times(const struct cmn_training_progress *p)
{
    const struct cmn_topology *top = &p->session->topology;
    const struct cmn_row_sums *sums = &p->step->sums;
    struct cmn_rank_times mine = {
        .compute = sums->compute, .load = sums->load, .wait = sums->exchange};
    struct cmn_rank_times *all = top->rank ? NULL : cmn_calloc((size_t)top->size, sizeof *all);

    memcpy(mine.host, top->host, sizeof mine.host);
    cmn_status_wait("the report of the ranks");
    MPI_CALL(MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, top->world));
    cmn_status_wait(NULL);
    return all;
}

static void make_row(struct cmn_training_progress *p, const struct cmn_progress_due *due)
{
    struct cmn_session *s = p->session;
    const struct cmn_net *net = p->model->net;
    struct cmn_row_sums *sums = &p->step->sums;
    struct cmn_row row = {
        .epoch = epochs(s, cmn_net_seen(net)),
        .iteration = cmn_step_iteration(p->step),
        .validation_loss = -1,
        .validation_accuracy = -1,
        .validation_map = -1,
        .validation_map95 = -1,
        .lr = p->step->lr,
        .images_per_s = cmn_progress_speed(p),
        .clipped = p->model->optimizer.clipped,
        .ranks = s->topology.size,
    };
    struct cmn_rank_times *times;

    cmn_step_fill_row(p->step, &row);
    times = gather_times(p);
    if (due->validation) {
        cmn_validate(s, p->model, &row);
        cmn_best_validated(&p->best, p->step,
                           s->valid.images ? row.validation_accuracy : row.validation_map,
                           due->scheduled);
    }
    row.rank = times;
    row.elapsed = cmn_clock() - p->began;
    memset(sums, 0, sizeof *sums);
    sums->since = cmn_clock();
    cmn_status_compute("the report");
    if (s->report) {
        cmn_report_row(s->report, &row);
    }
    free(times);
}

/* Makes the row of this iteration, and writes the timeline. */
static void make_row_and_trace(struct cmn_training_progress *p, const struct cmn_progress_due *due)
{
    if (due->regular) {
        p->row_due = 0;
        p->row_at = cmn_step_iteration(p->step);
        p->row_seen = cmn_net_seen(p->model->net);
    }
    make_row(p, due);
    cmn_status_wait("the timeline of the ranks");
    if (p->trace) {
        cmn_trace_write(p->trace, due->last || cmn_net_training_ended(p->model->net));
    }
    cmn_status_wait(NULL);
}

/* ---- after a step ---- */

struct cmn_progress_due cmn_progress_step_done(struct cmn_training_progress *p)
{
    struct cmn_session *s = p->session;
    struct cmn_step *step = p->step;
    const struct cmn_net *net = p->model->net;
    const struct cmn_options *o = &s->options;
    long epoch = s->train_images ? (long)(cmn_net_seen(net) / s->train_images) : 0;
    int epoch_ended = epoch > p->epoch;
    int validation_due = o->validate && epoch / o->validate > p->epoch / o->validate;
    struct cmn_progress_due due;
    int deferred;

    p->epoch = epoch;
    /* Darknet saves at the end of an epoch, so the ranks must synchronise there anyway. They do so
     * before the row, which then has the loss of all steps. */
    cmn_step_end(step, epoch_ended);
    due.last = cmn_net_training_ended(net);
    p->row_due |=
        epoch_ended || (o->report_every && cmn_step_iteration(step) % o->report_every == 0);
    validation_due = validation_due && cmn_validates(s, net);
    /* A stop request does not wait for a validation. The run that resumes this one validates in its
     * first step, unless cmn_patience may end the training here. */
    deferred = s->stop_signal && !cmn_best_may_end(&p->best, o);
    p->validation_pending = validation_due && deferred;
    /* With local SGD and double buffering a row waits until sums have arrived. */
    due.regular =
        !p->validation_pending && (validation_due || (p->row_due && step->sums.images > 0));
    due.validation = (validation_due && !deferred) ||
                     (due.last && !s->stop_signal && o->validate && cmn_validates(s, net));
    due.scheduled = validation_due;
    return due;
}

/* Compares the weights of all ranks if that is due. With local SGD it waits until the ranks should
 * have the same weights. */
static void verify(struct cmn_training_progress *p)
{
    const struct cmn_session *s = p->session;
    const struct cmn_model *m = p->model;
    long every = s->options.verify, iteration = cmn_step_iteration(p->step);
    struct cmn_nonfinite bad;
    char what[160];

    p->verify_due |= every && s->communicator->sums && iteration % every == 0;
    if (!p->verify_due || !cmn_optimizer_synchronised(&m->optimizer)) {
        return;
    }
    p->verify_due = 0;
    if (cmn_replicas_verify(&m->gradients, m->net, &s->topology, &bad)) {
        cmn_fail_in("after iteration %ld", iteration);
        cmn_fatal_reason();
    }
    if (bad.name && s->options.nonfinite != CMN_NONFINITE_IGNORE) {
        cmn_nonfinite_say(m->net, &bad, what, sizeof what);
        cmn_fatal("after iteration %ld: NaN or Inf in the weights: %s", iteration, what);
    }
}

/* Says at the end of a training how many steps were discarded or clipped. */
static void tell_counts(const struct cmn_training_progress *p)
{
    const struct cmn_optimizer *o = &p->model->optimizer;
    long skipped = p->step->nonfinite->skipped;

    if (skipped || o->clipped) {
        cmn_report_clear(p->session->report);
        cmn_say("of %ld steps %ld were left out for NaN or Inf, %ld were clipped",
                p->step->earlier + p->step->done, skipped, o->clipped);
    }
}

void cmn_progress_tell(struct cmn_training_progress *p, const struct cmn_progress_due *due)
{
    cmn_timeline_span(CMN_SPAN_STEP, (int)cmn_step_iteration(p->step), p->step->ended, cmn_clock());
    cmn_status_wait("the comparison of the weights");
    verify(p);
    cmn_status_wait(NULL);
    if (due->last || due->regular) {
        make_row_and_trace(p, due);
    }
    if (due->last || cmn_net_training_ended(p->model->net)) {
        tell_counts(p);
    }
}

void cmn_progress_redraw(struct cmn_training_progress *p, double images_per_s)
{
    const struct cmn_session *s = p->session;

    if (s->report) {
        cmn_report_progress(s->report, cmn_step_iteration(p->step),
                            epochs(s, cmn_net_seen(p->model->net)), images_per_s);
    }
}

void cmn_progress_pending_validation(struct cmn_training_progress *p)
{
    struct cmn_session *s = p->session;
    struct cmn_net *net = p->model->net;
    struct cmn_progress_due due = {.regular = 1, .scheduled = 1};
    float *batch;

    if (!p->validation_pending) {
        return;
    }
    p->validation_pending = 0;
    batch = cmn_net_save_batch(net);
    due.validation = s->options.validate && cmn_validates(s, net);
    make_row_and_trace(p, &due);
    cmn_net_restore_batch(net, batch);
    p->step->ended = cmn_clock(); /* otherwise the validation would count as loading */
}
