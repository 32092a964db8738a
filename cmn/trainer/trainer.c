#include "trainer/trainer.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/debug.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/stop_request.h"
#include "base/timeline.h"
#include "data/scatter.h"
#include "engine/convolution.h"
#include "engine/inference.h"
#include "engine/replicas.h"
#include "report/report.h"
#include "trainer/extensions.h"
#include "trainer/forecast.h"
#include "trainer/identity.h"
#include "trainer/nonfinite_policy.h"
#include "trainer/resume.h"
#include "trainer/weights_file.h"

/* ---- beginning and end ---- */

struct cmn_trainer *cmn_trainer_open(struct cmn_session *s, struct cmn_net *net, int batch,
                                     int micro_batches)
{
    struct cmn_trainer *t = cmn_calloc(1, sizeof *t);

    t->session = s;
    t->batch = batch;
    t->micro_batches = micro_batches;
    t->program = cmn_forecast_resident();
    t->model.session = s;
    t->model.net = net;
    t->step = (struct cmn_step){.session = s, .model = &t->model, .feed = &t->feed};
    cmn_feed_open(&t->feed, s, net, batch, micro_batches);
    t->allocated = cmn_plan_allocated();
    return t;
}

void cmn_trainer_attach(struct cmn_trainer *t, struct cmn_net *net, const char *cfg)
{
    t->model.net = t->feed.net = net;
    t->cfg = cmn_strdup(cfg);
    t->plan = cmn_plan_net(net, t->allocated);
    cmn_model_attach(&t->model, &t->feed, cfg);
    t->plan.flat = t->model.gradients.exchange.block.n + t->model.gradients.exchange.metrics.n;
    cmn_extensions_open(&t->step);
    cmn_trainer_resume(t);
}

/* Darknet writes the names of its files of weights, BACKUP/NAME_12345.weights, into 256 bytes. */
static void check_name(const struct cmn_session *s, const char *name)
{
    enum { MOST = 255 - 20 };

    if (strlen(s->backup) + strlen(name) > MOST) {
        cmn_fatal("backup=%s in the .data file: with the cfg's name it may have %d bytes, as long "
                  "as Darknet's names of files may be, and has %zu: give a shorter one",
                  s->backup, MOST, strlen(s->backup) + strlen(name));
    }
}

/* Rank 0 warns of a file of names that does not fit the network: a training does without names, and
 * what comes after it does not. */
static void check_names(const struct cmn_session *s, int classes)
{
    FILE *file;
    char line[256];
    int lines = 0, n = 0;

    if (s->topology.rank || !s->names[0] || s->command->answer != CMN_BOXES) {
        return;
    }
    file = fopen(s->names, "re");
    if (!file) {
        cmn_warn("names=%s in the .data file: %s", s->names, strerror(errno));
        return;
    }
    while (fgets(line, sizeof line, file)) { /* blank lines at the end do not count */
        lines++;
        n = strspn(line, " \t\r\n") < strlen(line) ? lines : n;
    }
    fclose(file);
    if (n < classes) {
        cmn_warn(CMN_TOO_FEW_NAMES, s->names, n, "names", classes);
    } else if (n > classes) {
        cmn_warn("%s: %d lines for classes=%d", s->names, n, classes);
    }
}

void cmn_trainer_resume(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;

    if (t->model.attached && s->backup[0] && s->command->does == CMN_TRAINS &&
        !t->step.checkpointing) {
        check_name(s, t->model.name);
        check_names(s, cmn_net_detected_classes(t->model.net));
        t->step.checkpointing = cmn_resume(&t->step);
    }
}

void cmn_trainer_list(struct cmn_trainer *t, FILE *list)
{
    cmn_feed_set_epochs(&t->feed);
    if (cmn_best_ended(&t->step.kept.best, &t->session->options)) {
        cmn_net_stop_after_this_iteration(t->model.net);
    }
    cmn_checkpointing_list(t->step.checkpointing, list);
}

/* The weights are already saved when this ends the job. */
static void require_last_checkpoint(int lost)
{
    if (lost) {
        cmn_fatal("the last checkpoint is not written: the weights are saved, and a resume begins "
                  "before them");
    }
}

void cmn_trainer_flush(struct cmn_trainer *t)
{
    cmn_extensions_close(&t->step);
    require_last_checkpoint(t->step.checkpoint_lost);
}

void cmn_trainer_close(struct cmn_trainer *t)
{
    int lost;

    cmn_model_detach(&t->model);
    cmn_extensions_close(&t->step);
    lost = t->step.checkpoint_lost;
    cmn_feed_close(&t->feed);
    free(t->cfg);
    free(t);
    require_last_checkpoint(lost);
}

/* ---- the first step ---- */

