/* What a checkpoint says of the training that it is of, and whether another one may go on from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"

#include "checkpoint/cfg_changes.h"
#include "base/job_stderr.h"
#include "base/log.h"
#include "trainer/checkpointing.h"

/* Of what this file and the parts hold. Another number is another meaning. */
#define VERSION "1"

/* Keys that decide what the parts mean, or which images come next. */
static const char *const keys[] = {"cmn_batch",           "cmn_scatter",  "cmn_double_buffering",
                                   "cmn_local_steps",     "cmn_compress", "cmn_compress_rank",
                                   "cmn_allreduce_dtype", "cmn_sync_bn"};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* What decides who sends what. */
static const char *const shape[] = {"nodes", "communicator", "cmn_intra", "gpu"};
enum { SHAPE = sizeof shape / sizeof shape[0] };

const char *cmn_identity_value(const char *text, const char *key, char *value, size_t bytes)
{
    size_t n = strlen(key);

    value[0] = '\0';
    while (text && *text) {
        if (!strncmp(text, key, n) && !strncmp(text + n, " = ", 3)) {
            snprintf(value, bytes, "%.*s", (int)strcspn(text + n + 3, "\n"), text + n + 3);
            break;
        }
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return value;
}

/* Images of a step as the cfg says it: of all ranks, or of each. */
static size_t images_of_cfg(const struct cmn_trainer *t)
{
    size_t all = cmn_trainer_step_images(t);

    return t->session->options.batch == CMN_BATCH_GLOBAL ? all
                                                         : all / (size_t)t->session->topology.size;
}

static void print_places(const struct cmn_trainer *t, FILE *out)
{
    const struct cmn_topology *top = &t->session->topology;

    fprintf(out, "ranks = %d\nnodes = %s\n", top->size, t->checkpoint->places);
    fprintf(out, "communicator = %s\ngpu = %d\n", t->optimizer.communicator.name, top->device >= 0);
}

char *cmn_trainer_identity(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    char all[16384], value[CMN_TEXT], *text = NULL;
    size_t bytes = 0;
    FILE *out =
        cmn_options_print(&s->options, all, sizeof all) ? NULL : open_memstream(&text, &bytes);

    if (!out) {
        cmn_fail("out of memory");
        return NULL;
    }
    fprintf(out, "version = %s\nprogram = darknet-cmn %s\ncommand = %s\n", VERSION, CMN_VERSION,
            cmn_command_name(s->command));
    fprintf(out, "cfg = %s\n", t->cfg);
    print_places(t, out);
    fprintf(out, "cmn_intra = %s\n", cmn_identity_value(all, "cmn_intra", value, sizeof value));
    fprintf(out, "seed = %lu\nimages = %zu\n", s->seed, images_of_cfg(t));
    fprintf(out, "list_images = %zu\nlist_hash = %s\n", s->train_images, t->checkpoint->list_hash);
    for (int i = 0; i < KEYS; i++) {
        fprintf(out, "%s = %s\n", keys[i], cmn_identity_value(all, keys[i], value, sizeof value));
    }
    fprintf(out, "momentum = %s\n",
            t->optimizer.policy->own_velocity ? "apart"
                                              : "with the gradients"); /* LARS has it apart, too */
    fclose(out);
    return text;
}

char *cmn_trainer_numbers(const struct cmn_trainer *t, int row_made)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    long iteration = t->first_step + t->steps;

    if (!out) {
        cmn_fail("out of memory");
        return NULL;
    }
    fprintf(out, "iteration = %ld\nseen = %zu\nt = %d\n", iteration, *t->net->seen, *t->net->t);
    fprintf(out, "step_images = %zu\nsteps = %ld\n", cmn_trainer_step_images(t),
            t->earlier + t->steps);
    fprintf(out, "width = %d\nheight = %d\n", t->net->w, t->net->h);
    fprintf(out, "row_at = %ld\nrow_seen = %zu\nrow_due = %d\nverify_due = %d\n",
            row_made ? iteration : t->row_at, row_made ? *t->net->seen : t->row_seen,
            row_made ? 0 : t->row_due, t->verify_due);
    fprintf(out, "validation_owed = %d\nlr = %.9g\n", t->validation_owed, (double)t->lr);
    fprintf(out, "skipped = %ld\n", t->skipped);
    fprintf(out, "elapsed = %.6f\n", cmn_clock() - t->began);
    fclose(out);
    return text;
}

static int refuse(const char *file, const char *what, const char *there, const char *here)
{
    return cmn_fail("%s is of another training: %s %s, and here %s. Make it the same, or start "
                    "over with -clear, or train from that file as weights with -cmn_checkpoint 0",
                    file, what, there, here);
}

