/* Extension: what the watchdog is told of a step. */
#include "base/status.h"
#include "trainer/extension.h"

static void before_micro_batch(void *self, struct cmn_step *p)
{
    (void)self;
    cmn_status_compute("forward");
    cmn_status_iteration(cmn_step_iteration(p) + 1);
    cmn_status_layer(0);
}

/* Darknet turns to the next layer now. */
static void after_layer(void *self, struct cmn_step *p, int backward, int layer)
{
    int last = cmn_net_layers(p->model->net) - 1;

    (void)self;
    if (backward) {
        cmn_status_compute("backward");
        cmn_status_layer(layer > 0 ? layer - 1 : 0);
    } else {
        cmn_status_layer(layer < last ? layer + 1 : last);
    }
}

static void before_exchange(void *self, struct cmn_step *p)
{
    (void)self;
    cmn_status_wait("the sum of the gradients");
    cmn_status_bytes(p->model->gradients.exchange.block.n * sizeof(float));
}

static void compute(void *self, struct cmn_step *p)
{
    (void)self;
    (void)p;
    cmn_status_wait(NULL);
}

static void after_update(void *self, struct cmn_step *p)
{
    (void)self;
    (void)p;
    cmn_status_wait("the average of the weights");
}

const struct cmn_extension cmn_status_extension = {
    .name = "status for the watchdog",
    .before_micro_batch = before_micro_batch,
    .after_layer = after_layer,
    .before_exchange = before_exchange,
    .after_exchange = compute,
    .after_update = after_update,
    .after_step = compute,
};
