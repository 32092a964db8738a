/* Double buffering: the gradients of a step are exchanged during the next step, whose update uses
 * their sums.
 *
 * The first update does nothing, and the gradients of the last step are dropped. The metrics are
 * exchanged with the gradients, so they are one step late, too.
 *
 * On a GPU the update is queued on the device behind the exchange. The host then waits only for the
 * exchange, not for backward, and the GPU never waits for the host. Only if the host decides by the
 * sums (cmn_decides_by_sums) does it wait before it queues the update.
 *
 * Adam needs no momentum. On the CPU Darknet's own update applies its rule: the sums wait for it in
 * the memory of the momentum, while the gradients of the step go to the exchange. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compression/compressor.h"
#include "optimizers/update_policy.h"

struct double_buffering {
    struct cmn_exchange_copy copy;
    int update_loaded; /* Darknet's update has run, so its kernels are loaded on the GPU */
};

static void open_both(struct cmn_optimizer *o)
{
    struct double_buffering *d = o->state = cmn_calloc(1, sizeof *d);

    if (!o->own_adam) {
        cmn_velocity_open(o);
    }
    cmn_copy_open(o, &d->copy, 1);
}

static void begin(struct cmn_optimizer *o)
{
    struct double_buffering *d = o->state;

    cmn_prepare(o, &d->copy.x);
}

static void complete(struct cmn_optimizer *o)
{
    struct double_buffering *d = o->state;

    cmn_copy_complete(o, &d->copy);
}

static void forget_stop_requests(struct cmn_optimizer *o)
{
    struct double_buffering *d = o->state;

    cmn_copy_forget_stop_requests(o, &d->copy);
}

/* Keeps the sums for Darknet's update, which will follow. */
static void hand_to_darknet(struct cmn_optimizer *o, float *sums)
{
    const struct cmn_flat_buffer_ops *ops = o->gradients->ops;
    size_t n = o->gradients->exchange.block.n;

    ops->copy(o->velocity.at, sums, n);
    ops->zero(sums, n);
    o->velocity.darknet_follows = 1;
}

/* Updates with o->keeps of the sums. */
static void use(struct cmn_optimizer *o, const struct cmn_rule *rule, int images)
{
    const struct double_buffering *d = o->state;
    float *sums = d->copy.x.block.data;

    if (o->adam && o->keeps < 1) {
        o->gradients->ops->scale(sums, (float)o->keeps, d->copy.x.block.n);
    }
    if (o->own_adam) {
        cmn_adam_update(o, sums, rule, images);
    } else if (o->adam) {
        hand_to_darknet(o, sums);
    } else {
        cmn_velocity_update(o, sums, rule, images);
    }
}

/* Queues the update behind the exchange that is under way. Returns 0 if that is not possible. */
static int update_in_order(struct cmn_optimizer *o, const struct cmn_rule *rule, int images)
{
    const struct double_buffering *d = o->state;
    const struct cmn_communicator *c = &o->communicator;

    if (!d->copy.under_way || !o->gradients->on_gpu || !c->order || cmn_decides_by_sums(o) ||
        !c->order(o->self)) {
        return 0;
    }
    o->keeps = 1;
    use(o, rule, images);
    return 1;
}

/* Updates with the sums of the step before, if there are any. Then o->metrics holds the sums of
 * that step's metrics, and the function returns 1. */
static int update_with_step_before(struct cmn_optimizer *o, const struct cmn_rule *rule, int images)
{
    struct double_buffering *d = o->state;
    int updated = update_in_order(o, rule, images), arrived;

    cmn_copy_complete(o, &d->copy);
    arrived = d->copy.arrived;
    if (arrived) {
        o->gradients->ops->fetch_metrics(o->gradients, o->metrics, d->copy.x.metrics.data);
        if (!updated && cmn_use_sums(o, &d->copy.x, images)) {
            use(o, rule, images);
        }
    }
    d->copy.arrived = 0;
    return arrived;
}

static int update(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    const struct cmn_flat_buffer_ops *ops = o->gradients->ops;
    struct cmn_span *block = &o->gradients->exchange.block;
    struct double_buffering *d = o->state;
    float metrics[CMN_METRICS];
    int fresh;

    memcpy(metrics, o->metrics, sizeof metrics);
    fresh = update_with_step_before(o, rule, images);
    ops->copy(d->copy.x.block.data, block->data, block->n);
    ops->zero(block->data, block->n);
    ops->send_metrics(o->gradients, d->copy.x.metrics.data, metrics);
    d->copy.x.images = (float)images;
    cmn_copy_begin(o, &d->copy);
    /* Darknet's first update loads its kernels on the GPU, and loading may wait for all running
     * kernels: this exchange among them waits for other ranks, and these for this rank. So it ends
     * first. */
    if (o->own_update && fresh && !d->update_loaded) {
        cmn_copy_complete(o, &d->copy);
        d->update_loaded = 1;
    }
    cmn_velocity_to_darknet(o, rule, images);
    return fresh;
}

/* Discards this step's gradients; the sums of the step before update the weights as usual. */
static int skip(struct cmn_optimizer *o, struct cmn_rule *rule, int images)
{
    struct cmn_span *block = &o->gradients->exchange.block;
    int fresh;

    o->gradients->ops->zero(block->data, block->n);
    fresh = update_with_step_before(o, rule, images);
    cmn_velocity_to_darknet(o, rule, images);
    return fresh;
}

static enum cmn_state_owner state(struct cmn_optimizer *o, int i, struct cmn_state *state)
{
    struct double_buffering *d = o->state;
    struct cmn_exchange_copy *copy = &d->copy;
    const struct cmn_exchange *x = &copy->x;
    size_t bytes = o->gradients->exchange.block.n * sizeof(float);
    int without = o->adam != 0;
    const struct cmn_policy_entry entry[] = {
        {{"velocity", o->velocity.at, bytes, CMN_VALUES_FINITE, 0}, CMN_STATE_MOMENTUM, 1},
        {{"sums", x->block.data, (x->block.n + x->metrics.n) * sizeof(float), CMN_VALUES_ANY, 0},
         CMN_STATE_OF_ALL,
         1},
        {{"sums arrived", &copy->arrived, sizeof copy->arrived, CMN_VALUES_FLAG, 0},
         CMN_STATE_OF_ALL,
         0},
    };
    const int entries = sizeof entry / sizeof entry[0] - without;

    return cmn_policy_entry(o, entry + without, entries, i, state);
}

static void close_both(struct cmn_optimizer *o)
{
    struct double_buffering *d = o->state;

    cmn_copy_close(o, &d->copy);
    cmn_velocity_close(o);
    free(d);
    o->state = NULL;
}

const struct cmn_update_policy cmn_double_buffering = {
    .name = "double buffering",
    .key = "cmn_double_buffering",
    .own_velocity = 1,
    .sends_copy = 1,
    .blocks = 2,
    .open = open_both,
    .begin = begin,
    .update = update,
    .skip = skip,
    .complete = complete,
    .forget_stop_requests = forget_stop_requests,
    .state = state,
    .close = close_both,
};
