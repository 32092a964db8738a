/* After a step: rows of the report, validation, comparison of the weights, the end. */
#include "trainer/checkpointing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "base/job_stderr.h"
#include "base/log.h"
#include "engine/graph_export.h"
#include "engine/replicas.h"
#include "report/graph.h"
#include "report/report.h"
#include "report/trace.h"
#include "base/timeline.h"
#include "base/status.h"

/* Spans of a step, about: layers both ways, pieces and buckets, waiting for each rank of the node, the rest. */
static size_t spans_of_step(const struct cmn_trainer *t)
{
    size_t layers = (size_t)t->net->n, passes = (size_t)t->net->subdivisions;
    size_t ranks = (size_t)t->session->topology.intra_size;

    return 2 * layers * passes + 4 * (size_t)t->gradients.tensors + 8 * ranks + 16;
}

static int draw_graph(const struct cmn_trainer *t)
{
    const char *file = t->session->options.graph;
    struct cmn_graph graph;
    int result;

    if (!file[0]) {
        return 0;
    }
    graph = cmn_export_graph(cmn_net_of(t->net), &t->gradients, t->name);
    result = cmn_graph_write(&graph, file);
    cmn_graph_free(&graph);
    return result;
}

/* Images in passes over the list; 0: its length is not known. */
static double epochs(const struct cmn_trainer *t, size_t images)
{
    size_t list = t->session->train_images;

    return list ? (double)images / (double)list : 0;
}

int cmn_trainer_report(struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    struct cmn_report_plan plan = {
        .mode = (enum cmn_report_mode)s->options.report,
        .answer = s->command->answer,
        .name = t->name,
        .json = t->json,
        .csv = s->options.csv,
        .chart = s->options.chart,
        .first = t->first_step,
        .resume = {.iteration = t->row_at,
                   .epoch = epochs(t, t->row_seen),
                   .same_list = t->checkpoint && t->checkpoint->resumed},
        .total = t->net->max_batches,
    };

    snprintf(t->json, sizeof t->json, "%s", s->options.json);
    if (!t->json[0]) {
        snprintf(t->json, sizeof t->json, "%s/%s.json", s->backup, t->name);
    }
    if (draw_graph(t)) {
        return -1;
    }
    t->report = cmn_report_open(&plan);
    return 0;
}

int cmn_trainer_timeline(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;
    struct cmn_trace_plan plan = {
        .topology = &s->topology,
        .steps = s->options.timeline_steps,
        .spans = spans_of_step(t),
        .about = {.name = s->options.timeline, .layers = t->net->n, .began = t->began},
    };

    if (!s->options.timeline[0]) {
        return 0;
    }
    t->layer = calloc((size_t)t->net->n, sizeof *t->layer);
    if (!t->layer) {
        return cmn_fail("timeline: out of memory");
    }
    for (int i = 0; i < t->net->n; i++) {
        t->layer[i] = cmn_net_layer_name(cmn_net_of(t->net), i);
    }
    plan.about.layer = t->layer;
    t->trace = cmn_trace_open(&plan);
    return 0;
}

int cmn_trainer_saved(struct cmn_trainer *t)
{
    if (cmn_trainer_restore_own(t)) {
        return -1;
    }
    t->left = cmn_clock(); /* or it would count as loading */
    cmn_status_compute("loading images");
    cmn_timeline_span(CMN_SPAN_SAVE, -1, t->save_began, t->left);
    return 0;
}

/* Images a second of all ranks since the last row. The metrics know only those of steps whose sums have arrived. */
static double speed(const struct cmn_trainer *t, double seconds)
{
    return (double)t->sums.steps * t->total * t->net->subdivisions / seconds;
}

/* What each rank spent its time with goes to rank 0: *all, which the caller frees, and NULL elsewhere. */
static int gather_times(const struct cmn_trainer *t, struct cmn_rank_times **all)
{
    const struct cmn_topology *top = &t->session->topology;
    struct cmn_rank_times mine = {
        .compute = t->sums.compute, .load = t->sums.load, .wait = t->sums.exchange};

    memcpy(mine.host, top->host, sizeof mine.host);
    *all = top->rank ? NULL : calloc((size_t)top->size, sizeof **all);
    if (!top->rank && !*all) {
        return cmn_fail("report: out of memory");
    }
    cmn_status_wait("the report of the ranks");
    if (cmn_mpi_check(
            MPI_Gather(&mine, sizeof mine, MPI_BYTE, *all, sizeof mine, MPI_BYTE, 0, top->world),
            "MPI_Gather")) {
        return -1;
    }
    cmn_status_wait(NULL);
    return 0;
}

