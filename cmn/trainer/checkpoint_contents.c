#include "trainer/checkpoint_contents.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "compression/compressor.h"
#include "engine/nonfinite.h"

/* Appends an item of `bytes` bytes at `data` to the list and returns it. */
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

/* Appends an item that each rank has for itself (`own`), or that is the same on all ranks and
 * written by rank 0. */
static struct cmn_checkpoint_item *add_whole(struct cmn_checkpointing *c, int own, const char *name,
                                             void *data, size_t bytes, enum cmn_merge merge)
{
    struct cmn_checkpoint_item *item = add(c, name, data, bytes);

    item->own = own;
    item->merge = merge;
    item->elsewhere = !own && c->session->topology.rank > 0;
    return item;
}

/* Returns the factor by which a sum over the images of a step is larger now; it is 1 if the
 * checkpoint was written by as many ranks. */
static double step_ratio(const struct cmn_checkpointing *c)
{
    return c->resumes && !c->by.same_ranks
               ? (double)cmn_feed_step_images(c->step->feed) / c->saved.step_images
               : 1;
}

/* ---- tensors ---- */

static void tensor_name(const struct cmn_tensor *x, const char *before, char name[CMN_TENSOR_NAME])
{
    snprintf(name, CMN_TENSOR_NAME, "%s%d.%s", before, x->layer, x->name);
}

/* Adds the momentum of x, whose gradient begins at float `at` of the block. Momentum is a sum over
 * the images of a step. */
static void add_momentum(struct cmn_checkpointing *c, const struct cmn_tensor *x, const char *name,
                         size_t at, int reading)
{
    struct cmn_momentum_part part = cmn_optimizer_momentum(&c->model->optimizer);
    struct cmn_checkpoint_item *item;
    size_t first = at > part.first ? at : part.first;
    size_t end = at + x->n < part.first + part.n ? at + x->n : part.first + part.n;
    float scale = 1;

    if (part.n && reading && !c->by.same_nodes) {
        /* The momentum must be in the next sum once, no matter which rank has it. */
        first = at;
        end = part.whole || !c->session->topology.rank ? at + x->n : at;
        scale = (float)(c->saved.momentum_copies * step_ratio(c));
    }
    if (first < end) {
        item = add(c, name, part.data + first, (end - first) * sizeof(float));
        item->first = (first - at) * sizeof(float);
        item->elsewhere = (part.copies > 1 || part.whole) && c->session->topology.rank > 0;
        item->scale = scale;
        item->values = CMN_VALUES_FINITE;
    }
}

/* Adds the momentum of a rank that updates by itself: it covers only this rank's images. */
static void add_own_momentum(struct cmn_checkpointing *c, const struct cmn_tensor *x,
                             const char *name)
{
    struct cmn_checkpoint_item *item =
        add_whole(c, 1, name, *x->at, x->n * sizeof(float), CMN_MERGE_SUM);

    item->values = CMN_VALUES_FINITE;
    if (c->resumes && !c->by.same_ranks) {
        item->scale = (float)(step_ratio(c) * (double)cmn_feed_own_images(c->step->feed) /
                              (double)cmn_feed_step_images(c->step->feed));
    }
}

/* Adds floats that are equal on all ranks or, if the policy does not keep them equal, each rank's
 * own. */
static struct cmn_checkpoint_item *add_replica(struct cmn_checkpointing *c, const char *name,
                                               void *data, size_t bytes, enum cmn_merge merge)
{
    struct cmn_checkpoint_item *item =
        add_whole(c, !cmn_optimizer_replicates(&c->model->optimizer), name, data, bytes, merge);

    item->values = CMN_VALUES_FINITE;
    return item;
}

/* Adds this rank's rolling statistic x, whose floats are at `own`, and its average over the ranks,
 * which is read to `own`, too: if the number of ranks has changed, all of them begin with it.
 * `layer` is that of the weights file which has the average, from 1 on, or 0. */