static int uses_onednn(const struct cmn_trainer *t)
{
    return cmn_net_convolves(t->model.net) && t->session->topology.device < 0 &&
           !cmn_debug_word("ONEDNN") && cmn_convolution_kernels()[0];
}

/* Prints the first line of a training, and what the options do not change. */
static void introduce(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    const struct cmn_topology *top = &s->topology;
    const struct cmn_feed *f = &t->feed;
    char how[512];

    cmn_optimizer_describe(&t->model.optimizer, how, sizeof how);
    cmn_say(
        "%d rank%s on %d node%s%s, communicator %s (%s), %s, batch %zu per rank%s, global batch "
        "%zu, scatter %s, seed %lu",
        top->size, top->size == 1 ? "" : "s", top->inter_size, top->inter_size == 1 ? "" : "s",
        top->device < 0 ? "" : ", on GPUs", s->communicator->name, s->communicator_why, how,
        cmn_feed_own_images(f),
        cmn_feed_own_images(f) * (size_t)top->size == cmn_feed_step_images(f) ? ""
        : f->share.whole ? " (rank 0; parts differ by a micro-batch)"
                         : " (rank 0; parts differ by one)",
        cmn_feed_step_images(f), cmn_options_word(&s->options, "cmn_scatter"), s->seed);
    if (cmn_feed_exact(f) && cmn_feed_exact(f) < top->size) {
        cmn_say("cmn_exact=on: %d of %d ranks are idle, for a step has %d micro-batch%s: raise "
                "subdivisions in the cfg, or lower the number of ranks",
                top->size - cmn_feed_exact(f), top->size, cmn_feed_exact(f),
                cmn_feed_exact(f) == 1 ? "" : "es");
    }
    if (s->options.balance == CMN_BALANCE_AUTO && top->size > 1 && cmn_feed_exact(f) &&
        !f->balance.on) {
        cmn_say("cmn_balance=auto changes nothing: %d ranks have %d micro-batch%s: raise "
                "subdivisions in the cfg, or lower the number of ranks",
                top->size, cmn_feed_exact(f), cmn_feed_exact(f) == 1 ? "" : "es");
    }
    if (cmn_feed_exact(f) && s->blas_threads > 1 && uses_onednn(t)) {
        cmn_say("cmn_exact=on: oneDNN's convolutions are computed with one thread on each rank, "
                "and not %d: start a rank for each core",
                s->blas_threads);
    }
    if (!s->communicator->sums && top->size > 1) {
        cmn_say("communicator %s exchanges nothing: the result of this training is worthless",
                s->communicator->name);
    }
    if (s->options.validate && !s->valid_list[0] && s->command->answer != CMN_NO_ANSWER) {
        cmn_say("no `valid` list in the .data file: training without validation");
    }
}

/* An estimate is not a reason to refuse a training. But if it is right, the system will kill the
 * training without a message, so this one warns. */
static void warn_of_memory(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    const struct cmn_memory_question q = {
        .session = s,
        .plan = &t->plan,
        .optimizer = &t->model.optimizer,
        .cfg = t->cfg,
        .batch = t->batch * t->micro_batches,
        .subdivisions = t->micro_batches,
        .program = t->program,
        .lines = (double)s->train_images + (double)s->valid.images + (double)s->boxes.images,
    };
    struct cmn_memory_answer a = cmn_forecast_memory(&q);

    if (a.fault[0]) {
        cmn_warn("%s", a.fault);
    }
}

static void start(struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    const struct cmn_net *net = t->model.net;

    if (s->options.epochs && !s->train_images) {
        cmn_fatal("cmn_epochs=%ld: the length of the training list is not known; set max_batches",
                  s->options.epochs);
    }
    if (cmn_model_validates(&t->model)) {
        if (s->valid.images) {
            cmn_scatter_require(s->valid.paths, s->valid.images, &s->topology);
        } else {
            cmn_scatter_require(s->boxes.paths, s->boxes.images, &s->topology);
            cmn_boxes_check(net, &s->boxes, &s->topology);
        }
    } else if (s->options.validate && s->options.patience) {
        cmn_fatal("cmn_patience: this training validates nothing, for it has no `valid` list in "
                  "the .data file, or a command without validation: remove the key, or add that");
    }
    t->started = 1;
    warn_of_memory(t);
    cmn_stop_catch();
    introduce(t);
    cmn_feed_tell_rate(&t->feed);
    cmn_step_begin(&t->step);
}

int cmn_trainer_before_micro_batch(struct cmn_trainer *t)
{
    if (!t->model.attached) {
        cmn_fatal("the network was not loaded by load_network(), which compares it over the ranks: "
                  "load it so");
    }
    if (!t->started) {
        start(t);
    }
    return cmn_step_before_micro_batch(&t->step);
}

/* ---- saving ---- */

