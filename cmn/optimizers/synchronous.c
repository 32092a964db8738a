/* Synchronous updates: every step sums the gradients over all ranks, then updates the weights. */
#include "compression/compressor.h"
#include "optimizers/accumulation.h"
#include "optimizers/update_policy.h"

/* This begins no exchange, but gives a compressor its memory, which a checkpoint can then fill. */
static void prepare(struct cmn_optimizer *o)
{
    cmn_prepare(o, &o->gradients->exchange);
}

/* ---- the momentum in the flat buffer ---- */

static void open_nothing(struct cmn_optimizer *o)
{
    (void)o;
}

/* The sum contains every rank's momentum, so each rank keeps 1/size of it. Only Adam's sums can be
 * clipped or discarded here: its gradients lie apart from what it keeps. */
static int update(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    struct cmn_span *block = &o->gradients->exchange.block;

    cmn_sum_gradients(o, rule, images);
    if (!cmn_use_sums(o, &o->gradients->exchange, images)) {
        rule->done = 1;
    } else if (o->keeps < 1) {
        o->gradients->ops->scale(block->data, (float)o->keeps, block->n);
    }
    if (o->own_adam && !rule->done) {
        cmn_adam_update(o, block->data, rule, images);
        rule->done = 1;
    }
    rule->batch = images;
    rule->momentum /= (float)o->topology->size;
    return 1;
}

static void throw_away(struct cmn_optimizer *o, struct cmn_rule *rule)
{
    struct cmn_span *block = &o->gradients->exchange.block;

    o->gradients->ops->zero(block->data, block->n);
    if (o->accumulation) {
        cmn_accumulation_end_step(o->accumulation);
    }
    rule->done = 1;
}

/* Only called with Adam, whose gradients lie apart from what it keeps. */
static int skip(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    (void)images;
    throw_away(o, rule);
    return 0;
}

static enum cmn_state_owner state_of_communicator(struct cmn_optimizer *o, int i,
                                                  struct cmn_state *state)
{
    return cmn_policy_entry(o, NULL, 0, i, state);
}

static void close_nothing(struct cmn_optimizer *o)
{
    (void)o;
}

const struct cmn_update_policy cmn_synchronous = {
    .name = "synchronous",
    .steps = 1,
    .open = open_nothing,
    .begin = prepare, /* only Adam can have a compressor with this policy */
    .update = update,
    .skip = skip,
    .state = state_of_communicator,
    .close = close_nothing,
};

/* ---- the momentum in its own memory ---- */

static int update_separate(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    cmn_sum_gradients(o, rule, images);
    if (!rule->done && cmn_use_sums(o, &o->gradients->exchange, images)) {
        cmn_velocity_update(o, o->gradients->exchange.block.data, rule, images);
    }
    cmn_velocity_to_darknet(o, rule, images);
    return 1;
}

/* The first rank of a node reads and writes the momentum that its ranks share. */
static enum cmn_state_owner state(struct cmn_optimizer *o, int i, struct cmn_state *state)
{
    size_t bytes = o->velocity.fills ? o->gradients->exchange.block.n * sizeof(float) : 0;
    const struct cmn_policy_entry entry[] = {
        {{"velocity", o->velocity.at, bytes, CMN_VALUES_FINITE, 0}, CMN_STATE_MOMENTUM, 1},
    };

    return cmn_policy_entry(o, entry, o->velocity.as_gradients ? 0 : 1, i, state);
}

const struct cmn_update_policy cmn_separate_momentum = {
    .name = "separate momentum",
    .own_velocity = 1,
    .steps = 1,
    .blocks = 1,
    .open = cmn_velocity_open,
    .begin = prepare,
    .update = update_separate,
    .skip = skip,
    .state = state,
    .close = cmn_velocity_close,
};