static void add_statistic(struct cmn_checkpointing *c, const struct cmn_tensor *x,
                          const char *before, int layer, float *own, float *average, int reading)
{
    char prefix[32], name[CMN_TENSOR_NAME];
    size_t bytes = x->n * sizeof *own;

    if (!reading || c->by.same_ranks) {
        tensor_name(x, before, name);
        add_whole(c, 1, name, own, bytes, CMN_MERGE_DROP);
    }
    if (!reading || !c->by.same_ranks) {
        snprintf(prefix, sizeof prefix, "%saverage.", before);
        tensor_name(x, prefix, name);
        add_whole(c, 0, name, average, bytes, CMN_MERGE_FIRST)->layer = layer;
    }
}

static void add_tensors(struct cmn_checkpointing *c, int reading)
{
    const struct cmn_gradients *g = &c->model->gradients;
    int equal = cmn_optimizer_replicates(&c->model->optimizer), span = 0, square;
    double ratio = step_ratio(c);
    size_t at, averages = 0;
    char name[CMN_TENSOR_NAME];

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        size_t bytes = x->n * sizeof(float);
        tensor_name(x, "", name);
        switch (x->kind) {
        case CMN_GRADIENT:
            at = (size_t)(g->exchange.tensor[span++].data - g->exchange.block.data);
            if (reading) {
                memset(*x->at, 0, bytes); /* momentum that other ranks read must be 0 here */
            }
            if (equal) {
                add_momentum(c, x, name, at, reading);
            } else {
                add_own_momentum(c, x, name);
            }
            break;
        case CMN_WEIGHT:
            add_replica(c, name, *x->at, bytes, CMN_MERGE_MEAN)->layer = x->layer + 1;
            break;
        case CMN_STATISTIC:
            add_statistic(c, x, "", x->layer + 1, *x->at, reading ? *x->at : c->averages + averages,
                          reading);
            averages += x->n;
            break;
        case CMN_MOMENT:
            /* Averages of sums over a step's images: m of the sum, v of its square. */
            square = x->name[strlen(x->name) - 1] == 'v';
            add_replica(c, name, *x->at, bytes, CMN_MERGE_FIRST)->scale =
                (float)(square ? ratio * ratio : ratio);
            break;
        case CMN_EMA:
            add_replica(c, name, *x->at, bytes, CMN_MERGE_MEAN);
            break;
        case CMN_FOLLOWED:
            add_whole(c, 0, name, *x->at, bytes, CMN_MERGE_FIRST);
            break;
        }
    }
}

void cmn_contents_pull(struct cmn_checkpointing *c)
{
    for (int kind = CMN_GRADIENT; kind <= CMN_FOLLOWED; kind++) {
        cmn_gradients_pull(&c->model->gradients, (enum cmn_tensor_kind)kind);
    }
}

void cmn_contents_push(struct cmn_checkpointing *c)
{
    for (int kind = CMN_GRADIENT; kind <= CMN_FOLLOWED; kind++) {
        cmn_gradients_push(&c->model->gradients, (enum cmn_tensor_kind)kind);
    }
    cmn_optimizer_restored(&c->model->optimizer);
}

int cmn_contents_check_finite(const struct cmn_checkpointing *c)
{
    const struct cmn_gradients *g = &c->model->gradients;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        /* Statistics may hold NaN: the variance of a single value is NaN, and does no harm. */
        if (x->kind != CMN_STATISTIC && cmn_nonfinite_find(*x->at, x->n)) {
            return cmn_fail("layer %d %s holds NaN or Inf", x->layer, x->name);
        }
    }
    return 0;
}

/* ---- other contents ---- */

static void add_optimizer(struct cmn_checkpointing *c)
{
    struct cmn_checkpoint_item *item;
    enum cmn_state_owner owner;
    struct cmn_state state;
    char name[CMN_TENSOR_NAME];

    for (int i = 0; (owner = cmn_optimizer_state(&c->model->optimizer, i, &state)); i++) {
        snprintf(name, sizeof name, "exchange.%d.%s", i, state.name);
        if (!state.bytes) {
            continue;
        }
        item = add_whole(c, owner == CMN_STATE_OF_RANK || owner == CMN_STATE_OF_COMMUNICATOR, name,
                         state.data, state.bytes,
                         owner == CMN_STATE_MOMENTUM ? CMN_MERGE_FIRST : CMN_MERGE_DROP);
        item->of_exchange = owner == CMN_STATE_OF_COMMUNICATOR;
        item->scale = owner == CMN_STATE_MOMENTUM ? (float)step_ratio(c) : 1;
        item->values = state.values;
        item->most = state.most;
    }
}