static int make_row(struct cmn_trainer *t, int with_validation)
{
    struct cmn_session *s = t->session;
    struct cmn_row_sums *sums = &t->sums;
    double time = cmn_clock();
    double passed = time - sums->since;
    double images = sums->images;
    struct cmn_row row = {
        .epoch = epochs(t, *t->net->seen),
        .iteration = t->first_step + t->steps,
        .loss = images > 0 ? sums->loss / images : -1,
        .accuracy = images > 0 && cmn_trainer_classifies(t) ? sums->right / images : -1,
        .validation_loss = -1,
        .validation_accuracy = -1,
        .validation_map = -1,
        .validation_map95 = -1,
        .lr = t->lr,
        .images_per_s = speed(t, passed),
        .compute = sums->compute / passed,
        .exchange = sums->exchange / passed,
        .load = sums->load / passed,
        .steps = sums->steps,
        .skipped = t->skipped,
    };
    struct cmn_rank_times *times = NULL;
    int result = -1;

    if (gather_times(t, &times) || (with_validation && cmn_trainer_validate(t, &row))) {
        goto out;
    }
    row.rank = times;
    row.ranks = s->topology.size;
    row.elapsed = cmn_clock() - t->began;
    memset(sums, 0, sizeof *sums);
    sums->since = cmn_clock();
    cmn_status_compute("the report");
    if (t->report) {
        cmn_report_row(t->report, &row);
    }
    result = 0;
out:
    free(times);
    return result;
}

/* One rank's request to stop came with the gradients, or with the mean that was made for saving, so all ranks see it in the
 * same step. Every trainer of Darknet ends its loop, and saves, when max_batches is reached. */
static void notice_stop(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;

    if (s->stop_signal || (t->interrupts <= 0 && t->terminations <= 0)) {
        return;
    }
    s->stop_signal = t->interrupts > 0 ? SIGINT : SIGTERM;
    t->net->max_batches = (int)get_current_batch(t->net);
    cmn_report_clear(t->report);
    cmn_warn("asked to stop (signal %d): the training ends after iteration %ld, with its weights "
             "saved",
             s->stop_signal, t->first_step + t->steps);
    if (s->topology.rank == 0) {
        cmn_job_event("stop", t->first_step + t->steps, ""); /* cmn-run asks until it gets this */
    }
}

/* Darknet's own update, if there was one. */
static void note_update(struct cmn_trainer *t)
{
    double time = cmn_clock();

    t->sums.compute += time - t->pass_began;
    if (!t->fused) {
        cmn_timeline_span(CMN_SPAN_UPDATE, -1, t->pass_began, time);
    }
}

int cmn_trainer_ends(const struct cmn_trainer *t)
{
    return t->net->max_batches && get_current_batch(t->net) >= (size_t)t->net->max_batches;
}

/* Compares the weights, when that is due and as soon as the ranks should have the same. */
static int verify(struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    long every = s->options.verify;
    struct cmn_nonfinite bad;
    char what[160];

    t->verify_due |= every && s->communicator->sums && (t->first_step + t->steps) % every == 0;
    if (!t->verify_due || !cmn_optimizer_synchronised(&t->optimizer)) {
        return 0;
    }
    t->verify_due = 0;
    if (cmn_replicas_verify(&t->gradients, cmn_net_of(t->net), &s->topology, &bad)) {
        return cmn_fail_in("after iteration %ld", t->first_step + t->steps);
    }
    if (bad.name && s->options.nonfinite != CMN_NONFINITE_IGNORE) {
        cmn_nonfinite_say(cmn_net_of(t->net), &bad, what, sizeof what);
        return cmn_fail("after iteration %ld: a weight is no number any more: %s",
                        t->first_step + t->steps, what);
    }
    return 0;
}

/* The row of this iteration, and the timeline. `regular`: it would be there, too, if the run did not end here. */
static int tell(struct cmn_trainer *t, int with_validation, int regular, int last)
{
    if (regular) {
        t->row_due = 0;
        t->row_at = t->first_step + t->steps;
        t->row_seen = *t->net->seen;
    }
    if (make_row(t, with_validation)) {
        return -1;
    }
    cmn_status_wait("the timeline of the ranks");
    if (t->trace) {
        cmn_trace_write(t->trace, last);
    }
    cmn_status_wait(NULL);
    return 0;
}

