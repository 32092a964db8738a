/* What a rank has to keep of a training: parts, each with a name, memory and what becomes of it on other ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compression/compressor.h"
#include "darknet.h"
#include "base/memory.h"
#include "engine/recurrent_state.h"
#include "base/log.h"
#include "base/random.h"
#include "trainer/checkpointing.h"

static const struct {
    const char *name;
    enum cmn_tensor_kind kind;
    enum cmn_merge merge;
} packs[CMN_PACKS] = {{"momentum", CMN_GRADIENT, CMN_MERGE_SUM},
                      {"tensors", CMN_WEIGHT, CMN_MERGE_MEAN},
                      {"statistics", CMN_STATISTIC, CMN_MERGE_DROP},
                      {"moments", CMN_MOMENT, CMN_MERGE_FIRST}};

static void get_packs(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;

    for (int k = 0; k < CMN_PACKS && !c->pack[k]; k++) {
        c->packed[k] = cmn_gradients_floats(&t->gradients, packs[k].kind);
        c->pack[k] = cmn_calloc(c->packed[k], sizeof *c->pack[k]);
    }
}

/* Adam's moments are those of sums over a step's images, m of the sum and v of its square: another step's are as much larger. */
static void rescale_moments(struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;
    const struct cmn_gradients *g = &t->gradients;
    double larger = (double)cmn_trainer_step_images(t) / c->step_images;
    float *at = c->pack[CMN_PACK_MOMENTS];

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        if (x->kind == CMN_MOMENT) {
            int square = x->name[strlen(x->name) - 1] == 'v';
            float scale = (float)(square ? larger * larger : larger);
            for (size_t k = 0; k < x->n; k++) {
                *at++ *= scale;
            }
        }
    }
}

int cmn_trainer_unpack(struct cmn_trainer *t)
{
    if (!t->checkpoint->by.same && t->checkpoint->step_images > 0) {
        rescale_moments(t);
    }
    for (int k = 0; k < CMN_PACKS; k++) {
        cmn_gradients_unpack(&t->gradients, packs[k].kind, t->checkpoint->pack[k]);
    }
    cmn_recurrent_state_push(cmn_net_of(t->net));
    return 0;
}

int cmn_trainer_statistics(struct cmn_trainer *t, const float **statistics, size_t *n)
{
    *statistics = t->checkpoint->pack[CMN_PACK_STATISTICS];
    *n = t->checkpoint->packed[CMN_PACK_STATISTICS];
    cmn_gradients_pack(&t->gradients, CMN_STATISTIC, t->checkpoint->pack[CMN_PACK_STATISTICS]);
    return 0;
}

void cmn_trainer_not_finite(const struct cmn_trainer *t, const char **what)
{
    static _Thread_local char name[96];
    const struct cmn_gradients *g = &t->gradients;

    *what = NULL;
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        /* A variance over one value is none, and harms nobody. */
        for (size_t k = 0; x->kind != CMN_STATISTIC && k < x->n; k++) {
            if (!isfinite((*x->at)[k])) {
                snprintf(name, sizeof name, "layer %d %s%s", x->layer, x->part, x->name);
                *what = name;
                return;
            }
        }
    }
}

/* Returns the new one, or NULL when there is nothing to keep. */
static struct cmn_checkpoint_item *add(struct cmn_checkpointing *c, const char *name,
                                       enum cmn_merge merge, void *data, size_t bytes)
{
    struct cmn_checkpoint_item *p;

    if (!bytes || c->parts >= c->room) {
        return NULL;
    }
    p = &c->part[c->parts++];
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", name);
    for (char *blank = p->name; (blank = strchr(blank, ' '));) {
        *blank = '-';
    }
    p->merge = merge;
    p->data = data;
    p->bytes = bytes;
    p->scale = 1;
    return p;
}

