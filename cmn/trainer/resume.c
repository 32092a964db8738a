/* A training goes on from its newest checkpoint. */
#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "engine/darknet_net.h"
#include "engine/replicas.h"
#include "mpi/call.h"
#include "trainer/checkpointing.h"

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

/* Collective. Each rank's node: what a rank keeps depends on who shares memory with it. */
static void find_places(struct cmn_trainer *t)
{
    const struct cmn_topology *top = &t->session->topology;
    char *text = t->checkpoint->places;
    int *node = cmn_calloc((size_t)top->size, sizeof *node);
    size_t used = 0;

    MPI_CALL(MPI_Allgather(&top->inter_rank, 1, MPI_INT, node, 1, MPI_INT, top->world));
    for (int i = 0; i < top->size && used < CMN_PLACES; i++) {
        used += (size_t)snprintf(text + used, CMN_PLACES - used, "%s%d", i ? " " : "", node[i]);
    }
    if (used >= CMN_PLACES) {
        snprintf(text, CMN_PLACES, "%016" PRIx64,
                 (uint64_t)XXH3_64bits(node, (size_t)top->size * sizeof *node));
    }
    free(node);
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
    return cmn_fail("%s: look at it, train from it as weights "
                    "with -cmn_checkpoint 0, or start over with -clear",
                    why);
}

/* Rank 0. Sets `by`. */
static int examine(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;

    return c->file
               ? cmn_trainer_fits(t, cmn_checkpoint_training(c->file), cmn_checkpoint_path(c->file))
               : 0;
}

/* Collective. What rank 0 knows of its checkpoint goes to all. */
static void broadcast_saved(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    const struct cmn_topology *top = &t->session->topology;
    char *text = NULL;
    size_t bytes = 0;

    if (c->file) {
        text = cJSON_PrintUnformatted(cmn_checkpoint_training(c->file));
        bytes = text ? strlen(text) + 1 : 0;
    }
    cmn_mpi_bcast(&bytes, sizeof bytes, MPI_BYTE, top->world);
    cmn_mpi_bcast(&c->by, sizeof c->by, MPI_BYTE, top->world);
    c->resumed = bytes > 0;
    if (!text) {
        text = cmn_malloc(bytes + 1, 1);
    }
    cmn_mpi_bcast(text, bytes, MPI_CHAR, top->world);
    if (c->resumed && !(c->saved = cJSON_Parse(text))) {
        cmn_fatal("out of memory for what the checkpoint says of its training");
    }
    free(text);
}

/* ---- taking it over ---- */

static void take_progress(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_net *net = cmn_net_of(t->net);

    cmn_net_set_seen(net, cmn_saved_count(t, "seen"));
    cmn_net_set_updates(net, (int)cmn_saved_count(t, "updates"));
    t->earlier = s->went_on = (long)cmn_saved_count(t, "steps");
    t->row_at = (long)cmn_saved_count(t, "row_at");
    t->row_seen = cmn_saved_count(t, "row_seen");
    t->row_due = (int)cmn_saved_count(t, "row_due");
    t->verify_due = (int)cmn_saved_count(t, "verify_due");
    t->validation_owed = (int)cmn_saved_count(t, "validation_pending");
    t->lr = (float)cmn_saved_number(t, "lr");
    t->skipped = (long)cmn_saved_count(t, "skipped");
    s->seed = strtoul(cmn_saved_text(c->saved, "seed"), NULL, 10);
    if (c->by.same_ranks) {
        cmn_random_open(s->seed, s->topology.rank);
    } else {
        cmn_random_open_later(s->seed, s->topology.rank, (uint64_t)t->earlier);
    }
}

/* The size to which random=1 has brought the network. */
static void resize(struct cmn_trainer *t)
{
    enum { MOST = 1 << 16 };
    size_t w = cmn_saved_count(t, "width"), h = cmn_saved_count(t, "height");

    if (w > 0 && w < MOST && h > 0 && h < MOST) {
        cmn_net_resize(cmn_net_of(t->net), (struct cmn_net_size){(int)w, (int)h});
    }
}

static void say_what_is_missing(const struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;

    for (int i = 0; i < c->items && t->session->topology.rank == 0; i++) {
        if (c->item[i].optional && !c->item[i].got) {
            cmn_warn("the checkpoint does not have what a recurrent layer carries from step to "
                     "step (%s): that begins with 0",
                     c->item[i].name);
        }
    }
}

static void take_over(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    const struct cmn_topology *top = &t->session->topology;
    struct cmn_net *net = cmn_net_of(t->net);

    take_progress(t);
    cmn_trainer_pull_tensors(t);
    cmn_trainer_items_to_read(t);
    cmn_checkpoint_scatter(c->item, c->items, c->file, &c->by, top);
    cmn_trainer_push_tensors(t);
    MPI_CALL(MPI_Barrier(top->world)); /* ranks of a node may have their weights in common */
    if (!c->by.same_ranks && t->optimizer.policy->own_weights) {
        cmn_optimizer_begin(&t->optimizer);
    }
    say_what_is_missing(t);
    cmn_optimizer_forget_stop_requests(&t->optimizer);
    resize(t);
    cmn_net_draw_random_rate(net);
    if (c->writer && cmn_net_iteration(net) != cmn_saved_count(t, "iteration")) {
        /* Iterations are counted anew: older checkpoints may have higher numbers. */
        cmn_writer_supersede(c->writer);
    }
}

int cmn_trainer_resume(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;
    struct cmn_checkpointing *c;
    long latest;

    if (!t->attached || !s->backup[0] || s->command->does != CMN_TRAINS || t->checkpoint) {
        return 0;
    }
    c = t->checkpoint = cmn_calloc(1, sizeof *c);
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
    find_places(t);
    if (s->topology.rank == 0 && (open_newest(t) || examine(t))) {
        return let_go(t);
    }
    broadcast_saved(t);
    if (c->resumed) {
        take_over(t);
    }
    return 0;
}

/* ---- the first step ---- */

/* Lists are read by the trainers, so they are known late. */
static int compare_list(const struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;
    size_t images = strtoul(cmn_saved_text(c->saved, "list_images"), NULL, 10);
    size_t here = t->session->train_images;

    if (images == here && !strcmp(cmn_saved_text(c->saved, "list_hash"), c->list_hash)) {
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

    if (!c || !c->resumed) {
        t->row_at = t->first_step;
        t->row_seen = cmn_net_seen(cmn_net_of(t->net));
        return 0;
    }
    if (compare_list(t)) {
        return let_go(t);
    }
    cmn_trainer_tell_origin(t);
    t->began -= cmn_saved_number(t, "elapsed");
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
    struct cmn_checkpoint_item item = {.name = "offsets", .optional = 1, .scale = 1};

    if (!c) {
        return 0;
    }
    if (c->offset != offset) {
        c->offset = offset;
        c->offsets = (size_t)t->sequences;
        if (c->resumed) {
            item.data = offset;
            item.bytes = c->offsets * sizeof *offset;
            item.first = (size_t)t->first_sequence * sizeof *offset;
            cmn_checkpoint_scatter(&item, 1, c->file, &c->by, &t->session->topology);
            c->restored = item.got / sizeof *offset;
        }
    }
    return (size_t)j < c->restored;
}
