#include "trainer/identity.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/job_stderr.h"
#include "base/log.h"
#include "checkpoint/cfg_changes.h"
#include "checkpoint/reader.h"

/* Keys that decide what the tensors mean, or which images come next. */
static const char *const keys[] = {"cmn_batch",           "cmn_scatter",  "cmn_double_buffering",
                                   "cmn_local_steps",     "cmn_compress", "cmn_powersgd_rank",
                                   "cmn_allreduce_dtype", "cmn_sync_bn"};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* What decides who sends what. */
static const char *const places[] = {"nodes", "communicator", "cmn_intra", "gpu"};
enum { PLACES = sizeof places / sizeof places[0] };

/* ---- written ---- */

/* Values of different kinds are compared, and shown, as texts. */
static void add(cJSON *o, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(cJSON *o, const char *key, const char *format, ...)
{
    char value[CMN_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    cJSON_AddStringToObject(o, key, value);
}

static void add_key(cJSON *o, const struct cmn_checkpointing *c, const char *key)
{
    char value[CMN_TEXT];

    cmn_options_value(&c->session->options, key, value, sizeof value);
    cJSON_AddStringToObject(o, key, value);
}

/* Images of a step as the cfg says it: of all ranks, or of each. */
static size_t images_of_cfg(const struct cmn_checkpointing *c)
{
    size_t all = cmn_feed_step_images(c->step->feed);

    return c->session->options.batch == CMN_BATCH_GLOBAL ? all
                                                         : all / (size_t)c->session->topology.size;
}

static void add_identity(cJSON *o, const struct cmn_checkpointing *c)
{
    const struct cmn_session *s = c->session;
    const struct cmn_topology *top = &s->topology;

    add(o, "program", "darknet-cmn %s", CMN_VERSION);
    add(o, "command", "%s", cmn_command_name(s->command));
    add(o, "cfg", "%s", c->model->cfg);
    add(o, "ranks", "%d", top->size);
    add(o, "nodes", "%s", c->places);
    add(o, "communicator", "%s", c->model->optimizer.communicator.name);
    add(o, "gpu", "%d", top->device >= 0);
    add_key(o, c, "cmn_intra");
    add(o, "seed", "%lu", s->seed);
    add(o, "images", "%zu", images_of_cfg(c));
    add(o, "list_images", "%zu", s->train_images);
    add(o, "list_hash", "%s", c->list_hash);
    for (int i = 0; i < KEYS; i++) {
        add_key(o, c, keys[i]);
    }
    /* LARS keeps it apart as well. */
    add(o, "momentum", "%s",
        c->model->optimizer.policy->own_velocity ? "apart" : "with the gradients");
    add(o, "weights", "%s",
        cmn_optimizer_replicates(&c->model->optimizer) ? "equal" : "each rank's own");
}

static void add_progress(cJSON *o, const struct cmn_checkpointing *c, int row_made)
{
    const struct cmn_net *net = c->model->net;
    const struct cmn_net_size size = cmn_net_size(net);
    long iteration = cmn_step_iteration(c->step);
    const struct {
        const char *key;
        double value;
    } number[] = {
        {"iteration", (double)iteration},
        {"seen", (double)cmn_net_seen(net)},
        {"updates", cmn_net_updates(net)},
        {"step_images", (double)cmn_feed_step_images(c->step->feed)},
        {"momentum_copies", cmn_optimizer_momentum(&c->model->optimizer).copies},
        {"steps", (double)(c->step->earlier + c->step->done)},
        {"width", size.width},
        {"height", size.height},
        {"row_at", (double)(row_made ? iteration : c->progress->row_at)},
        {"row_seen", (double)(row_made ? cmn_net_seen(net) : c->progress->row_seen)},
        {"row_due", row_made ? 0 : c->progress->row_due},
        {"verify_due", c->progress->verify_due},
        {"validation_pending", c->progress->validation_pending},
        {"lr", (double)c->step->lr},
        {"skipped", (double)c->step->nonfinite.skipped},
        {"elapsed", cmn_clock() - c->progress->began},
    };

    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        cJSON_AddNumberToObject(o, number[i].key, number[i].value);
    }
}

/* cJSON leaves out what it has no memory for; then a member is missing. */
cJSON *cmn_identity_describe(const struct cmn_checkpointing *c, int row_made)
{
    cJSON *o = cJSON_CreateObject(), *progress;

    if (!o) {
        return NULL;
    }
    add_identity(o, c);
    progress = cJSON_AddObjectToObject(o, "progress");
    add_progress(progress, c, row_made);
    if (cJSON_AddStringToObject(o, "layout", c->layout) &&
        cJSON_AddStringToObject(o, "cfg_text", c->model->cfg_text)) {
        return o;
    }
    cJSON_Delete(o);
    return NULL;
}

/* ---- read ---- */

const char *cmn_saved_text(const cJSON *saved, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(saved, key));

    return text ? text : "";
}

static int refuse(const char *file, const char *what, const char *there, const char *here)
{
    return cmn_fail("%s is of another training: %s %s, and here %s. Make it the same, or start "
                    "over with -clear, or train from that file as weights with -cmn_checkpoint 0",
                    file, what, there[0] ? there : "not known", here[0] ? here : "not known");
}