/* Momentum is a sum over the images of a step. In the usual way each rank holds a part of it, with local steps its own. */
static float scale_of_momentum(const struct cmn_trainer *t)
{
    const struct cmn_checkpointing *c = t->checkpoint;
    double images = (double)cmn_trainer_step_images(t);

    if (!c->goes_on || c->step_images <= 0) {
        return 1;
    }
    if (t->optimizer.policy->own_weights) {
        return (float)(images * t->local / t->total / c->step_images);
    }
    return t->session->topology.rank ? 0 : (float)(images / c->step_images);
}

static void add_optimizer(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_state state;
    enum cmn_state_owner owner;
    char name[CMN_SECTION_NAME];

    for (int i = 0; (owner = cmn_optimizer_state(&t->optimizer, i, &state)); i++) {
        int velocity = state.data == t->optimizer.velocity;
        struct cmn_checkpoint_item *p;
        snprintf(name, sizeof name, "exchange.%d.%s", i, state.name);
        p = add(c, name, velocity ? CMN_MERGE_FIRST : CMN_MERGE_DROP, state.data, state.bytes);
        if (p) {
            p->of_exchange = owner == CMN_STATE_OF_COMMUNICATOR;
        }
        if (p && velocity && c->goes_on && c->step_images > 0) {
            p->scale = (float)((double)cmn_trainer_step_images(t) / c->step_images);
        }
    }
}

static void add_sequences(struct cmn_trainer *t)
{
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_recurrent_state hidden;
    char name[CMN_SECTION_NAME];

    for (int i = 0; cmn_recurrent_state_at(cmn_net_of(t->net), i, &hidden); i++) {
        size_t row = hidden.n * sizeof *hidden.at;
        struct cmn_checkpoint_item *p;
        snprintf(name, sizeof name, "hidden.%d.%d", hidden.layer, hidden.which);
        p = add(c, name, CMN_MERGE_ROWS, hidden.at, row * hidden.sequences);
        if (p) {
            p->row_bytes = row;
            p->first_row = (size_t)t->first_sequence;
            p->optional = 1; /* rnn carries something on GPUs alone */
        }
    }
}

int cmn_trainer_checkpoint_items(struct cmn_trainer *t, int fill)
{
    enum { BESIDES = 64 };
    struct cmn_checkpointing *c = t->checkpoint;
    struct cmn_state state;
    int states = 0;

    while (cmn_optimizer_state(&t->optimizer, states, &state)) {
        states++;
    }
    if (!c->part) {
        c->room = states + 3 * t->net->n + BESIDES;
        c->part = calloc((size_t)c->room, sizeof *c->part);
        if (!c->part) {
            return cmn_fail("out of memory");
        }
    }
    c->parts = 0;
    get_packs(t);
    for (int k = 0; k < CMN_PACKS; k++) {
        struct cmn_checkpoint_item *p =
            add(c, packs[k].name, packs[k].merge, c->pack[k], c->packed[k] * sizeof *c->pack[k]);
        if (p && packs[k].merge == CMN_MERGE_SUM) {
            p->scale = scale_of_momentum(t);
        }
        if (fill) {
            cmn_gradients_pack(&t->gradients, packs[k].kind, c->pack[k]);
        }
    }
    add_optimizer(t);
    if (fill) {
        cmn_recurrent_state_pull(cmn_net_of(t->net));
    }
    add_sequences(t);
    add(c, "random.common", CMN_MERGE_FIRST, cmn_random_stream(0), sizeof(uint64_t));
    add(c, "random.own", CMN_MERGE_DROP, cmn_random_stream(1), sizeof(uint64_t));
    add(c, "row", CMN_MERGE_FIRST, c->row, sizeof c->row);
    if (c->offset) {
        struct cmn_checkpoint_item *p =
            add(c, "offsets", CMN_MERGE_ROWS, c->offset, c->offsets * sizeof *c->offset);
        if (p) {
            p->row_bytes = sizeof *c->offset;
            p->first_row = (size_t)t->first_sequence;
        }
    }
    return 0;
}
