#include "trainer/sync_batch_norm.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/batch_norm.h"

static size_t most_filters(const struct cmn_gradients *g)
{
    size_t most = 0;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        most = t->kind == CMN_STATISTIC && t->n > most ? t->n : most;
    }
    return most;
}

static void *open_sync_batch_norm(struct cmn_step *p)
{
    const struct cmn_session *s = p->session;
    size_t filters = most_filters(&p->model->gradients);

    if (!s->options.sync_bn) {
        return NULL;
    }
    if (!filters) {
        cmn_say("cmn_sync_bn=on changes nothing: the network has no batch normalisation");
        return NULL;
    }
    if (s->topology.size > 1 && s->communicator->sums) {
        p->norm = cmn_batch_norm_open(&s->topology, &s->options, filters,
                                      cmn_net_traits(p->model->net).variance_less);
    }
    return p->norm;
}

static void close_sync_batch_norm(void *self)
{
    cmn_batch_norm_close(self);
}

/* Waits until the exchanges of this micro-batch have ended; on the CPU they have. */
static void after_micro_batch(void *self, struct cmn_step *p)
{
    (void)p;
    cmn_batch_norm_await(self);
}

int cmn_sync_batch_norm_runs(const struct cmn_step *p)
{
    return p->session->options.sync_bn && p->layer_ended > 0;
}

static void poll(void *self)
{
    cmn_status_progress();
    cmn_optimizer_poll(self);
}

/* Returns whether there is something to exchange. Gradients that are under way make progress
 * meanwhile. */
static int begin(struct cmn_step *p)
{
    struct cmn_optimizer *o = &p->model->optimizer;

    if (!p->norm || !cmn_sync_batch_norm_runs(p)) {
        return 0;
    }
    cmn_batch_norm_idle(p->norm, o->buckets.begun ? poll : NULL, o);
    return 1;
}

/* An exchange does not count as computation: the micro-batch's begin moves by as much. In the first
 * step nothing else comes to a GPU meanwhile: what CUDA brings there for the first time may wait
 * for what runs. */
static void end(struct cmn_step *p, double began)
{
    double took;

    if (p->done == 0) {
        cmn_batch_norm_await(p->norm);
    }
    took = cmn_clock() - began;
    p->sums.exchange += took;
    p->micro_batch_began += took;
}

void cmn_sync_batch_norm_forward(struct cmn_step *p, float *mean, float *variance, int n, int count)
{
    double began = cmn_clock();

    if (begin(p)) {
        cmn_batch_norm_forward(p->norm, mean, variance, (size_t)n, count);
        end(p, began);
    }
}

void cmn_sync_batch_norm_backward(struct cmn_step *p, float *mean_delta, float *variance_delta,
                                  int n, int count)
{
    double began = cmn_clock();

    if (begin(p)) {
        cmn_batch_norm_backward(p->norm, mean_delta, variance_delta, (size_t)n, count);
        end(p, began);
    }
}

const struct cmn_extension cmn_sync_batch_norm_extension = {
    .name = "batch normalisation over all ranks",
    .open = open_sync_batch_norm,
    .close = close_sync_batch_norm,
    .after_micro_batch = after_micro_batch,
};
