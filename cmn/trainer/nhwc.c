/* Extension: layers on images in NHWC (engine/nhwc_layers.h), on the CPU. */
#include "engine/nhwc_layers.h"
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

static void *open_nhwc(struct cmn_step *p)
{
    const struct cmn_nhwc_trainer trainer = {p, statistics, deltas, progress};

    if (p->session->topology.device >= 0) {
        return NULL;
    }
    cmn_nhwc_layers_open(p->model->net, p->session->options.mixed == CMN_MIXED_BF16, &trainer);
    return p;
}

static void close_nhwc(void *self)
{
    (void)self;
    cmn_nhwc_layers_close();
}

const struct cmn_extension cmn_nhwc_extension = {
    .name = "layers in NHWC",
    .open = open_nhwc,
    .close = close_nhwc,
};