/* Says on rank 0 why the training has ended before its first step. */
static void say_untrained(const struct cmn_trainer *t, const char *file)
{
    const struct cmn_net *net = t->model.net;

    if (!t->model.attached || t->started || t->session->command->does != CMN_TRAINS) {
        return;
    }
    cmn_resume_protect_newer(t->step.checkpointing, file);
    if (t->step.checkpointing) {
        cmn_identity_tell_origin(t->step.checkpointing);
    }
    if (cmn_best_ended(&t->step.kept.best, &t->session->options)) {
        cmn_say("nothing to train: cmn_patience=%ld has ended this training after iteration %zu; "
                "raise it, or start over with -clear",
                t->session->options.patience, cmn_net_iteration(net));
        return;
    }
    cmn_say("nothing to train: iteration %zu of %d is reached already; raise max_batches or "
            "cmn_epochs, or start over with -clear",
            cmn_net_iteration(net), cmn_net_last_iteration(net));
    if (!t->step.kept.resumed) { /* what is there was trained, and what comes now was not */
        cmn_weights_file_keep_newer(file, 0);
    }
}

/* Returns whether the training continues after weights could not be saved, because its checkpoints
 * keep them. If it does not, the last checkpoint is on the disk when this returns. */
static int continues(const struct cmn_trainer *t)
{
    if (!cmn_checkpointing_takes(t->step.checkpointing)) {
        return 0;
    }
    if (t->started && !cmn_net_training_ended(t->model.net)) {
        return 1;
    }
    cmn_checkpointing_wait(t->step.checkpointing);
    return 0;
}

/* Where this training overwrites weights, those that have seen more images are another one's. */
static void keep_newer(const struct cmn_trainer *t, const char *file)
{
    if (t->started && !t->session->starts_over) {
        cmn_weights_file_keep_newer(file, cmn_net_seen(t->model.net));
    }
}

/* Called on rank 0 while the network has the average of the weights. */
static void write_average(struct cmn_trainer *t)
{
    struct cmn_model *m = &t->model;
    char file[PATH_MAX];
    const char *why;

    snprintf(file, sizeof file, "%s/%s_ema.weights", t->session->backup, m->name);
    if (!t->started && !access(file, F_OK)) {
        return; /* nothing has been trained */
    }
    keep_newer(t, file);
    cmn_nonfinite_check_weights(t->step.nonfinite);
    cmn_status_compute("writing the average of the weights");
    if (!cmn_weights_file_write(m, file)) {
        return;
    }
    why = strerror(errno);
    if (!continues(t)) {
        cmn_fatal("the average of the weights is not written to %s: %s", file, why);
    }
    cmn_warn("the average of the weights is not written to %s: %s; training continues, and its "
             "checkpoints keep it",
             file, why);
}

/* Collective. Called when Darknet saves the weights: writes cmn_ema's average to its own file. */
static void save_average(struct cmn_trainer *t)
{
    if (!t->model.attached || !(t->model.optimizer.ema.decay > 0) || !t->session->backup[0]) {
        return;
    }
    cmn_model_swap_in_validated(&t->model);
    if (t->session->topology.rank == 0) {
        write_average(t);
    }
    cmn_model_restore_own(&t->model);
}

int cmn_trainer_before_save(struct cmn_trainer *t, const char *file)
{
    if (cmn_best_owns(&t->model, file)) {
        return 0;
    }
    cmn_nonfinite_complete(t->step.nonfinite);
    cmn_report_clear(t->session->report);
    t->save_began = cmn_clock();
    cmn_status_wait("the averages that are made for saving");
    if (cmn_best_is(&t->model, file)) {
        /* AlexeyAB's -map found these weights to be the best */
        cmn_model_swap_in_validated(&t->model);
    } else {
        save_average(t);
        cmn_model_swap_in_averages(&t->model);
    }
    cmn_status_wait(NULL);
    if (t->session->topology.rank) {
        cmn_trainer_after_save(t);
        return 0;
    }
    say_untrained(t, file);
    keep_newer(t, file);
    cmn_nonfinite_check_weights(t->step.nonfinite);
    cmn_status_compute("writing weights");
    return 1;
}

void cmn_trainer_after_save(struct cmn_trainer *t)
{
    cmn_model_restore_own(&t->model);
    t->step.ended = cmn_clock(); /* otherwise saving would count as loading */
    cmn_status_compute("loading images");
    cmn_timeline_span(CMN_SPAN_SAVE, -1, t->save_began, t->step.ended);
}

int cmn_trainer_save_failed(struct cmn_trainer *t, const char *file, int reason)
{
    if (!continues(t)) {
        return 0;
    }
    cmn_report_clear(t->session->report);
    cmn_warn(
        "weights not written to %s: %s; training continues, and its checkpoints keep the weights",
        file, strerror(reason));
    cmn_trainer_after_save(t);
    return 1;
}