static void add_ema(struct cmn_checkpointing *c, int reading)
{
    const struct cmn_gradients *g = &c->model->gradients;
    const struct cmn_ema *e = &c->model->optimizer.ema;
    size_t at = 0, n = g->exchange.block.n;

    /* The average is the same on all ranks, unless they do not exchange anything. */
    add_whole(c, !c->model->optimizer.communicator.sums, "ema.weights",
              cmn_host_copy(&c->model->optimizer, e->weights, n), n * sizeof *e->weights,
              CMN_MERGE_FIRST)
        ->values = CMN_VALUES_FINITE;
    for (int i = 0; i < g->tensors; i++) {
        if (g->tensor[i].kind == CMN_STATISTIC) {
            add_statistic(c, &g->tensor[i], "ema.", 0, e->statistics + at,
                          (reading ? e->statistics : c->ema_averages) + at, reading);
            at += g->tensor[i].n;
        }
    }
}

void cmn_contents_list(struct cmn_checkpointing *c, int reading)
{
    c->items = 0;
    add_tensors(c, reading);
    add_optimizer(c);
    if (c->model->optimizer.ema.decay > 0 && (!reading || c->saved.ema_kept > 0)) {
        add_ema(c, reading);
    }
    add_whole(c, 0, "random.common", cmn_random_stream(0), sizeof(uint64_t), CMN_MERGE_FIRST);
    add_whole(c, 1, "random.own", cmn_random_stream(1), sizeof(uint64_t), CMN_MERGE_DROP);
    add_whole(c, 1, "row", c->row, sizeof c->row, CMN_MERGE_FIRST);
}

static int check_row(const struct cmn_checkpointing *c)
{
    static const struct cmn_number sums[] = {
        {"loss", 0, 0, 0}, /* not checked: a row may have a loss of NaN */
        {"right answers", 0, 1e12, 0},
        {"images", 0, 1e12, 0},
        {"compute", -1e12, 1e12, 0},
        {"exchange", -1e12, 1e12, 0},
        {"load", -1e12, 1e12, 0},
        {"steps", 0, 1e12, 1},
        {"age", -1e12, 1e12, 0},
    };
    _Static_assert(sizeof sums / sizeof sums[0] == CMN_ROW_VALUES, "each sum has a range");

    for (int i = 1; i < CMN_ROW_VALUES; i++) {
        if (cmn_number_check(&sums[i], c->row[i])) {
            return cmn_fail_in("tensor row");
        }
    }
    return 0;
}

int cmn_contents_check(const struct cmn_checkpointing *c)
{
    for (int i = 0; i < c->items; i++) {
        const struct cmn_checkpoint_item *item = &c->item[i];
        if (cmn_values_check(item->values, item->most, item->data, item->got)) {
            return cmn_fail_in("tensor %s", item->name);
        }
    }
    return check_row(c);
}

void cmn_contents_refer_to_weights(struct cmn_checkpointing *c, struct cmn_snapshot *to)
{
    size_t begin = 0, end = 0; /* range of a layer in the weights, in bytes */
    int layer = 0;

    /* The items go from the last layer to the first, the weights from the first to the last. */
    for (int i = c->items - 1; i >= 0; i--) {
        struct cmn_checkpoint_item *item = &c->item[i];
        size_t behind;
        if (!item->layer || item->own) {
            continue;
        }
        begin = item->layer == layer ? begin : end;
        layer = item->layer;
        behind = cmn_snapshot_refer(to, item->name, item->data, item->bytes, begin);
        item->elsewhere = behind > 0;
        end = behind > end ? behind : end;
    }
}
