#define XXH_INLINE_ALL
#include "trainer/checkpointing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/reader.h"
#include "mpi/call.h"
#include "report/report.h"
#include "trainer/identity.h"
#include "trainer/lineage.h"
#include "trainer/resume.h"

int cmn_checkpointing_takes(const struct cmn_checkpointing *c)
{
    return c && c->session->options.checkpoint > 0;
}

static void report_not_written(struct cmn_checkpointing *c, long iteration, const char *reason)
{
    c->lost = iteration == cmn_step_iteration(c->step) && cmn_net_training_ended(c->model->net);
    cmn_report_clear(c->session->report);
    cmn_warn("checkpoint of iteration %ld not written: %s; %s", iteration, reason,
             c->lost ? "it was the last one"
                     : "training continues and tries again at the next one");
}

/* ---- collecting ---- */

/* Collective, blocking. Returns whether the weights of all ranks are finite. If they are not, it
 * ends the job unless cmn_nonfinite=ignore. */
static int check_finite(struct cmn_checkpointing *c)
{
    int bad = cmn_contents_check_finite(c);
    int ignore = c->session->options.nonfinite == CMN_NONFINITE_IGNORE;

    if (cmn_mpi_first_bad(bad, c->session->topology.world) < 0) {
        return 1;
    }
    if (!ignore && bad) { /* the other ranks wait until this one has ended the job */
        cmn_fatal("after iteration %ld %s: no checkpoint is taken of such a network",
                  cmn_step_iteration(c->step), cmn_reason());
    }
    if (ignore && !c->nonfinite_said) {
        cmn_report_clear(c->session->report);
        cmn_warn("after iteration %ld weights are NaN or Inf: no checkpoints are written",
                 cmn_step_iteration(c->step));
    }
    c->nonfinite_said = 1;
    return 0;
}

/* Copies the rolling statistics, which are averaged over the ranks now, to *into. */
static void keep_averages(const struct cmn_gradients *g, float **into)
{
    if (!*into) {
        *into = cmn_malloc(cmn_gradients_floats(g, CMN_STATISTIC) + 1, sizeof **into);
    }
    cmn_gradients_pack(g, CMN_STATISTIC, *into);
}

/* Collective. Writes the begin of the checkpoint, a weights file with the merged state of all
 * ranks, and keeps the averaged statistics. */
static void add_weights(struct cmn_checkpointing *c, struct cmn_snapshot *to)
{
    FILE *out = to ? cmn_snapshot_weights(to) : NULL;

    cmn_model_swap_in_averages(c->model);
    if (out) {
        cmn_net_write_weights(c->model->net, out);
    }
    keep_averages(&c->model->gradients, &c->averages);
    cmn_model_restore_own(c->model);
    if (c->model->optimizer.ema.decay > 0) {
        cmn_model_swap_in_validated(c->model);
        keep_averages(&c->model->gradients, &c->ema_averages);
        cmn_model_restore_own(c->model);
    }
}

/* Keeps what was summed since the last row of the report. */
static void fill_row(struct cmn_checkpointing *c, int row_made)
{
    const struct cmn_row_sums *sums = &c->step->sums;
    const double now[CMN_ROW_VALUES] = {
        sums->loss,     sums->right, sums->images,        sums->compute,
        sums->exchange, sums->load,  (double)sums->steps, cmn_clock() - sums->since};

    for (int i = 0; i < CMN_ROW_VALUES; i++) {
        c->row[i] = row_made ? 0 : now[i];
    }
}

static void collect(struct cmn_checkpointing *c, int row_made)
{
    const struct cmn_topology *top = &c->session->topology;
    struct cmn_snapshot *to;
    cJSON *training = NULL;

    cmn_optimizer_pause(&c->model->optimizer);
    cmn_contents_pull(c);
    if (!check_finite(c)) {
        return;
    }
    to = top->rank ? NULL : cmn_snapshot_new();
    add_weights(c, to);
    fill_row(c, row_made);
    cmn_contents_list(c, 0);
    if (to) {
        cmn_contents_refer_to_weights(c, to);
    }
    if (cmn_checkpoint_gather(c->item, c->items, to, top) ||
        (to && cmn_snapshot_describe(to, training = cmn_identity_describe(c)))) {
        report_not_written(c, c->ready_iteration, cmn_reason());
        cmn_snapshot_free(to);
        return;
    }
    c->ready = to;
    c->ready_training = training;
}