int cmn_trainer_pending_validation(struct cmn_trainer *t)
{
    const struct network *net = t->net;
    size_t inputs = (size_t)net->inputs * (size_t)net->batch;
    size_t truths = (size_t)net->truths * (size_t)net->batch;
    float *kept;

    if (!t->validation_owed) {
        return 0;
    }
    t->validation_owed = 0;
    /* The trainer has handed over the first images, and a validation may resize the network. */
    kept = malloc((inputs + truths + 1) * sizeof *kept);
    if (!kept) {
        return cmn_fail("out of memory");
    }
    memcpy(kept, net->input, inputs * sizeof *kept);
    memcpy(kept + inputs, net->truth, truths * sizeof *kept);
    if (tell(t, t->session->options.validate && cmn_trainer_validates(t), 1, 0)) {
        free(kept);
        return -1;
    }
    memcpy(net->input, kept, inputs * sizeof *kept);
    memcpy(net->truth, kept + inputs, truths * sizeof *kept);
    free(kept);
    t->left = cmn_clock(); /* or it would count as loading */
    return 0;
}

/* What a checkpoint holds is that of a run which does not end here: it is collected before the ranks settle. */
static int settle(struct cmn_trainer *t, int last, int regular)
{
    if (last && (cmn_trainer_collect(t, regular) || cmn_trainer_synchronise(t))) {
        return -1;
    }
    cmn_timeline_span(CMN_SPAN_STEP, (int)(t->first_step + t->steps), t->left, cmn_clock());
    cmn_status_wait("the comparison of the weights");
    if (verify(t)) {
        return -1;
    }
    cmn_status_wait(NULL);
    return 0;
}

/* An update happened. */
static int step_done(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;
    const struct cmn_options *o = &s->options;
    long epoch = s->train_images ? (long)(*t->net->seen / s->train_images) : 0;
    int epoch_ended = epoch > t->epoch;
    int validation_due = o->validate && epoch / o->validate > t->epoch / o->validate;
    int last, regular;
    double images_per_s;

    note_update(t);
    t->steps++;
    t->sums.steps++;
    t->epoch = epoch;
    cmn_status_wait("the average of the weights");
    /* Darknet saves at the end of an epoch, so the ranks meet there anyway: before the row, which then knows the loss. */
    if (cmn_trainer_average(t, epoch_ended)) {
        return -1;
    }
    cmn_status_wait(NULL);
    notice_stop(t);
    last = cmn_trainer_ends(t);
    images_per_s = speed(t, cmn_clock() - t->sums.since);
    t->row_due |=
        epoch_ended || (o->report_every && (t->first_step + t->steps) % o->report_every == 0);
    validation_due = validation_due && cmn_trainer_validates(t);
    /* Who asks to stop is not kept waiting for it: the run that goes on makes this row. */
    t->validation_owed = validation_due && s->stop_signal;
    /* With local steps and double buffering a row waits for sums of which it can tell. */
    regular = !t->validation_owed && (validation_due || (t->row_due && t->sums.images > 0));
    if (settle(t, last, regular)) {
        return -1;
    }
    validation_due |= last && o->validate && cmn_trainer_validates(t);
    if ((last || regular) && tell(t, validation_due && !s->stop_signal, regular, last)) {
        return -1;
    }
    if ((!last && cmn_trainer_checkpoint_due(t) && cmn_trainer_collect(t, 0)) ||
        cmn_trainer_checkpoint(t)) {
        return -1;
    }
    if (t->report) {
        cmn_report_progress(t->report, t->first_step + t->steps, epochs(t, *t->net->seen),
                            images_per_s);
    }
    t->left = cmn_clock();
    return 0;
}

int cmn_trainer_step_done(struct cmn_trainer *t)
{
    if (!t->stepped) {
        return 0;
    }
    t->stepped = 0;
    return step_done(t);
}

int cmn_trainer_untrained(struct cmn_trainer *t, const char *file)
{
    if (!t->attached || t->started || t->session->command->does != CMN_TRAINS) {
        return 0;
    }
    if (cmn_trainer_newer(t, file, *t->net->seen)) {
        return -1;
    }
    cmn_trainer_tell_origin(t);
    cmn_say("nothing to train: iteration %zu of %d is reached already; raise max_batches or "
            "cmn_epochs, or start over with -clear",
            get_current_batch(t->net), t->net->max_batches);
    return 0;
}
