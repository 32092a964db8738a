#define XXH_INLINE_ALL
#include "trainer/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/debug.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "checkpoint/reader.h"
#include "engine/replicas.h"
#include "mpi/call.h"
#include "trainer/identity.h"
#include "trainer/lineage.h"
#include "trainer/weights_file.h"

/* ---- the newest checkpoint ---- */

static void tell_damaged(const char *reason)
{
    cmn_warn("damaged checkpoint: %s", reason);
}

/* Ends the job with the reason that was noted last. A refused checkpoint leaves the folder
 * unchanged, so the writer's lock is released. */
static _Noreturn void refuse(struct cmn_checkpointing *c)
{
    char why[1024];

    snprintf(why, sizeof why, "%s", cmn_reason());
    if (c->writer) {
        cmn_writer_close(c->writer);
    }
    cmn_fatal("%s", why);
}

/* Sets c->places, each rank's node: a rank's state depends on which ranks share its memory. */
static void find_places(struct cmn_checkpointing *c)
{
    const struct cmn_topology *top = &c->session->topology;
    char *text = c->places;
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

/* Returns how many of the newest checkpoints stay: one and a spare. Tests may keep more. */
static int kept(void)
{
    int asked = (int)cmn_debug_number("CHECKPOINT_KEEP");

    return asked ? asked : 2;
}

/* Local, rank 0. Opens the newest checkpoint. */
static void open_newest(struct cmn_checkpointing *c)
{
    const struct cmn_session *s = c->session;
    int reason = 0;

    cmn_status_compute("reading the checkpoint");
    if (!s->starts_over || getenv("OMPI_CMN_REACHED")) {
        c->file = cmn_checkpoint_newest(s->backup, c->model->name, tell_damaged, &reason);
    }
    if (s->starts_over && !cmn_lineage_is_continued(c)) {
        cmn_checkpoint_free(c->file);
        c->file = NULL;
        cmn_writer_supersede(c->writer);
    } else if (!c->file && reason) {
        char why[1024];
        snprintf(why, sizeof why, "%s", cmn_reason());
        cmn_fail("%s: look at it, train from it as weights with -cmn_checkpoint 0, or start over "
                 "with -clear",
                 why);
        refuse(c);
    }
}

/* Collective. Broadcasts what rank 0's checkpoint says of its training. */
static void broadcast_saved(struct cmn_checkpointing *c)
{
    const struct cmn_topology *top = &c->session->topology;

    c->resumes = c->file != NULL;
    cmn_mpi_bcast(&c->resumes, 1, MPI_INT, top->world);
    cmn_mpi_bcast(&c->by, sizeof c->by, MPI_BYTE, top->world);
    cmn_mpi_bcast(&c->saved, sizeof c->saved, MPI_BYTE, top->world);
    c->step->kept.resumed = c->resumes;
}

/* ---- restoring it ---- */

/* Collective, blocking. Ends the job if a tensor holds values that no training writes. */
static void check_contents(struct cmn_checkpointing *c)
{
    int wrong = cmn_contents_check(c);

    if (cmn_mpi_first_bad(wrong, c->session->topology.world) < 0) {
        return;
    }
    if (wrong) {
        cmn_fail_in("%s/%s-%ld.checkpoint", c->session->backup, c->model->name,
                    (long)c->saved.iteration);
        refuse(c);
    }
    if (c->writer) {
        cmn_writer_close(c->writer); /* the rank with the bad tensor ends the job */
        c->writer = NULL;
    }
}

/* Begins a new average if the checkpoint has none, because its run had no cmn_ema. */
static void begin_average(struct cmn_checkpointing *c)
{
    struct cmn_ema *e = &c->model->optimizer.ema;

    if (e->decay > 0 && !(c->saved.ema_kept > 0)) {
        cmn_ema_begin(e, &c->model->gradients);
        cmn_warn("cmn_ema: the checkpoint has no average of the weights: it begins with its "
                 "weights");
    }
}

static void restore(struct cmn_checkpointing *c)
{
    const struct cmn_topology *top = &c->session->topology;
    struct cmn_net *net = c->model->net;

    cmn_identity_restore(c);
    cmn_random_open(c->session->seed, top->rank,
                    c->by.same_ranks ? 0 : (uint64_t)c->step->kept.steps);
    cmn_contents_pull(c);
    cmn_contents_list(c, 1);
    cmn_checkpoint_scatter(c->item, c->items, c->file, &c->by, top);
    check_contents(c);
    cmn_contents_push(c);
    begin_average(c);
    MPI_CALL(MPI_Barrier(top->world)); /* ranks of a node may share their weights */
    if (!c->by.same_ranks && c->model->optimizer.policy->own_weights) {
        cmn_optimizer_begin(&c->model->optimizer);
    }
    cmn_optimizer_forget_stop_requests(&c->model->optimizer);
    /* random=1 had given the network this size when the checkpoint was taken. */
    cmn_net_resize_as_drawn(net, (struct cmn_net_size){(int)c->saved.width, (int)c->saved.height});
    cmn_best_check(&c->step->kept.best, c->model);
    cmn_net_draw_random_rate(net);
    if (c->writer && cmn_net_iteration(net) != (size_t)c->saved.iteration) {
        /* The iteration is recomputed from the images seen: older checkpoints may have higher
         * numbers. */
        cmn_writer_supersede(c->writer);
    }
}

struct cmn_checkpointing *cmn_resume(struct cmn_step *step)
{
    struct cmn_session *s = step->session;
    struct cmn_model *m = step->model;
    struct cmn_checkpointing *c = cmn_calloc(1, sizeof *c);
    long latest;

    *c = (struct cmn_checkpointing){.session = s, .model = m, .step = step};
    if (s->topology.rank == 0) {
        c->writer = cmn_writer_open(s->backup, m->name, s->options.checkpoint > 0 ? kept() : 0);
        if (!c->writer) {
            cmn_fatal_reason();
        }
    }
    if (s->options.checkpoint <= 0) {
        latest =
            s->topology.rank || s->starts_over ? -1 : cmn_checkpoint_latest(s->backup, m->name);
        if (latest >= 0) {
            cmn_warn("%s has checkpoints of %s up to iteration %ld, which are ignored: "
                     "cmn_checkpoint=N resumes from the newest",
                     s->backup, m->name, latest);
        }
        return c;
    }
    c->layout = cmn_replicas_describe(&m->gradients, m->net, "");
    find_places(c);
    if (s->topology.rank == 0) {
        open_newest(c);
        if ((c->file && cmn_identity_fits(c, c->file->training)) || cmn_lineage_begin(c)) {
            refuse(c);
        }
    }
    broadcast_saved(c);
    if (c->resumes) {
        restore(c);
    }
    return c;
}

/* ---- the first step ---- */

/* The first step compares the list, because Darknet's trainers read it after the network was
 * attached. */
static void compare_list(struct cmn_checkpointing *c)
{
    size_t images = c->saved.list_images, here = c->session->train_images;

    if (images != here || strcmp(c->saved.list_hash, c->list_hash)) {
        cmn_fail("the checkpoint is of a training on another list, of %zu samples; this list, of "
                 "%zu, has other lines: use that list, start over with -clear, or train from the "
                 "checkpoint as a "
                 "weights file with -cmn_checkpoint 0",
                 images, here);
        refuse(c);
    }
}

void cmn_resume_begin(struct cmn_checkpointing *c)
{
    struct cmn_row_sums *sums;

    if (!c || !c->resumes) {
        return;
    }
    compare_list(c);
    cmn_identity_tell_origin(c);
    c->step->kept.began -= c->saved.elapsed;
    sums = &c->step->sums;
    sums->loss = c->row[0];
    sums->right = c->row[1];
    sums->images = c->row[2];
    sums->compute = c->row[3];
    sums->exchange = c->row[4];
    sums->load = c->row[5];
    sums->steps = (long)c->row[6];
    sums->since = cmn_clock() - c->row[7];
}

/* ---- nothing left to train ---- */

void cmn_resume_protect_newer(const struct cmn_checkpointing *c, const char *file)
{
    size_t seen, there;

    if (!c || !c->file) {
        return;
    }
    seen = cmn_net_seen(c->model->net);
    there = cmn_weights_file_seen(file);
    if (there > seen) {
        cmn_fatal("nothing is left to train, and %.700s has seen %zu images, more than the %zu of "
                  "the checkpoint: it stays as it is (move it away, raise max_batches, or start "
                  "over with -clear)",
                  file, there, seen);
    }
}
