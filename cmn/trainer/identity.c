#include "trainer/identity.h"
#include "trainer/nonfinite_policy.h"

#include <float.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/job_stderr.h"
#include "base/log.h"
#include "base/values.h"
#include "checkpoint/cfg_changes.h"
#include "checkpoint/reader.h"

/* Keys that decide what the tensors mean, or which images come next; they must not change. */
static const char *const keys[] = {"cmn_batch",       "cmn_scatter",  "cmn_double_buffering",
                                   "cmn_local_steps", "cmn_compress", "cmn_sync_bn"};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* Keys that may change between two runs; a message says so if they have. */
static const char *const told[] = {"cmn_mixed", "cmn_clip",     "cmn_lars",
                                   "cmn_ema",   "cmn_scale_lr", "cmn_nonfinite"};
enum { TOLD = sizeof told / sizeof told[0] };

/* Members that decide which rank sends what; sums depend on it in their last bits. */
static const char *const places[] = {"nodes", "communicator", "gpu"};
enum { PLACES = sizeof places / sizeof places[0] };

enum { MOST_RANKS = 1000000 };

/* Whole numbers that are stored as texts, with their ranges. */
static const struct cmn_number counts[] = {
    {"ranks", 1, MOST_RANKS, 1},
    {"seed", 0, INT_MAX, 1},
    {"images", 1, INT_MAX, 1},
    {"list_images", 0, CMN_MOST_EXACT, 1},
};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* ---- writing a description ---- */

/* Adds a text member: values of all kinds are compared, and printed, as texts. */
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

/* Returns the images of a step as the cfg counts them: of all ranks, or of each rank. */
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
    add(o, "run", "%s", c->run);
    add(o, "command", "%s", cmn_command_name(s->command));
    add(o, "cfg", "%s", c->model->cfg);
    add(o, "ranks", "%d", top->size);
    add(o, "nodes", "%s", c->places);
    add(o, "communicator", "%s", c->model->optimizer.communicator.name);
    add(o, "gpu", "%d", top->device >= 0);
    add(o, "seed", "%lu", s->seed);
    if (s->arithmetic[0]) {
        add(o, "arithmetic", "%s", s->arithmetic);
    }
    add(o, "images", "%zu", images_of_cfg(c));
    add(o, "list_images", "%zu", s->train_images);
    add(o, "list_hash", "%s", c->list_hash);
    add(o, "classes_hash", "%s", s->classes_hash);
    add(o, "best_seen", "%zu", c->step->kept.best.seen);
    for (int i = 0; i < KEYS; i++) {
        add_key(o, c, keys[i]);
    }
    for (int i = 0; i < TOLD; i++) {
        add_key(o, c, told[i]);
    }
    /* LARS, cmn_clip, cmn_nonfinite=skip and cmn_exact also keep the momentum apart. */
    add(o, "momentum", "%s",
        cmn_optimizer_momentum_apart(&c->model->optimizer) ? "apart" : "with the gradients");
    add(o, "weights", "%s",
        cmn_optimizer_replicates(&c->model->optimizer) ? "equal" : "each rank's own");
}

