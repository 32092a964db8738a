/* When checkpoints of a training are taken, and from what. */
#define XXH_INLINE_ALL
#include "trainer/checkpointing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fatal.h"
#include "base/job_stderr.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/darknet_net.h"
#include "mpi/call.h"
#include "report/report.h"

static int takes(const struct cmn_trainer *t)
{
    return t->checkpoint && t->checkpoint->looked && t->session->options.checkpoint > 0;
}

static long iteration_of(const struct cmn_trainer *t)
{
    return t->first_step + t->steps;
}

int cmn_trainer_checkpoint_due(const struct cmn_trainer *t)
{
    return takes(t) && iteration_of(t) % t->session->options.checkpoint == 0;
}

int cmn_trainer_checkpoints_continue(const struct cmn_trainer *t)
{
    return takes(t) && t->started && !cmn_trainer_ends(t);
}

static void say_not_written(const struct cmn_trainer *t, long iteration, const char *reason)
{
    cmn_report_clear(t->report);
    cmn_warn("checkpoint of iteration %ld not written: %s; training continues and tries again "
             "at the next one",
             iteration, reason);
}

/* ---- what goes into it ---- */

/* Collective. Whether no rank holds NaN or Inf; ends the job where they are not to be ignored. */
static int is_finite(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    const char *what = cmn_trainer_not_finite(t);

    if (cmn_mpi_first_bad(what != NULL, t->session->topology.world) < 0) {
        return 1;
    }
    if (what && t->session->options.nonfinite != CMN_NONFINITE_IGNORE) {
        /* The others wait for this one's end. */
        cmn_fatal("after iteration %ld %s holds NaN or Inf: no checkpoint is taken of such a "
                  "network",
                  iteration_of(t), what);
    }
    if (!c->not_finite && t->session->options.nonfinite == CMN_NONFINITE_IGNORE) {
        cmn_report_clear(t->report);
        cmn_warn("after iteration %ld weights are NaN or Inf: no checkpoints are taken of them",
                 iteration_of(t));
    }
    c->not_finite = 1;
    return 0;
}

/* What Darknet reads as weights: rank 0 writes what all ranks together have. */
static void add_weights(struct cmn_trainer *t, struct cmn_snapshot *to)
{
    FILE *out = to ? cmn_snapshot_weights(to) : NULL;

    cmn_trainer_swap_in_averages(t);
    if (out) {
        cmn_net_write_weights(cmn_net_of(t->net), out);
    }
    cmn_trainer_keep_averages(t);
    cmn_trainer_restore_own(t);
}

static void fill_row(struct cmn_trainer *t, int row_made)
{
    const struct cmn_row_sums *sums = &t->sums;
    double *row = t->checkpoint->row;
    const double now[CMN_ROW_VALUES] = {
        sums->loss,     sums->right, sums->images,        sums->compute,
        sums->exchange, sums->load,  (double)sums->steps, cmn_clock() - sums->since};

    for (int i = 0; i < CMN_ROW_VALUES; i++) {
        row[i] = row_made ? 0 : now[i];
    }
}

static void collect(struct cmn_trainer *t, int row_made)
{
    struct cmn_checkpointing *c = t->checkpoint;
    const struct cmn_topology *top = &t->session->topology;
    struct cmn_snapshot *to;

    cmn_optimizer_pause(&t->optimizer);
    cmn_trainer_pull_tensors(t);
    if (!is_finite(t)) {
        return;
    }
    to = top->rank ? NULL : cmn_snapshot_new();
    add_weights(t, to);
    fill_row(t, row_made);
    cmn_trainer_items_to_write(t);
    if (cmn_checkpoint_gather(c->item, c->items, to, top) ||
        (to && cmn_snapshot_describe(to, cmn_trainer_describe(t, row_made)))) {
        say_not_written(t, c->ready_iteration, cmn_reason());
        cmn_snapshot_free(to);
        return;
    }
    c->ready = to;
}

int cmn_trainer_collect(struct cmn_trainer *t, int row_made)
{
    if (!takes(t)) {
        return 0;
    }
    cmn_status_wait("the checkpoint");
    t->checkpoint->ready_iteration = iteration_of(t);
    collect(t, row_made);
    cmn_status_wait(NULL);
    return 0;
}

/* ---- the training list ---- */

static void hash_list(FILE *list, char text[CMN_LIST_HASH])
{
    static char block[1 << 16];
    XXH64_hash_t hash = 0;
    size_t n;

    while ((n = fread(block, 1, sizeof block, list))) {
        hash = XXH3_64bits_withSeed(block, n, hash);
    }
    rewind(list);
    snprintf(text, CMN_LIST_HASH, "%016" PRIx64, (uint64_t)hash);
}

void cmn_trainer_list(struct cmn_trainer *t, FILE *list)
{
    if (t->checkpoint) {
        hash_list(list, t->checkpoint->list_hash);
    }
}

/* ---- to the disk ---- */

static void tell_results(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    char text[1024];
    long written, failed = cmn_writer_result(c->writer, text, sizeof text, &written);

    if (failed) {
        say_not_written(t, failed, text);
    }
    if (written >= 0 && !c->announced) {
        c->announced = 1;
        cmn_report_clear(t->report);
        cmn_warn("first checkpoint on the disk: %s/%s-%ld.checkpoint", t->session->backup, t->name,
                 written);
        cmn_job_event("checkpoint", written, "");
    }
}

int cmn_trainer_checkpoint(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;

    if (!c || !c->writer) {
        return 0;
    }
    if (c->ready) {
        cmn_status_compute("waiting for the last checkpoint to be written");
        cmn_writer_wait(c->writer);
        tell_results(t); /* before the next one's take their place */
        if (cmn_writer_start(c->writer, c->ready, c->ready_iteration)) {
            say_not_written(t, t->checkpoint->ready_iteration, cmn_reason());
        }
        c->ready = NULL;
    }
    tell_results(t);
    return 0;
}

void cmn_trainer_checkpoint_close(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;

    if (!c) {
        return;
    }
    if (c->writer) {
        cmn_status_compute("waiting for the last checkpoint to be written");
        cmn_writer_wait(c->writer);
        tell_results(t);
        cmn_writer_close(c->writer);
    }
    cmn_snapshot_free(c->ready);
    cmn_checkpoint_free(c->file);
    cJSON_Delete(c->saved);
    free(c->layout);
    free(c->item);
    free(c->averages);
    free(c);
    t->checkpoint = NULL;
}