/* The row that is due is made by then, or will be: a checkpoint counts it as made. */
static void save(void *self, struct cmn_step *p)
{
    struct cmn_checkpointing *c = p->checkpointing;

    (void)self;
    if (!cmn_checkpointing_takes(c)) {
        return;
    }
    cmn_status_wait("the checkpoint");
    c->ready_iteration = cmn_step_iteration(c->step);
    c->ready_seen = cmn_net_seen(c->model->net);
    collect(c, p->due.row);
    cmn_status_wait(NULL);
}

/* ---- the training list ---- */

void cmn_checkpointing_list(struct cmn_checkpointing *c, FILE *list)
{
    static char block[1 << 16];
    XXH64_hash_t hash = 0;
    size_t n;

    if (!c) {
        return;
    }
    while ((n = fread(block, 1, sizeof block, list))) {
        hash = XXH3_64bits_withSeed(block, n, hash);
    }
    rewind(list);
    snprintf(c->list_hash, CMN_LIST_HASH, "%016" PRIx64, (uint64_t)hash);
}

/* ---- to the disk ---- */

static void report_results(struct cmn_checkpointing *c)
{
    char text[1024];
    long written, failed = cmn_writer_result(c->writer, text, sizeof text, &written);

    if (failed) {
        report_not_written(c, failed, text);
    }
    if (written >= 0 && !c->announced) {
        cmn_report_clear(c->session->report);
        cmn_tell("first checkpoint on the disk: %s/%s-%ld.checkpoint", c->session->backup,
                 c->model->name, written);
    }
    if (written >= 0 && written != c->announced) {
        c->announced = written;
        cmn_lineage_tell(c, "checkpoint", written, c->written_seen);
    }
}

void cmn_checkpointing_wait(struct cmn_checkpointing *c)
{
    cmn_status_compute("waiting for the last checkpoint to be written");
    cmn_writer_wait(c->writer);
    report_results(c);
}

/* Syncs the report, because the checkpoint counts on its rows: a power cut must not lose them and
 * keep the checkpoint. */
static void sync_report(void *session)
{
    cmn_report_sync(((struct cmn_session *)session)->report);
}

/* Passes the collected checkpoint, if there is one, to the writer's thread once the previous one is
 * on the disk, and prints what became of earlier ones. */
static void write_ready(void *self, struct cmn_step *p)
{
    struct cmn_checkpointing *c = p->checkpointing;

    (void)self;
    if (!c || !c->writer) {
        return;
    }
    if (c->ready) {
        cmn_identity_amend(c->ready_training, c);
        /* Its results are printed before those of the next one replace them. */
        cmn_checkpointing_wait(c);
        cmn_writer_before_rename(c->writer, sync_report, c->session);
        c->written_seen = c->ready_seen;
        if (cmn_writer_start(c->writer, c->ready, c->ready_iteration)) {
            report_not_written(c, c->ready_iteration, cmn_reason());
        }
        c->ready = NULL;
    }
    report_results(c);
}

static void close_checkpointing(void *self)
{
    struct cmn_step *p = self;
    struct cmn_checkpointing *c = p->checkpointing;

    p->checkpointing = NULL;
    if (!c) {
        return;
    }
    if (c->writer && cmn_checkpointing_takes(c)) {
        cmn_checkpointing_wait(c);
        if (c->resumes && !c->announced) {
            cmn_writer_prune(c->writer, (long)c->saved.iteration);
        }
    }
    cmn_writer_close(c->writer);
    p->checkpoint_lost = c->lost;
    cmn_snapshot_free(c->ready);
    cmn_checkpoint_free(c->file);
    free(c->layout);
    free(c->item);
    free(c->averages);
    free(c->ema_averages);
    free(c);
}

static void begin(void *self, struct cmn_step *p)
{
    (void)self;
    cmn_resume_begin(p->checkpointing);
}

static void after_step(void *self, struct cmn_step *p)
{
    const struct cmn_checkpointing *c = p->checkpointing;

    (void)self;
    p->due.checkpoint =
        cmn_checkpointing_takes(c) && cmn_step_iteration(p) % p->session->options.checkpoint == 0;
}

const struct cmn_extension cmn_checkpoint_extension = {
    .name = "checkpoints",
    .close = close_checkpointing,
    .begin = begin,
    .after_step = after_step,
    .save = save,
    .after_report = write_ready,
};
