/* What a rank puts into a checkpoint and gets out of it: tensors, and what the update policy and the sequences of a text keep.
 *
 * What all ranks hold alike is rank 0's to write: weights, momentum kept apart, Adam's moments. Each rank writes its part of
 * the momentum that lies among the gradients. With local SGD, and without an exchange, each rank writes all of its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "compression/compressor.h"
#include "engine/darknet_net.h"
#include "engine/recurrent_state.h"
#include "trainer/checkpointing.h"

/* The next item of the list, of `bytes` at `data`. */
static struct cmn_checkpoint_item *add(struct cmn_checkpointing *c, const char *name, void *data,
                                       size_t bytes)
{
    struct cmn_checkpoint_item *item;

    if (c->items == c->room) {
        c->room = 2 * c->room + 256;
        c->item = cmn_realloc(c->item, (size_t)c->room, sizeof *c->item);
    }
    item = &c->item[c->items++];
    *item = (struct cmn_checkpoint_item){.data = data, .bytes = bytes, .scale = 1};
    snprintf(item->name, sizeof item->name, "%s", name);
    for (char *blank = item->name; (blank = strchr(blank, ' '));) {
        *blank = '-';
    }
    return item;
}

/* Of which each rank has its own. */
static struct cmn_checkpoint_item *add_own(struct cmn_checkpointing *c, const char *name,
                                           void *data, size_t bytes, enum cmn_merge merge)
{
    struct cmn_checkpoint_item *item = add(c, name, data, bytes);

    item->own = 1;
    item->merge = merge;
    return item;
}

/* Of which all ranks hold the same. */
static struct cmn_checkpoint_item *add_common(const struct cmn_trainer *t, const char *name,
                                              void *data, size_t bytes)
{
    struct cmn_checkpoint_item *item = add(t->checkpoint, name, data, bytes);

    item->elsewhere = t->session->topology.rank > 0;
    return item;
}

/* How much larger a sum over the images of a step is now: 1 unless other ranks wrote the checkpoint. */
static double step_ratio(const struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;
    double then = c->saved && !c->by.same_ranks ? cmn_saved_number(t, "step_images") : 0;

    return then > 0 ? (double)cmn_trainer_step_images(t) / then : 1;
}

/* ---- tensors ---- */

static void tensor_name(const struct cmn_tensor *x, const char *before, char name[CMN_TENSOR_NAME])
{
    snprintf(name, CMN_TENSOR_NAME, "%s%d.%s%s", before, x->layer, x->part, x->name);
}

/* Momentum of x, whose gradient begins at float `at` of the block. It is a sum over the images of a step. */
static void add_momentum(struct cmn_trainer *t, const struct cmn_tensor *x, const char *name,
                         size_t at, int reading)
{
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_momentum_part part = cmn_optimizer_momentum(&t->optimizer);
    struct cmn_checkpoint_item *item;
    size_t first = at > part.first ? at : part.first;
    size_t end = at + x->n < part.first + part.n ? at + x->n : part.first + part.n;
    float scale = 1;

    if (part.n && reading && !c->by.same_nodes) {
        /* All of it counts once in the next sum, whichever rank has it. */
        first = at;
        end = t->session->topology.rank ? at : at + x->n;
        scale = (float)(cmn_saved_number(t, "momentum_copies") * step_ratio(t));
    }
    if (first < end) {
        item = add(c, name, *x->at + (first - at), (end - first) * sizeof(float));
        item->first = (first - at) * sizeof(float);
        item->elsewhere = part.copies > 1 && t->session->topology.rank > 0;
        item->scale = scale;
    }
}

/* A rank that updates by itself keeps momentum of its own images. */
static void add_own_momentum(struct cmn_trainer *t, const struct cmn_tensor *x, const char *name)
{
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_checkpoint_item *item =
        add_own(c, name, *x->at, x->n * sizeof(float), CMN_MERGE_SUM);

    if (c->saved && !c->by.same_ranks) {
        item->scale = (float)(step_ratio(t) * t->local / t->total);
    }
}

/* Adam's moments are those of sums over a step's images: m of the sum, v of its square. */
static float moment_scale(const struct cmn_trainer *t, const struct cmn_tensor *x)
{
    int square = x->name[strlen(x->name) - 1] == 'v';
    double ratio = step_ratio(t);

    return (float)(square ? ratio * ratio : ratio);
}

/* Equal on all ranks, or each rank's own where they are not. */
static struct cmn_checkpoint_item *add_replica(struct cmn_trainer *t, const char *name, void *data,
                                               size_t bytes, enum cmn_merge merge)
{
    return cmn_optimizer_replicates(&t->optimizer)
               ? add_common(t, name, data, bytes)
               : add_own(t->checkpoint, name, data, bytes, merge);
}