static int compare(const char *file, const cJSON *there, const cJSON *here, const char *key,
                   const char *what)
{
    const char *a = cmn_saved_text(there, key), *b = cmn_saved_text(here, key);

    return strcmp(a, b) ? refuse(file, what, a, b) : 0;
}

static int compare_layout(const char *file, const char *there, const char *here)
{
    while (*there || *here) {
        size_t n = strcspn(there, "\n"), m = strcspn(here, "\n");
        char a[128], b[128];
        if (n != m || strncmp(there, here, n)) {
            snprintf(a, sizeof a, "\"%.*s\"", (int)n, there);
            snprintf(b, sizeof b, "\"%.*s\"", (int)m, here);
            return refuse(file, "its network has", a, b);
        }
        there += n + (there[n] == '\n');
        here += m + (here[m] == '\n');
    }
    return 0;
}

static int compare_all(const struct cmn_checkpointing *c, const cJSON *there, const cJSON *here,
                       const char *file)
{
    const struct cmn_options *o = &c->session->options;
    char what[64];

    if (compare(file, there, here, "command", "its command is") ||
        compare_layout(file, cmn_saved_text(there, "layout"), c->layout)) {
        return -1;
    }
    for (int i = 0; i < KEYS; i++) {
        snprintf(what, sizeof what, "%s is", keys[i]);
        if (compare(file, there, here, keys[i], what)) {
            return -1;
        }
    }
    return compare(file, there, here, "momentum", "(cmn_lars) its momentum is kept") ||
                   compare(file, there, here, "weights", "(cmn_communicator) its weights are") ||
                   compare(file, there, here, "images",
                           o->batch == CMN_BATCH_GLOBAL ? "images of a step are"
                                                        : "images of each rank in a step are") ||
                   (o->seed && compare(file, there, here, "seed", "its cmn_seed is"))
               ? -1
               : 0;
}

int cmn_identity_fits(struct cmn_checkpointing *c, const cJSON *saved, const char *file)
{
    struct cmn_checkpoint_origin *by = &c->by;
    cJSON *here = cmn_identity_describe(c, 0);
    int result = here ? compare_all(c, saved, here, file) : cmn_fail("out of memory");

    by->ranks = atoi(cmn_saved_text(saved, "ranks"));
    by->same_ranks = by->same_nodes = by->ranks == c->session->topology.size;
    for (int i = 0; i < PLACES && here; i++) {
        by->same_nodes = by->same_nodes &&
                         !strcmp(cmn_saved_text(saved, places[i]), cmn_saved_text(here, places[i]));
    }
    if (!result && by->ranks < 1) {
        result = refuse(file, "its ranks are", cmn_saved_text(saved, "ranks"), "1 and more");
    }
    cJSON_Delete(here);
    return result;
}

/* ---- messages ---- */

/* What may not differ is refused; other changes of the cfg are printed. */
static void tell_changes(const struct cmn_checkpointing *c)
{
    char changes[768];

    if (cmn_cfg_changes(cmn_saved_text(c->saved, "cfg_text"), c->model->cfg_text, changes,
                        sizeof changes)) {
        cmn_warn("the cfg has changed since the checkpoint: %s. If that is another training, start "
                 "over with -clear, or give it another backup folder",
                 changes);
    }
}

void cmn_identity_tell_origin(struct cmn_checkpointing *c)
{
    size_t now = cmn_net_iteration(c->model->net);
    const char *cfg;

    if (!c->file) {
        return;
    }
    if (cmn_checkpoint_iteration(c->file) == (long)now) {
        cmn_warn("resumed from %s, iteration %zu", cmn_checkpoint_path(c->file), now);
    } else {
        cmn_warn("resumed from %s, iteration %zu: a step has another number of images now, and "
                 "iterations are counted anew from the images seen",
                 cmn_checkpoint_path(c->file), now);
    }
    if (c->session->topology.rank == 0) {
        cmn_job_event("resume", (long)now, cmn_checkpoint_path(c->file));
    }
    /* Darknet cuts names at their first dot: my.v2.cfg finds the checkpoints of my.v1.cfg. */
    cfg = cmn_saved_text(c->saved, "cfg");
    if (strcmp(cfg, c->model->cfg)) {
        cmn_warn("the checkpoint was written with %s, and this is %s: if that is another training, "
                 "start over with -clear, or give it another backup folder",
                 cfg, c->model->cfg);
    }
    tell_changes(c);
    if (c->model->weights_given) {
        cmn_warn("the weights file of the command line is ignored: the checkpoint has newer "
                 "weights; -clear starts over");
    }
    if (!c->by.same_ranks) {
        cmn_warn(
            "the checkpoint was written by %d rank%s: their common state is restored, and what "
            "belongs to a single rank is dropped (dropout's random numbers, a compressor's error "
            "feedback, a step of double buffering)",
            c->by.ranks, c->by.ranks == 1 ? "" : "s");
    } else if (!c->by.same_nodes) {
        cmn_warn(
            "the checkpoint was written by communicator %s, or on other nodes: sums may differ "
            "in their last bits, and error feedback of compressors is dropped",
            cmn_saved_text(c->saved, "communicator"));
    }
    cmn_checkpoint_free(c->file);
    c->file = NULL;
}
