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

/* ---- the numbers of "progress" ---- */

/* A number with its range, and the one place where it lies. */
struct place {
    struct cmn_number is;
    double *real;
    long *count;
    int *flag;
    int late; /* a validation may change it after the training was described */
};

/* Lists where the numbers lie: in the training itself or, if it computes them, in `computed`. */
static void list_places(const struct cmn_checkpointing *c, struct cmn_saved *computed,
                        struct place place[CMN_SAVED_NUMBERS])
{
    struct cmn_kept *p = &c->step->kept;
    struct cmn_optimizer *o = &c->model->optimizer;
    const double most = CMN_MOST_EXACT, most_lr = (double)FLT_MAX;
    const struct place all[CMN_SAVED_NUMBERS] = {
        {{"iteration", 0, most, 1}, .real = &computed->iteration},
        {{"seen", 0, most, 1}, .real = &computed->seen},
        /* Darknet increments it in an int. */
        {{"updates", 0, 2000000000, 1}, .real = &computed->updates},
        {{"step_images", 1, INT_MAX, 1}, .real = &computed->step_images},
        {{"momentum_copies", 1, MOST_RANKS, 1}, .real = &computed->momentum_copies},
        {{"steps", 0, most, 1}, .real = &computed->steps},
        {{"width", 0, INT_MAX, 1}, .real = &computed->width},
        {{"height", 0, INT_MAX, 1}, .real = &computed->height},
        {{"row_at", 0, most, 1}, .count = &p->row_at},
        {{"row_seen", 0, most, 1}, .real = &computed->row_seen},
        {{"row_due", 0, 1, 1}, .flag = &p->row_due},
        {{"verify_due", 0, 1, 1}, .flag = &p->verification_due},
        {{"validation_pending", 0, 1, 1}, .flag = &p->validation_pending},
        {{"lr", -most_lr, most_lr, 0}, .real = &computed->lr},
        {{"skipped", 0, most, 1}, .count = &c->step->nonfinite->skipped},
        {{"elapsed", 0, 1e12, 0}, .real = &computed->elapsed},
        {{"best_known", 0, 1, 1}, .flag = &p->best.known, .late = 1},
        {{"best", 0, 1, 0}, .real = &p->best.value, .late = 1},
        {{"best_at", 0, most, 1}, .count = &p->best.at, .late = 1},
        {{"no_better", 0, most, 1}, .count = &p->best.worse, .late = 1},
        {{"clipped", 0, most, 1}, .count = &o->clipped},
        {{"ema_kept", 0, 1, 1}, .real = &computed->ema_kept},
        {{"ema_steps", 0, most, 1}, .count = &o->ema.steps},
        {{"unaveraged", 0, most, 1}, .count = &o->ema.unaveraged},
    };

    memcpy(place, all, sizeof all);
}

static double value_at(const struct place *p)
{
    return p->real ? *p->real : p->count ? (double)*p->count : *p->flag;
}

static void set_at(const struct place *p, double value)
{
    if (p->real) {
        *p->real = value;
    } else if (p->count) {
        *p->count = (long)value;
    } else {
        *p->flag = (int)value;
    }
}

void cmn_identity_restore(struct cmn_checkpointing *c)
{
    struct cmn_best *best = &c->step->kept.best;
    struct cmn_saved *saved = &c->saved;
    struct cmn_session *s = c->session;
    struct cmn_ema *ema = &c->model->optimizer.ema;
    struct place place[CMN_SAVED_NUMBERS];

    list_places(c, saved, place);
    for (int i = 0; i < CMN_SAVED_NUMBERS; i++) {
        set_at(&place[i], saved->number[i]);
    }
    cmn_net_set_seen(c->model->net, (size_t)saved->seen);
    cmn_net_set_updates(c->model->net, (int)saved->updates);
    c->step->kept.steps = s->resumed_steps = (long)saved->steps;
    c->step->lr = (float)saved->lr;
    c->step->kept.row_seen = (size_t)saved->row_seen;
    best->value = (double)(float)best->value;
    best->seen = saved->best_seen;
    ema->steps = s->options.ema > 0 ? ema->steps : 0;
    s->seed = saved->seed;
}

/* ---- writing a description ---- */

/* A description that is being made. */
struct description {
    cJSON *o;
    int failed; /* memory has run out */
};