static int compare(const char *file, const char *there, const char *here, const char *key,
                   const char *what)
{
    char a[256], b[256];

    cmn_identity_value(there, key, a, sizeof a);
    cmn_identity_value(here, key, b, sizeof b);
    return strcmp(a, b) ? refuse(file, what, a[0] ? a : "not known", b[0] ? b : "not known") : 0;
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

int cmn_trainer_fits(const struct cmn_trainer *t, const char *identity, const char *layout,
                     const char *file)
{
    char *here = cmn_trainer_identity(t);
    char value[CMN_PLACES], what[64];
    int result = -1;

    if (!here) {
        return -1;
    }
    if (strcmp(cmn_identity_value(identity, "version", value, sizeof value), VERSION)) {
        cmn_fail("%s is of a later version of darknet-cmn (%s): use that one, or start over with "
                 "-clear",
                 file, value);
        goto out;
    }
    if (compare(file, identity, here, "command", "its command is") ||
        compare_layout(file, layout, t->checkpoint->layout)) {
        goto out;
    }
    for (int i = 0; i < KEYS; i++) {
        snprintf(what, sizeof what, "%s is", keys[i]);
        if (compare(file, identity, here, keys[i], what)) {
            goto out;
        }
    }
    if (compare(file, identity, here, "momentum", "(cmn_lars) its momentum is kept") ||
        compare(file, identity, here, "images",
                t->session->options.batch == CMN_BATCH_GLOBAL
                    ? "images of a step are"
                    : "images of each rank in a step are") ||
        (t->session->options.seed && compare(file, identity, here, "seed", "its cmn_seed is"))) {
        goto out;
    }
    t->checkpoint->by.alike = 1;
    for (int i = 0; i < SHAPE; i++) {
        char other[CMN_PLACES];
        cmn_identity_value(identity, shape[i], value, sizeof value);
        cmn_identity_value(here, shape[i], other, sizeof other);
        t->checkpoint->by.alike = t->checkpoint->by.alike && !strcmp(value, other);
    }
    t->checkpoint->by.ranks = atoi(cmn_identity_value(identity, "ranks", value, sizeof value));
    t->checkpoint->by.same = t->checkpoint->by.ranks == t->session->topology.size;
    result = 0;
out:
    free(here);
    return result;
}

/* ---- what people are told ---- */

/* What may not differ is refused; the rest of the cfg is people's affair, and said. */
static void tell_changes(const struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;
    size_t bytes = 0;
    const char *section = cmn_checkpoint_section(c->file, "cfg", CMN_NO_RANK, &bytes);
    char *there = section ? strndup(section, bytes) : NULL, changes[768];

    if (there && cmn_cfg_changes(there, t->cfg_text, changes, sizeof changes)) {
        cmn_warn("the cfg has changed since: %s. Where that is another training, start over with "
                 "-clear, or give it another backup folder",
                 changes);
    }
    free(there);
}

void cmn_trainer_tell_origin(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    size_t now = get_current_batch(t->net);
    char value[sizeof t->cfg];

    if (!c || !c->file) {
        return;
    }
    if (cmn_checkpoint_iteration(c->file) == (long)now) {
        cmn_warn("goes on from %s, iteration %zu", cmn_checkpoint_path(c->file), now);
    } else {
        cmn_warn("goes on from %s, iteration %zu: a step has another number of images now, and "
                 "iterations are counted anew from the images seen",
                 cmn_checkpoint_path(c->file), now);
    }
    if (t->session->topology.rank == 0) {
        cmn_job_event("resume", (long)now, cmn_checkpoint_path(c->file));
    }
    /* Darknet cuts names at their first dot: my.v2.cfg finds the checkpoints of my.v1.cfg. */
    cmn_identity_value(c->identity, "cfg", value, sizeof value);
    if (value[0] && strcmp(value, t->cfg)) {
        cmn_warn("it was written with %s, and this is %s: where that is another training, start "
                 "over with -clear, or give it another backup folder",
                 value, t->cfg);
    }
    tell_changes(t);
    if (t->weights_given) {
        cmn_warn("the weights file of the command line is not used: the checkpoint has newer ones; "
                 "-clear starts over");
    }
    if (!c->by.same) {
        cmn_warn(
            "%d rank%s wrote it: what they had together is taken over, and what one kept for "
            "itself is dropped (random numbers of dropout, what a compressor had not sent yet, a "
            "step of double buffering)",
            c->by.ranks, c->by.ranks == 1 ? "" : "s");
    } else if (!c->by.alike) {
        cmn_warn("it was written by communicator %s, or on other nodes: sums may differ in their "
                 "last bits, and what compressors have not sent yet is dropped",
                 cmn_identity_value(c->identity, "communicator", value, sizeof value));
    }
    cmn_checkpoint_free(c->file);
    c->file = NULL;
}