/* The numbers of "progress", with their ranges. */
enum {
    ITERATION,
    SEEN,
    UPDATES,
    STEP_IMAGES,
    MOMENTUM_COPIES,
    STEPS,
    WIDTH,
    HEIGHT,
    ROW_AT,
    ROW_SEEN,
    ROW_DUE,
    VERIFY_DUE,
    VALIDATION_PENDING,
    LR,
    SKIPPED,
    ELAPSED,
    BEST_KNOWN,
    BEST,
    BEST_AT,
    NO_BETTER,
    CLIPPED,
    EMA_KEPT,
    EMA_STEPS,
    UNAVERAGED,
    NUMBERS
};
static const struct cmn_number numbers[NUMBERS] = {
    [ITERATION] = {"iteration", 0, CMN_MOST_EXACT, 1},
    [SEEN] = {"seen", 0, CMN_MOST_EXACT, 1},
    [UPDATES] = {"updates", 0, 2000000000, 1}, /* Darknet increments it in an int */
    [STEP_IMAGES] = {"step_images", 1, INT_MAX, 1},
    [MOMENTUM_COPIES] = {"momentum_copies", 1, MOST_RANKS, 1},
    [STEPS] = {"steps", 0, CMN_MOST_EXACT, 1},
    [WIDTH] = {"width", 0, INT_MAX, 1},
    [HEIGHT] = {"height", 0, INT_MAX, 1},
    [ROW_AT] = {"row_at", 0, CMN_MOST_EXACT, 1},
    [ROW_SEEN] = {"row_seen", 0, CMN_MOST_EXACT, 1},
    [ROW_DUE] = {"row_due", 0, 1, 1},
    [VERIFY_DUE] = {"verify_due", 0, 1, 1},
    [VALIDATION_PENDING] = {"validation_pending", 0, 1, 1},
    [LR] = {"lr", -(double)FLT_MAX, (double)FLT_MAX, 0},
    [SKIPPED] = {"skipped", 0, CMN_MOST_EXACT, 1},
    [ELAPSED] = {"elapsed", 0, 1e12, 0},
    [BEST_KNOWN] = {"best_known", 0, 1, 1},
    [BEST] = {"best", 0, 1, 0},
    [BEST_AT] = {"best_at", 0, CMN_MOST_EXACT, 1},
    [NO_BETTER] = {"no_better", 0, CMN_MOST_EXACT, 1},
    [CLIPPED] = {"clipped", 0, CMN_MOST_EXACT, 1},
    [EMA_KEPT] = {"ema_kept", 0, 1, 1},
    [EMA_STEPS] = {"ema_steps", 0, CMN_MOST_EXACT, 1},
    [UNAVERAGED] = {"unaveraged", 0, CMN_MOST_EXACT, 1},
};

static void find_best(const struct cmn_checkpointing *c, double value[NUMBERS])
{
    const struct cmn_best *b = &c->step->kept.best;

    value[BEST_KNOWN] = b->known;
    value[BEST] = b->value;
    value[BEST_AT] = (double)b->at;
    value[NO_BETTER] = (double)b->worse;
}

static void add_progress(cJSON *o, const struct cmn_checkpointing *c, int row_made)
{
    const struct cmn_net *net = c->model->net;
    const struct cmn_net_size size = cmn_net_size(net);
    const struct cmn_kept *kept = &c->step->kept;
    const struct cmn_optimizer *optimizer = &c->model->optimizer;
    long iteration = cmn_step_iteration(c->step);
    double value[NUMBERS] = {
        [ITERATION] = (double)iteration,
        [SEEN] = (double)cmn_net_seen(net),
        [UPDATES] = cmn_net_updates(net),
        [STEP_IMAGES] = (double)cmn_feed_step_images(c->step->feed),
        [MOMENTUM_COPIES] = cmn_optimizer_momentum(&c->model->optimizer).copies,
        [STEPS] = (double)(c->step->kept.steps + c->step->done),
        [WIDTH] = size.width,
        [HEIGHT] = size.height,
        [ROW_AT] = (double)(row_made ? iteration : kept->row_at),
        [ROW_SEEN] = (double)(row_made ? cmn_net_seen(net) : kept->row_seen),
        [ROW_DUE] = row_made ? 0 : kept->row_due,
        [VERIFY_DUE] = kept->verification_due,
        [VALIDATION_PENDING] = kept->validation_pending,
        [LR] = (double)c->step->lr,
        [SKIPPED] = (double)c->step->nonfinite->skipped,
        [ELAPSED] = cmn_clock() - kept->began,
        [CLIPPED] = (double)optimizer->clipped,
        [EMA_KEPT] = optimizer->ema.decay > 0,
        [EMA_STEPS] = (double)optimizer->ema.steps,
        [UNAVERAGED] = (double)optimizer->ema.unaveraged,
    };

    find_best(c, value);
    for (int i = 0; i < NUMBERS; i++) {
        cJSON_AddNumberToObject(o, numbers[i].name, value[i]);
    }
}

