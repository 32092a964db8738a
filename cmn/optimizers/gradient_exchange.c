#include "optimizers/gradient_exchange.h"

#include "mpi/device.h"

void cmn_gradient_exchange_open(struct cmn_gradients *g, struct cmn_net *net,
                                const struct cmn_communicator *c, void *self)
{
    const struct cmn_block_memory memory = {
        .self = self,
        .flat = c->memory,
        .weights = c->step ? c->common : NULL,
    };

    cmn_gradients_open(g, net, &memory);
}

void cmn_gradient_exchange_sum(struct cmn_gradients *g, const struct cmn_communicator *c,
                               void *self)
{
    float *on_device = g->exchange.metrics.data;

    if (!g->on_gpu) {
        c->allreduce(self, &g->exchange);
        return;
    }
    /* Wait for this rank's own GPU first, so that any later wait is for other ranks. */
    g->ops->send_metrics(g, on_device, g->metrics);
    cmn_device_wait(c->poll, self);
    c->allreduce(self, &g->exchange);
    g->ops->fetch_metrics(g, g->metrics, on_device);
}

void cmn_gradient_exchange_step(struct cmn_gradients *g, const struct cmn_communicator *c,
                                void *self, int images, float rate, float decay,
                                struct cmn_sgd *sgd)
{
    cmn_gradients_rates(g, images, rate, decay);
    sgd->rate = g->rate;
    sgd->decay = g->decay;
    sgd->scale = g->scale;
    c->step(self, &g->exchange, sgd);
}