/* Adds a text member: values of all kinds are compared, and printed, as texts. */
static void add(struct description *d, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(struct description *d, const char *key, const char *format, ...)
{
    char value[CMN_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    d->failed |= !cJSON_AddStringToObject(d->o, key, value);
}

static void add_keys(struct description *d, const struct cmn_checkpointing *c,
                     const char *const *key, int n)
{
    char value[CMN_TEXT];

    for (int i = 0; i < n; i++) {
        cmn_options_value(&c->session->options, key[i], value, sizeof value);
        add(d, key[i], "%s", value);
    }
}

/* Returns the images of a step as the cfg counts them: of all ranks, or of each rank. */
static size_t images_of_cfg(const struct cmn_checkpointing *c)
{
    size_t all = cmn_feed_step_images(c->step->feed);

    return c->session->options.batch == CMN_BATCH_GLOBAL ? all
                                                         : all / (size_t)c->session->topology.size;
}

static void add_identity(struct description *d, const struct cmn_checkpointing *c)
{
    const struct cmn_session *s = c->session;
    const struct cmn_topology *top = &s->topology;

    add(d, "program", "darknet-cmn %s", CMN_VERSION);
    add(d, "run", "%s", c->run);
    add(d, "command", "%s", cmn_command_name(s->command));
    add(d, "cfg", "%s", c->model->cfg);
    add(d, "ranks", "%d", top->size);
    add(d, "nodes", "%s", c->places);
    add(d, "communicator", "%s", c->model->optimizer.communicator.name);
    add(d, "gpu", "%d", top->device >= 0);
    add(d, "seed", "%lu", s->seed);
    if (s->arithmetic[0]) {
        add(d, "arithmetic", "%s", s->arithmetic);
    }
    add(d, "images", "%zu", images_of_cfg(c));
    add(d, "list_images", "%zu", s->train_images);
    add(d, "list_hash", "%s", c->list_hash);
    add(d, "classes_hash", "%s", s->classes_hash);
    add(d, "valid_hash", "%s", s->valid_hash);
    add(d, "best_seen", "%zu", c->step->kept.best.seen);
    add_keys(d, c, keys, KEYS);
    add_keys(d, c, told, TOLD);
    /* LARS, cmn_clip, cmn_nonfinite=skip and cmn_exact also keep the momentum apart. */
    add(d, "momentum", "%s",
        cmn_optimizer_momentum_apart(&c->model->optimizer) ? "apart" : "with the gradients");
    add(d, "weights", "%s",
        cmn_optimizer_replicates(&c->model->optimizer) ? "equal" : "each rank's own");
}

static void add_progress(struct description *d, const struct cmn_checkpointing *c)
{
    const struct cmn_net *net = c->model->net;
    const struct cmn_net_size size = cmn_net_size(net);
    struct cmn_optimizer *o = &c->model->optimizer;
    struct cmn_saved computed = {
        .iteration = (double)cmn_step_iteration(c->step),
        .seen = (double)cmn_net_seen(net),
        .updates = cmn_net_updates(net),
        .step_images = (double)cmn_feed_step_images(c->step->feed),
        .momentum_copies = cmn_optimizer_replicates(o) ? cmn_optimizer_momentum(o).copies : 1,
        .steps = (double)(c->step->kept.steps + c->step->done),
        .width = size.width,
        .height = size.height,
        .row_seen = (double)c->step->kept.row_seen,
        .lr = (double)c->step->lr,
        .elapsed = cmn_clock() - c->step->kept.began,
        .ema_kept = o->ema.decay > 0,
    };
    struct place place[CMN_SAVED_NUMBERS];
    cJSON *progress = cJSON_AddObjectToObject(d->o, "progress");

    list_places(c, &computed, place);
    for (int i = 0; i < CMN_SAVED_NUMBERS; i++) {
        d->failed |= !cJSON_AddNumberToObject(progress, place[i].is.name, value_at(&place[i]));
    }
}

cJSON *cmn_identity_describe(const struct cmn_checkpointing *c)
{
    struct description d = {.o = cJSON_CreateObject()};

    add_identity(&d, c);
    add_progress(&d, c);
    if (d.failed || !cJSON_AddStringToObject(d.o, "layout", c->layout) ||
        !cJSON_AddStringToObject(d.o, "cfg_text", c->model->cfg_text)) {
        cJSON_Delete(d.o);
        return NULL;
    }
    return d.o;
}

void cmn_identity_amend(cJSON *training, const struct cmn_checkpointing *c)
{
    cJSON *progress = cJSON_GetObjectItemCaseSensitive(training, "progress");
    struct place place[CMN_SAVED_NUMBERS];
    struct cmn_saved none;
    char seen[32];

    snprintf(seen, sizeof seen, "%zu", c->step->kept.best.seen);
    cJSON_ReplaceItemInObjectCaseSensitive(training, "best_seen", cJSON_CreateString(seen));
    list_places(c, &none, place);
    for (int i = 0; i < CMN_SAVED_NUMBERS; i++) {
        if (place[i].late) {
            cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(progress, place[i].is.name),
                                 value_at(&place[i]));
        }
    }
}

/* ---- reading a description ---- */

const char *cmn_saved_text(const cJSON *saved, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(saved, key));

    return text ? text : "";
}

