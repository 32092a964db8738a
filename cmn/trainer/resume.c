/* A training goes on from its newest checkpoint. */
#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "darknet.h"

#include "base/log.h"
#include "base/random.h"
#include "engine/replicas.h"
#include "trainer/checkpointing.h"
#include "base/status.h"

/* ---- what there is ---- */

static void tell_damaged(const char *reason)
{
    cmn_warn("damaged checkpoint: %s", reason);
}

/* A checkpoint that is refused leaves the folder as it was: without the writer's lock. */
static int let_go(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    char why[1024];

    if (c->writer && !cmn_reason_is_loss()) {
        snprintf(why, sizeof why, "%s", cmn_reason());
        cmn_writer_close(c->writer);
        c->writer = NULL;
        cmn_fail("%s", why);
    }
    return -1;
}

/* Each rank's node: what a rank keeps depends on who shares memory with it. */
static int find_places(struct cmn_trainer *t)
{
    const struct cmn_topology *top = &t->session->topology;
    char *text = t->checkpoint->places;
    int *node = calloc((size_t)top->size, sizeof *node), result;
    size_t used = 0;

    if (!node) {
        return cmn_fail("out of memory");
    }
    result = cmn_mpi_check(
        MPI_Allgather(&top->inter_rank, 1, MPI_INT, node, 1, MPI_INT, top->world), "MPI_Allgather");
    for (int i = 0; i < top->size && used < CMN_PLACES; i++) {
        used += (size_t)snprintf(text + used, CMN_PLACES - used, "%s%d", i ? " " : "", node[i]);
    }
    if (used >= CMN_PLACES) {
        snprintf(text, CMN_PLACES, "%016" PRIx64,
                 (uint64_t)XXH3_64bits(node, (size_t)top->size * sizeof *node));
    }
    free(node);
    return result;
}

