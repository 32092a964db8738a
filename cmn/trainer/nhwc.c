/* Extension: layers on images in NHWC (engine/nhwc_layers.h), on the CPU; in bf16, if cmn_mixed asks
 * for it or its measurement does. */
#include "base/log.h"
#include "engine/convolution.h"
#include "engine/nhwc_layers.h"
#include "mpi/call.h"
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

/* Collective. Returns whether all ranks have bf16 and its products are faster by a tenth: other
 * layers gain less. */
static int measure(const struct cmn_session *s, struct cmn_net *net)
{
    int there = cmn_convolution_use_bf16(1), all;
    double seconds[2] = {0, 0}, sum[2];

    MPI_CALL(MPI_Allreduce(&there, &all, 1, MPI_INT, MPI_MIN, s->topology.world));
    if (all) {
        seconds[1] = cmn_nhwc_layers_measure(net, 1);
    }
    if (!all) {
        cmn_say("cmn_mixed=auto: 32 bits: the processor of a rank, or its program, has no bf16");
        return 0;
    }
    seconds[0] = cmn_nhwc_layers_measure(net, 0);
    MPI_CALL(MPI_Allreduce(seconds, sum, 2, MPI_DOUBLE, MPI_SUM, s->topology.world));
    all = sum[1] < 0.9 * sum[0];
    cmn_say("cmn_mixed=auto: %s: a micro-batch's products take %.3g ms in bf16, and %.3g ms in "
            "32 bits",
            all ? "bf16" : "32 bits", sum[1] / s->topology.size * 1e3,
            sum[0] / s->topology.size * 1e3);
    return all;
}

static void *open_nhwc(struct cmn_step *p)
{
    const struct cmn_nhwc_trainer trainer = {p, statistics, deltas, progress};
    struct cmn_session *s = p->session;

    if (s->topology.device >= 0) {
        return NULL;
    }
    if (s->options.mixed == CMN_MIXED_AUTO) {
        s->options.mixed = measure(s, p->model->net) ? CMN_MIXED_BF16 : CMN_MIXED_OFF;
    }
    cmn_nhwc_layers_open(p->model->net, s->options.mixed == CMN_MIXED_BF16, &trainer);
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