static void add_tensors(struct cmn_trainer *t, int reading)
{
    struct cmn_checkpointing *c = t->checkpoint;
    const struct cmn_gradients *g = &t->gradients;
    int alike = cmn_optimizer_replicates(&t->optimizer), span = 0;
    size_t at, averages = 0;
    char name[CMN_TENSOR_NAME];

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        size_t bytes = x->n * sizeof(float);
        tensor_name(x, "", name);
        switch (x->kind) {
        case CMN_GRADIENT:
            at = (size_t)(g->exchange.tensor[span++].data - g->exchange.block.data);
            if (alike) {
                add_momentum(t, x, name, at, reading);
            } else {
                add_own_momentum(t, x, name);
            }
            break;
        case CMN_WEIGHT:
            add_replica(t, name, *x->at, bytes, CMN_MERGE_MEAN);
            break;
        case CMN_STATISTIC:
            /* Other ranks begin with what all had together. */
            if (!reading || c->by.same_ranks) {
                add_own(c, name, *x->at, bytes, CMN_MERGE_DROP);
            }
            tensor_name(x, "average.", name);
            if (!reading || !c->by.same_ranks) {
                add_common(t, name, reading ? *x->at : c->averages + averages, bytes);
            }
            averages += x->n;
            break;
        case CMN_MOMENT:
            add_replica(t, name, *x->at, bytes, CMN_MERGE_FIRST)->scale = moment_scale(t, x);
            break;
        }
    }
}

static const enum cmn_tensor_kind kinds[] = {CMN_GRADIENT, CMN_WEIGHT, CMN_STATISTIC, CMN_MOMENT};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

void cmn_trainer_pull_tensors(struct cmn_trainer *t)
{
    for (int i = 0; i < KINDS; i++) {
        cmn_gradients_pull(&t->gradients, kinds[i]);
    }
    cmn_recurrent_state_pull(cmn_net_of(t->net));
}

void cmn_trainer_push_tensors(struct cmn_trainer *t)
{
    for (int i = 0; i < KINDS; i++) {
        cmn_gradients_push(&t->gradients, kinds[i]);
    }
    cmn_recurrent_state_push(cmn_net_of(t->net));
}

void cmn_trainer_keep_averages(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;

    if (!c->averages) {
        c->averages =
            cmn_malloc(cmn_gradients_floats(&t->gradients, CMN_STATISTIC), sizeof *c->averages);
    }
    cmn_gradients_pack(&t->gradients, CMN_STATISTIC, c->averages);
}

const char *cmn_trainer_not_finite(const struct cmn_trainer *t)
{
    static _Thread_local char name[96];
    const struct cmn_gradients *g = &t->gradients;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        /* The variance of a single value is NaN, and does no harm. */
        for (size_t k = 0; x->kind != CMN_STATISTIC && k < x->n; k++) {
            if (!isfinite((*x->at)[k])) {
                snprintf(name, sizeof name, "layer %d %s%s", x->layer, x->part, x->name);
                return name;
            }
        }
    }
    return NULL;
}

/* ---- what else is kept ---- */

static void add_optimizer(struct cmn_trainer *t)
{
    enum cmn_state_owner owner;
    struct cmn_state state;
    char name[CMN_TENSOR_NAME];

    for (int i = 0; (owner = cmn_optimizer_state(&t->optimizer, i, &state)); i++) {
        snprintf(name, sizeof name, "exchange.%d.%s", i, state.name);
        if (owner == CMN_STATE_MOMENTUM) {
            add_common(t, name, state.data, state.bytes)->scale = (float)step_ratio(t);
        } else if (owner == CMN_STATE_OF_ALL) {
            add_common(t, name, state.data, state.bytes)->merge = CMN_MERGE_DROP;
        } else if (state.bytes) {
            add_own(t->checkpoint, name, state.data, state.bytes, CMN_MERGE_DROP)->of_exchange =
                owner == CMN_STATE_OF_COMMUNICATOR;
        }
    }
}

/* One row for each sequence of a text; the ranks' rows make up one tensor. */
static void add_rows(struct cmn_trainer *t, const char *name, void *data, size_t row, size_t rows)
{
    struct cmn_checkpoint_item *item;

    if (row && rows) {
        item = add(t->checkpoint, name, data, row * rows);
        item->first = row * (size_t)t->first_sequence;
        item->optional = 1; /* there were fewer sequences; rnn layers carry a state on GPUs alone */
    }
}

static void list_items(struct cmn_trainer *t, int reading)
{
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_recurrent_state hidden;
    char name[CMN_TENSOR_NAME];

    c->items = 0;
    add_tensors(t, reading);
    add_optimizer(t);
    for (int i = 0; cmn_recurrent_state_at(cmn_net_of(t->net), i, &hidden); i++) {
        snprintf(name, sizeof name, "hidden.%d.%d", hidden.layer, hidden.which);
        add_rows(t, name, hidden.at, hidden.n * sizeof *hidden.at, hidden.sequences);
    }
    add_common(t, "random.common", cmn_random_stream(0), sizeof(uint64_t));
    add_own(c, "random.own", cmn_random_stream(1), sizeof(uint64_t), CMN_MERGE_DROP);
    add_own(c, "row", c->row, sizeof c->row, CMN_MERGE_FIRST);
    add_rows(t, "offsets", c->offset, sizeof *c->offset, c->offset ? c->offsets : 0);
}

void cmn_trainer_items_to_write(struct cmn_trainer *t)
{
    list_items(t, 0);
}

void cmn_trainer_items_to_read(struct cmn_trainer *t)
{
    const struct cmn_gradients *g = &t->gradients;

    /* Momentum that other ranks hold is 0 here. */
    for (int i = 0; i < g->tensors; i++) {
        if (g->tensor[i].kind == CMN_GRADIENT) {
            memset(*g->tensor[i].at, 0, g->tensor[i].n * sizeof(float));
        }
    }
    list_items(t, 1);
}