/* Rank 0. */
static int open_newest(struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    struct cmn_checkpointing *c = t->checkpoint;
    char why[1024];
    int reason = 0;

    cmn_status_compute("reading the checkpoint");
    c->writer = cmn_writer_open(s->backup, t->name, (int)s->options.checkpoint_keep);
    if (!c->writer) {
        return -1;
    }
    if (s->starts_over) {
        cmn_writer_supersede(c->writer);
        return 0;
    }
    c->file = cmn_checkpoint_newest(s->backup, t->name, tell_damaged, &reason);
    if (c->file || !reason) {
        return 0;
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    return cmn_fail("%s: look at it, or start over with -clear", why);
}

/* A section that is text, as a string. The caller frees; NULL with a reason. */
static char *text_of(const struct cmn_checkpoint_file *f, const char *name)
{
    size_t bytes = 0;
    const char *section = cmn_checkpoint_section(f, name, CMN_NO_RANK, &bytes);
    char *text = section ? strndup(section, bytes) : NULL;

    if (!section) {
        cmn_fail("%s: section %s is missing", cmn_checkpoint_path(f), name);
    } else if (!text) {
        cmn_fail("out of memory");
    }
    return text;
}

/* Rank 0. Identity and numbers in one text. */
static char *describe(const struct cmn_checkpoint_file *f)
{
    char *identity = text_of(f, "identity"), *numbers = identity ? text_of(f, "numbers") : NULL;
    char *both = NULL;

    if (numbers && asprintf(&both, "%s%s", identity, numbers) < 0) {
        both = NULL;
        cmn_fail("out of memory");
    }
    free(identity);
    free(numbers);
    return both;
}

/* Rank 0. */
static int examine(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    char *layout;
    int result;

    c->identity = describe(c->file);
    layout = c->identity ? text_of(c->file, "layout") : NULL;
    if (!layout) {
        return -1;
    }
    result = cmn_trainer_fits(t, c->identity, layout, cmn_checkpoint_path(c->file));
    free(layout);
    return result;
}

static int share_text(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    const struct cmn_topology *top = &t->session->topology;
    unsigned long head[] = {c->identity ? strlen(c->identity) + 1 : 0, (unsigned long)c->by.same,
                            (unsigned long)c->by.alike, (unsigned long)c->by.ranks};

    if (cmn_mpi_check(MPI_Bcast(head, 4, MPI_UNSIGNED_LONG, 0, top->world), "MPI_Bcast")) {
        return -1;
    }
    c->by.same = (int)head[1];
    c->by.alike = (int)head[2];
    c->by.ranks = (int)head[3];
    c->goes_on = head[0] > 0;
    if (top->rank && head[0]) {
        c->identity = calloc(1, head[0]);
        if (!c->identity) {
            return cmn_fail("out of memory");
        }
    }
    cmn_mpi_bcast(c->identity, head[0], MPI_CHAR, top->world);
    return 0;
}

/* ---- taking it over ---- */

static double number(const struct cmn_trainer *t, const char *key)
{
    char value[64];

    return strtod(cmn_identity_value(t->checkpoint->identity, key, value, sizeof value), NULL);
}

static unsigned long count(const struct cmn_trainer *t, const char *key)
{
    char value[64];

    return strtoul(cmn_identity_value(t->checkpoint->identity, key, value, sizeof value), NULL, 10);
}

/* Merged, as in the weights that Darknet reads: what new ranks begin with. */
static int take_averages(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    float *pack = c->pack[CMN_PACK_STATISTICS];
    size_t n = c->packed[CMN_PACK_STATISTICS], bytes = 0;
    const void *averages;

    if (!n) {
        return 0;
    }
    if (c->file) {
        averages = cmn_checkpoint_section(c->file, "averages", CMN_NO_RANK, &bytes);
        if (!averages || bytes != n * sizeof *pack) {
            return cmn_fail("%s: section averages holds %zu bytes, and %zu are needed",
                            cmn_checkpoint_path(c->file), bytes, n * sizeof *pack);
        }
        memcpy(pack, averages, bytes);
    }
    cmn_mpi_bcast(pack, n, MPI_FLOAT, t->session->topology.world);
    return 0;
}

/* Checkpoints of older versions do not have it. */
static size_t row_seen(const struct cmn_trainer *t)
{
    double seen = number(t, "seen"),
           since = (number(t, "iteration") - number(t, "row_at")) * number(t, "step_images");

    if (count(t, "row_seen")) {
        return count(t, "row_seen");
    }
    return (size_t)(since > 0 && since <= seen ? seen - since : seen);
}

static void take_numbers(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;
    struct cmn_checkpointing *c = t->checkpoint;

    *t->net->seen = count(t, "seen");
    *t->net->t = (int)count(t, "t");
    t->earlier = s->went_on = (long)count(t, "steps");
    t->row_at = (long)count(t, "row_at");
    t->row_seen = row_seen(t);
    t->row_due = (int)count(t, "row_due");
    t->verify_due = (int)count(t, "verify_due");
    t->validation_owed = (int)count(t, "validation_owed");
    t->lr = (float)number(t, "lr");
    t->skipped = (long)count(t, "skipped");
    c->step_images = number(t, "step_images");
    s->seed = count(t, "seed");
    if (c->by.same) {
        cmn_random_open(s->seed, s->topology.rank);
    } else {
        cmn_random_open_later(s->seed, s->topology.rank, (uint64_t)t->earlier);
    }
}

/* The size to which random=1 has brought the network. */
static void resize(struct cmn_trainer *t)
{
    int w = (int)count(t, "width"), h = (int)count(t, "height");

    if (w != t->net->w || h != t->net->h) {
        resize_network(t->net, w, h);
    }
}

static void say_what_is_missing(const struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;

    for (int i = 0; i < c->parts && t->session->topology.rank == 0; i++) {
        if (c->part[i].optional && !c->part[i].got) {
            cmn_warn("the checkpoint does not have what a recurrent layer carries from step to "
                     "step (%s): that begins with 0",
                     c->part[i].name);
        }
    }
}

static int take_over(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    const struct cmn_topology *top = &t->session->topology;

    take_numbers(t);
    if (cmn_trainer_checkpoint_items(t, 1) ||
        cmn_checkpoint_scatter(c->part, c->parts, c->file, &c->by, top) ||
        (!c->by.same && take_averages(t)) || cmn_trainer_unpack(t) ||
        cmn_mpi_check(MPI_Barrier(top->world), "MPI_Barrier")) {
        return -1;
    }
    if (!c->by.same && t->optimizer.policy->own_weights) {
        cmn_optimizer_begin(&t->optimizer);
    }
    say_what_is_missing(t);
    cmn_optimizer_forget_stop_requests(&t->optimizer);
    resize(t);
    /* After a step a trainer prints the rate, and policy=random draws one for that. */
    if (t->net->policy == RANDOM) {
        get_current_rate(t->net);
    }
    if (c->writer && get_current_batch(t->net) != count(t, "iteration")) {
        cmn_writer_supersede(
            c->writer); /* iterations are counted anew: older ones may have higher numbers */
    }
    return 0;
}

int cmn_trainer_resume(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;
    struct cmn_checkpointing *c;
    long latest;

    if (!t->attached || !s->backup[0] || s->command->does != CMN_TRAINS || t->checkpoint) {
        return 0;
    }
    c = t->checkpoint = calloc(1, sizeof *c);
    if (!c) {
        return cmn_fail("out of memory");
    }
    c->looked = 1;
    if (s->options.checkpoint <= 0) {
        latest =
            s->topology.rank || s->starts_over ? -1 : cmn_checkpoint_latest(s->backup, t->name);
        if (latest >= 0) {
            cmn_warn("there are checkpoints of %s in %s, up to iteration %ld, which are not used: "
                     "cmn_checkpoint=N goes on from the newest",
                     t->name, s->backup, latest);
        }
        return 0;
    }
    c->layout = cmn_replicas_describe(&t->gradients, cmn_net_of(t->net));
    if (find_places(t) || (s->topology.rank == 0 && (open_newest(t) || (c->file && examine(t)))) ||
        share_text(t) || (c->goes_on && take_over(t))) {
        return let_go(t);
    }
    return 0;
}

/* ---- the first step ---- */

/* Lists are read by the trainers, so they are known late. */
static int compare_list(const struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;
    size_t images = count(t, "list_images"), here = t->session->train_images;
    char hash[CMN_LIST_HASH];

    cmn_identity_value(c->identity, "list_hash", hash, sizeof hash);
    if (images == here && !strcmp(hash, c->list_hash)) {
        return 0;
    }
    return cmn_fail("the checkpoint is of a training on %zu samples, and the list here, which has "
                    "%zu, is another one: give it that list, or start over with -clear, or train "
                    "from the checkpoint as a weights file with -cmn_checkpoint 0",
                    images, here);
}

int cmn_trainer_resumed(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_row_sums *sums = &t->sums;

    if (!c || !c->goes_on) {
        t->row_at = t->first_step;
        t->row_seen = *t->net->seen;
        return 0;
    }
    if (compare_list(t)) {
        return let_go(t);
    }
    cmn_trainer_tell_origin(t);
    t->began -= number(t, "elapsed");
    sums->loss = c->row[0];
    sums->right = c->row[1];
    sums->images = c->row[2];
    sums->compute = c->row[3];
    sums->exchange = c->row[4];
    sums->load = c->row[5];
    sums->steps = (long)c->row[6];
    sums->since = cmn_clock() - c->row[7];
    return 0;
}

int cmn_trainer_offset(struct cmn_trainer *t, size_t *offset, int j)
{
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_checkpoint_item part = {.name = "offsets", .merge = CMN_MERGE_ROWS, .scale = 1};

    if (!c) {
        return 0;
    }
    if (c->offset != offset) {
        c->offset = offset;
        c->offsets = (size_t)t->sequences;
        if (c->goes_on) {
            part.data = offset;
            part.bytes = c->offsets * sizeof *offset;
            part.row_bytes = sizeof *offset;
            part.first_row = (size_t)t->first_sequence;
            if (cmn_checkpoint_scatter(&part, 1, c->file, &c->by, &t->session->topology)) {
                return -1;
            }
            c->restored = part.got / sizeof *offset;
        }
    }
    return (size_t)j < c->restored;
}