/* cJSON omits a member for which there is no memory. Only the last two, which are long, are
 * checked. */
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

void cmn_identity_amend(cJSON *training, const struct cmn_checkpointing *c)
{
    cJSON *progress = cJSON_GetObjectItemCaseSensitive(training, "progress");
    double value[NUMBERS];
    char seen[32];

    snprintf(seen, sizeof seen, "%zu", c->step->kept.best.seen);
    cJSON_ReplaceItemInObjectCaseSensitive(training, "best_seen", cJSON_CreateString(seen));
    find_best(c, value);
    for (int i = BEST_KNOWN; i <= NO_BETTER; i++) {
        cJSON *item = cJSON_GetObjectItemCaseSensitive(progress, numbers[i].name);
        if (item) {
            cJSON_SetNumberValue(item, value[i]);
        }
    }
}

/* ---- reading a description ---- */

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
    if (cmn_saved_text(there, "classes_hash")[0] &&
        compare(file, there, here, "classes_hash", "the hash of its labels file is")) {
        return -1;
    }
    return compare(file, there, here, "momentum",
                   "(cmn_lars, cmn_clip, cmn_nonfinite=skip, cmn_exact) its momentum is kept") ||
                   compare(file, there, here, "weights", "(cmn_communicator) its weights are") ||
                   compare(file, there, here, "images",
                           o->batch == CMN_BATCH_GLOBAL ? "images of a step are"
                                                        : "images of each rank in a step are") ||
                   (o->seed && compare(file, there, here, "seed", "its cmn_seed is"))
               ? -1
               : 0;
}

/* Checks the ranges of all numbers: a right checksum does not tell who has written the file. */
static int check_numbers(const cJSON *saved)
{
    const cJSON *progress = cJSON_GetObjectItemCaseSensitive(saved, "progress");

    for (int i = 0; i < COUNTS; i++) {
        const char *text = cmn_saved_text(saved, counts[i].name);
        size_t digits = strspn(text, "0123456789");
        if (!digits || text[digits]) {
            return cmn_fail("%s is \"%.32s\", and must be a whole number from %.17g to %.17g",
                            counts[i].name, text, counts[i].low, counts[i].high);
        }
        if (cmn_number_check(&counts[i], strtod(text, NULL))) {
            return -1;
        }
    }
    for (int i = 0; i < NUMBERS; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(progress, numbers[i].name);
        if (!cJSON_IsNumber(item)) {
            return cmn_fail("%s is no number, and must be one from %.17g to %.17g", numbers[i].name,
                            numbers[i].low, numbers[i].high);
        }
        if (cmn_number_check(&numbers[i], item->valuedouble)) {
            return -1;
        }
    }
    return 0;
}

/* Checks that the header agrees with itself, with the tensors and with the network. */
static int check_agreement(const struct cmn_checkpointing *c, const cJSON *saved)
{
    const cJSON *progress = cJSON_GetObjectItemCaseSensitive(saved, "progress");
    double value[NUMBERS];
    struct cmn_number one;

    for (int i = 0; i < NUMBERS; i++) {
        value[i] = cJSON_GetObjectItemCaseSensitive(progress, numbers[i].name)->valuedouble;
    }
    one = numbers[ITERATION];
    one.low = one.high = (double)c->file->iteration;
    if (cmn_number_check(&one, value[ITERATION])) {
        return -1;
    }
    one = (struct cmn_number){"the rank of a tensor", 0, c->by.ranks - 1, 1};
    for (size_t i = 0; i < c->file->tensors; i++) {
        const struct cmn_checkpoint_tensor *t = &c->file->tensor[i];
        if (t->rank != CMN_ALL_RANKS && cmn_number_check(&one, t->rank)) {
            return cmn_fail_in("tensor %s", t->name);
        }
    }
    return cmn_net_check_size(c->model->net,
                              (struct cmn_net_size){(int)value[WIDTH], (int)value[HEIGHT]});
}