static size_t count_of(const cJSON *saved, const char *key)
{
    return strtoul(cmn_saved_text(saved, key), NULL, 10);
}

double cmn_saved_number(const cJSON *saved, const char *key)
{
    const cJSON *progress = cJSON_GetObjectItemCaseSensitive(saved, "progress");

    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(progress, key));
}

static int refuse(const char *what, const char *there, const char *here)
{
    return cmn_fail(
        "%s %s, and here %s. Make it the same, or start over with -clear, or train from "
        "that file as weights with -cmn_checkpoint 0",
        what, there[0] ? there : "not known", here[0] ? here : "not known");
}

static int compare(const cJSON *there, const cJSON *here, const char *key, const char *what)
{
    const char *a = cmn_saved_text(there, key), *b = cmn_saved_text(here, key);

    return strcmp(a, b) ? refuse(what, a, b) : 0;
}

static int compare_layout(const char *there, const char *here)
{
    while (*there || *here) {
        size_t n = strcspn(there, "\n"), m = strcspn(here, "\n");
        char a[128], b[128];
        if (n != m || strncmp(there, here, n)) {
            snprintf(a, sizeof a, "\"%.*s\"", (int)n, there);
            snprintf(b, sizeof b, "\"%.*s\"", (int)m, here);
            return refuse("its network has", a, b);
        }
        there += n + (there[n] == '\n');
        here += m + (here[m] == '\n');
    }
    return 0;
}

/* A training with cmn_exact has written what its arithmetic is. */
static int compare_exact(const cJSON *there, const cJSON *here)
{
    int was = cmn_saved_text(there, "arithmetic")[0] != '\0';
    int is = cmn_saved_text(here, "arithmetic")[0] != '\0';

    return was == is ? 0 : refuse("its cmn_exact is", was ? "on" : "off", is ? "on" : "off");
}

static int compare_all(const struct cmn_checkpointing *c, const cJSON *there, const cJSON *here)
{
    const struct cmn_options *o = &c->session->options;
    int differs = compare(there, here, "command", "its command is") ||
                  compare_layout(cmn_saved_text(there, "layout"), c->layout);
    char what[64];

    for (int i = 0; i < KEYS && !differs; i++) {
        snprintf(what, sizeof what, "%s is", keys[i]);
        differs = compare(there, here, keys[i], what);
    }
    return differs || compare_exact(there, here) ||
           (cmn_saved_text(there, "classes_hash")[0] &&
            compare(there, here, "classes_hash", "the hash of its labels file is")) ||
           compare(there, here, "momentum",
                   "(cmn_lars, cmn_clip, cmn_nonfinite=skip) its momentum is kept") ||
           compare(there, here, "weights", "(cmn_communicator) its weights are") ||
           compare(there, here, "images",
                   o->batch == CMN_BATCH_GLOBAL ? "images of a step are"
                                                : "images of each rank in a step are") ||
           (o->seed >= 0 && compare(there, here, "seed", "its cmn_seed is"));
}

/* Reads what a description says into c->saved and c->by. Checks the ranges of all numbers: a right
 * checksum does not tell who has written the file. */
static int read_numbers(struct cmn_checkpointing *c, const cJSON *saved)
{
    const cJSON *progress = cJSON_GetObjectItemCaseSensitive(saved, "progress");
    struct place place[CMN_SAVED_NUMBERS];

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
    list_places(c, &c->saved, place);
    for (int i = 0; i < CMN_SAVED_NUMBERS; i++) {
        const struct cmn_number *is = &place[i].is;
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(progress, is->name);
        if (!cJSON_IsNumber(item)) {
            return cmn_fail("%s is no number, and must be one from %.17g to %.17g", is->name,
                            is->low, is->high);
        }
        if (cmn_number_check(is, item->valuedouble)) {
            return -1;
        }
        c->saved.number[i] = item->valuedouble;
    }
    c->by.ranks = (int)count_of(saved, "ranks");
    c->saved.seed = count_of(saved, "seed");
    c->saved.list_images = count_of(saved, "list_images");
    c->saved.best_seen = count_of(saved, "best_seen");
    snprintf(c->saved.list_hash, CMN_LIST_HASH, "%s", cmn_saved_text(saved, "list_hash"));
    return 0;
}

