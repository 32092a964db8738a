/* Extension: the report of a training on rank 0, with its rows and its progress bar
 * (report/report.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/graph_export.h"
#include "report/graph.h"
#include "report/report.h"
#include "trainer/extension.h"
#include "trainer/nonfinite_policy.h"

struct rows {
    struct cmn_session *session;
    char json[2 * CMN_TEXT]; /* name of the log file */
    char timeline[CMN_TEXT]; /* name of the trace file; "": none */
    double images_per_s;     /* of all ranks, since the last row */
};

static void *open_rows(struct cmn_step *p)
{
    struct rows *r = cmn_calloc(1, sizeof *r);

    r->session = p->session;
    return r;
}

/* Weights and checkpoints are saved by then. Ends the job if rows of the log are lost. */
static void close_rows(void *self)
{
    struct rows *r = self;
    struct cmn_report *report = r->session->report;

    r->session->report = NULL;
    if (cmn_report_close(report)) {
        cmn_fatal_reason();
    }
    free(r); /* until then the report reads the names of its files */
}

/* ---- the beginning ---- */

/* Converts images to passes over the training list. 0 if its length is not known. */
static double epochs(const struct cmn_step *p, size_t images)
{
    size_t list = p->session->train_images;

    return list ? (double)images / (double)list : 0;
}

static void draw_graph(const struct cmn_step *p)
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

static void open_report(struct rows *r, const struct cmn_step *p)
{
    struct cmn_session *s = p->session;
    struct cmn_report_plan plan = {
        .mode = (enum cmn_report_mode)s->options.report,
        .answer = s->command->answer,
        .json = r->json,
        .chart = s->options.chart,
        .tensorboard = s->options.events,
        .graph = s->options.graph,
        .timeline = r->timeline,
        .first = p->first,
        .resume = {.iteration = p->kept.row_at,
                   .epoch = epochs(p, p->kept.row_seen),
                   .same_list = p->kept.resumed},
        .total = cmn_net_last_iteration(p->model->net),
    };

    snprintf(r->json, sizeof r->json, "%s", s->options.json);
    if (!r->json[0]) {
        snprintf(r->json, sizeof r->json, "%s/%s.json", s->backup, p->model->name);
    }
    cmn_options_timeline(s->options.timeline, r->timeline);
    draw_graph(p);
    s->report = cmn_report_open(&plan);
}

static void remember_row(struct cmn_step *p)
{
    p->kept.row_at = cmn_step_iteration(p);
    p->kept.row_seen = cmn_net_seen(p->model->net);
    p->kept.row_due = 0;
}

static void make_row(struct cmn_step *p);

/* Makes the row with the validation that the run before was stopped at, if there is one. */
static void make_pending_row(struct cmn_step *p)
{
    float *batch;

    if (!p->kept.validation_pending) {
        return;
    }
    p->kept.validation_pending = 0;
    batch = cmn_net_save_batch(p->model->net);
    p->due =
        (struct cmn_due){.row = 1, .scheduled = 1, .validation = cmn_model_validates(p->model)};
    remember_row(p);
    make_row(p);
    cmn_net_restore_batch(p->model->net, batch);
    p->ended = cmn_clock(); /* otherwise the validation would count as loading */
}

static void begin(void *self, struct cmn_step *p)
{
    if (!p->kept.resumed) {
        remember_row(p);
    }
    if (p->session->topology.rank == 0) {
        open_report(self, p);
    }
    make_pending_row(p);
}

/* ---- rows ---- */

/* This counts steps, since the metrics count only images of steps whose sums have arrived. */
static double speed(const struct cmn_step *p)
{
    double images = (double)p->sums.steps * (double)cmn_feed_step_images(p->feed);

    return images / (cmn_clock() - p->sums.since);
}

static void make_row(struct cmn_step *p)
{
    struct cmn_row row = {
        .epoch = epochs(p, cmn_net_seen(p->model->net)),
        .iteration = cmn_step_iteration(p),
        .lr = p->lr,
        .images_per_s = speed(p),
        .clipped = p->model->optimizer.clipped,
    };

    CMN_EXTENSIONS(p, fill_row, p, &row);
    row.elapsed = cmn_clock() - p->kept.began;
    p->sums = (struct cmn_row_sums){.since = cmn_clock()};
    cmn_status_compute("the report");
    if (p->session->report) {
        cmn_report_row(p->session->report, &row);
    }
    free(row.rank);
    cmn_status_wait(NULL);
}

static void after_step(void *self, struct cmn_step *p)
{
    struct rows *r = self;
    long every = p->session->options.report_every;

    r->images_per_s = speed(p);
    p->kept.row_due |= p->epoch_ended || (every && cmn_step_iteration(p) % every == 0);
    /* With local SGD and double buffering a row waits until sums have arrived. */
    p->due.row = !p->kept.validation_pending &&
                 (p->due.scheduled || (p->kept.row_due && p->sums.images > 0));
    if (p->due.row) {
        remember_row(p);
    }
}

/* Says at the end of a training how many steps were discarded or clipped. */
static void tell_counts(const struct cmn_step *p)
{
    long skipped = p->nonfinite->skipped, clipped = p->model->optimizer.clipped;

    if (skipped || clipped) {
        cmn_report_clear(p->session->report);
        cmn_say("of %ld steps %ld were left out for NaN or Inf, %ld were clipped",
                p->kept.steps + p->done, skipped, clipped);
    }
}

static void report(void *self, struct cmn_step *p)
{
    (void)self;
    if (p->due.row || cmn_step_ends_training(p)) {
        make_row(p);
    }
    if (cmn_step_ends_training(p)) {
        tell_counts(p);
    }
}

static void after_report(void *self, struct cmn_step *p)
{
    const struct rows *r = self;

    if (p->session->report) {
        cmn_report_progress(p->session->report, cmn_step_iteration(p),
                            epochs(p, cmn_net_seen(p->model->net)), r->images_per_s);
    }
}

const struct cmn_extension cmn_rows_extension = {
    .name = "rows and progress",
    .open = open_rows,
    .close = close_rows,
    .begin = begin,
    .after_step = after_step,
    .report = report,
    .after_report = after_report,
};