int cmn_identity_fits(struct cmn_checkpointing *c, const cJSON *saved, const char *file)
{
    struct cmn_checkpoint_origin *by = &c->by;
    cJSON *here;
    int result;

    if (check_numbers(saved)) {
        return cmn_fail_in("%s: its header", file);
    }
    by->ranks = (int)strtol(cmn_saved_text(saved, "ranks"), NULL, 10);
    here = cmn_identity_describe(c, 0);
    result = here ? compare_all(c, saved, here, file) : cmn_fail("out of memory");
    by->same_ranks = by->same_nodes = by->ranks == c->session->topology.size;
    for (int i = 0; i < PLACES && here; i++) {
        by->same_nodes = by->same_nodes &&
                         !strcmp(cmn_saved_text(saved, places[i]), cmn_saved_text(here, places[i]));
    }
    cJSON_Delete(here);
    if (!result && check_agreement(c, saved)) {
        result = cmn_fail_in("%s: its header", file);
    }
    return result;
}

/* ---- messages ---- */

/* Prints changes of the cfg; those that are not allowed have been refused before. */
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

static void tell_other_ranks(const struct cmn_checkpointing *c)
{
    if (c->session->arithmetic[0]) { /* with cmn_exact the number of ranks does not matter */
        if (strcmp(cmn_saved_text(c->saved, "arithmetic"), c->session->arithmetic)) {
            cmn_warn("cmn_exact=on: the checkpoint was written with other arithmetic (another kind "
                     "of processor, OpenBLAS, oneDNN or C library): the weights will not be those "
                     "of a training that was not disturbed");
        }
    } else if (!c->by.same_ranks) {
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
}

static void tell_other_keys(const struct cmn_checkpointing *c)
{
    for (int i = 0; i < TOLD; i++) {
        const char *there = cmn_saved_text(c->saved, told[i]);
        char here[CMN_TEXT];
        cmn_options_value(&c->session->options, told[i], here, sizeof here);
        if (there[0] && strcmp(there, here)) {
            cmn_warn("the checkpoint was written with %s=%s, and this training has %s: the weights "
                     "will not be those of a training that kept one of them",
                     told[i], there, here);
        }
    }
}

void cmn_identity_tell_origin(struct cmn_checkpointing *c)
{
    size_t now = cmn_net_iteration(c->model->net);
    const char *cfg;

    if (!c->file) {
        return;
    }
    if (c->file->iteration == (long)now) {
        cmn_warn("resumed from %s, iteration %zu", c->file->path, now);
    } else {
        cmn_warn("resumed from %s, iteration %zu: a step has another number of images now, and "
                 "iterations are counted anew from the images seen",
                 c->file->path, now);
    }
    if (c->session->topology.rank == 0) {
        cmn_job_event("resume", (long)now, c->file->path);
    }
    /* Darknet cuts names at their first dot, so my.v2.cfg finds the checkpoints of my.v1.cfg. */
    cfg = cmn_saved_text(c->saved, "cfg");
    if (strcmp(cfg, c->model->cfg)) {
        cmn_warn("the checkpoint was written with %s, and this is %s: if that is another training, "
                 "start over with -clear, or give it another backup folder",
                 cfg, c->model->cfg);
    }
    tell_changes(c);
    if (c->model->weights_given) {
        cmn_warn("the weights file of the command line is ignored: the training continues from the "
                 "checkpoint; -clear starts over");
    }
    tell_other_ranks(c);
    tell_other_keys(c);
    cmn_checkpoint_free(c->file);
    c->file = NULL;
}