/* Checks that the header agrees with itself, with the tensors and with the network. */
static int check_agreement(const struct cmn_checkpointing *c, const cJSON *saved)
{
    double iteration = (double)c->file->iteration;
    struct cmn_number one = {"iteration", iteration, iteration, 1};

    if (cmn_number_check(&one, cmn_saved_number(saved, "iteration"))) {
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
                              (struct cmn_net_size){(int)cmn_saved_number(saved, "width"),
                                                    (int)cmn_saved_number(saved, "height")});
}

int cmn_identity_fits(struct cmn_checkpointing *c, const cJSON *saved)
{
    struct cmn_checkpoint_origin *by = &c->by;
    const char *file = c->file->path;
    cJSON *here;
    int result;

    if (read_numbers(c, saved)) {
        return cmn_fail_in("%s: its header", file);
    }
    here = cmn_identity_describe(c);
    if (!here) {
        return cmn_fail("out of memory");
    }
    by->same_ranks = by->same_nodes = by->ranks == c->session->topology.size;
    for (int i = 0; i < PLACES; i++) {
        by->same_nodes = by->same_nodes &&
                         !strcmp(cmn_saved_text(saved, places[i]), cmn_saved_text(here, places[i]));
    }
    result = compare_all(c, saved, here);
    cJSON_Delete(here);
    if (result) {
        return cmn_fail_in("%s is of another training", file);
    }
    return check_agreement(c, saved) ? cmn_fail_in("%s: its header", file) : 0;
}

/* ---- messages ---- */

/* Prints changes of the cfg; those that are not allowed have been refused before. */
static void tell_changes(const struct cmn_checkpointing *c)
{
    char changes[768];

    if (cmn_cfg_changes(cmn_saved_text(c->file->training, "cfg_text"), c->model->cfg_text, changes,
                        sizeof changes)) {
        cmn_warn("the cfg has changed since the checkpoint: %s. If that is another training, start "
                 "over with -clear, or give it another backup folder",
                 changes);
    }
}

static void tell_other_ranks(const struct cmn_checkpointing *c)
{
    if (c->session->arithmetic[0]) { /* with cmn_exact the number of ranks does not matter */
        if (strcmp(cmn_saved_text(c->file->training, "arithmetic"), c->session->arithmetic)) {
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
            cmn_saved_text(c->file->training, "communicator"));
    }
}

static void tell_other_keys(const struct cmn_checkpointing *c)
{
    for (int i = 0; i < TOLD; i++) {
        const char *there = cmn_saved_text(c->file->training, told[i]);
        char here[CMN_TEXT];
        cmn_options_value(&c->session->options, told[i], here, sizeof here);
        if (there[0] && strcmp(there, here)) {
            cmn_warn("the checkpoint was written with %s=%s, and this training has %s: the weights "
                     "will not be those of a training that kept one of them",
                     told[i], there, here);
        }
    }
}

static void tell_other_validation(const struct cmn_checkpointing *c)
{
    const char *there = cmn_saved_text(c->file->training, "valid_hash");
    const char *here = c->session->valid_hash;

    if (there[0] && here[0] && strcmp(there, here) && c->step->kept.best.known) {
        cmn_warn("the validation list has changed since the checkpoint: new figures are compared "
                 "with the best one of the old list, %.6g",
                 c->step->kept.best.value);
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
        cmn_tell("resumed from %s, iteration %zu", c->file->path, now);
    } else {
        cmn_tell("resumed from %s, iteration %zu: a step has another number of images now, and "
                 "iterations are counted anew from the images seen",
                 c->file->path, now);
    }
    if (c->session->topology.rank == 0) {
        cmn_job_event("resume", (long)now, c->file->path);
    }
    /* Darknet cuts names at their first dot, so my.v2.cfg finds the checkpoints of my.v1.cfg. */
    cfg = cmn_saved_text(c->file->training, "cfg");
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
    tell_other_validation(c);
    cmn_checkpoint_free(c->file);
    c->file = NULL;
}
