/* Extension: layers in bf16 on the CPU (cmn_mixed=bf16). */
#include "engine/bf16_layers.h"
#include "trainer/extension.h"
#include "trainer/step.h"
#include "trainer/sync_batch_norm.h"

static void statistics(void *self, float *mean, float *variance, int n, int count)
{
    cmn_sync_batch_norm_forward(self, mean, variance, n, count);
}

static void deltas(void *self, float *mean_delta, float *variance_delta, int n, int count)
{
    cmn_sync_batch_norm_backward(self, mean_delta, variance_delta, n, count);
}

static void progress(void *self)
{
    cmn_step_progress(self);
}

static void *open_bf16(struct cmn_step *p)
{
    const struct cmn_bf16_trainer trainer = {p, statistics, deltas, progress};

    if (p->session->options.mixed != CMN_MIXED_BF16 || p->session->topology.device >= 0) {
        return NULL;
    }
    cmn_bf16_layers_open(p->model->net, &trainer);
    return p;
}

static void close_bf16(void *self)
{
    (void)self;
    cmn_bf16_layers_close();
}

const struct cmn_extension cmn_bf16_extension = {
    .name = "layers in bf16",
    .open = open_bf16,
    .close = close_bf16,
};
