#include "trainer/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "engine/replicas.h"
#include "mpi/call.h"
#include "mpi/files.h"

/* ---- attaching ---- */

/* Weights that ranks have in common are filled by one of them, and then sent. */
static void wait_for_all(const struct cmn_session *s)
{
    MPI_CALL(MPI_Barrier(s->topology.world));
}

static void set_names(struct cmn_model *m, const char *cfg)
{
    const char *slash = strrchr(cfg, '/');

    cmn_net_name(cfg, m->name, sizeof m->name);
    snprintf(m->cfg, sizeof m->cfg, "%s", slash ? slash + 1 : cfg);
}

/* cmn_exact: why the bits would depend on the number of ranks, or are not known not to. */
static void require_exact(const struct cmn_model *m, const struct cmn_feed *f)
{
    const struct cmn_options *o = &m->session->options;
    const char *why = NULL, *on_gpu = cmn_net_inexact_on_gpu(m->net, &why);
    const struct {
        int is;
        const char *what, *why;
    } refused[] = {
        {o->batch != CMN_BATCH_GLOBAL, "cmn_batch=per_rank",
         "each rank has a batch of its own there"},
        {o->scatter != CMN_SCATTER_GLOBAL, "cmn_scatter", "other ranks would draw other images"},
        {o->sync_bn != 0, "cmn_sync_bn=on", "it divides each micro-batch over the ranks"},
        {on_gpu != NULL, on_gpu, why},
        {cmn_net_follows(m->net) != NULL, cmn_net_follows(m->net),
         "each micro-batch is trained by what the ones before have shown"},
        {o->dtype != CMN_FP32, "cmn_allreduce_dtype", "what is rounded depends on the ranks"},
        {o->compress != CMN_COMPRESS_NONE, "cmn_compress", "what is left out depends on the ranks"},
        {o->local_steps > 1, "cmn_local_steps", "each rank trains weights of its own there"},
        {o->double_buffering != 0, "cmn_double_buffering", "a step's sum is used in that step"},
        {o->nonfinite == CMN_NONFINITE_SKIP && !strcmp(m->session->command->driver, "rnn"),
         "cmn_nonfinite=skip in rnn train", "a NaN stays in the state of its text"},
    };

    for (size_t i = 0; i < sizeof refused / sizeof refused[0] && cmn_feed_exact(f); i++) {
        if (refused[i].is) {
            cmn_fatal("cmn_exact=on does not go with %s: %s: leave one of them away",
                      refused[i].what, refused[i].why);
        }
    }
}

void cmn_model_attach(struct cmn_model *m, const struct cmn_feed *f, const char *cfg)
{
    const struct cmn_session *s = m->session;
    struct cmn_optimizer *o = &m->optimizer;

    m->size = cmn_net_size(m->net);
    set_names(m, cfg);
    cmn_feed_scale_rate(f);
    require_exact(m, f);
    cmn_optimizer_plan(o, &s->topology, &s->options, s->communicator, s->exchange,
                       cmn_net_uses_adam(m->net), cmn_net_own_update(m->net));
    o->loss_scale = cmn_net_loss_scale(m->net);
    cmn_gradients_open(&m->gradients, m->net, &o->communicator, s->exchange);
    m->attached = 1;
    m->gradients.images = f->share.local;
    m->gradients.plain_statistics = f->share.whole;
    cmn_optimizer_open(o, &m->gradients, cmn_net_layers(m->net));
    if (cmn_feed_exact(f)) {
        cmn_optimizer_add_in_order(o, cmn_feed_exact(f));
    }
    wait_for_all(s);
    m->cfg_text = cmn_files_cfg_text(cfg);
    cmn_replicas_compare(&m->gradients, m->net, m->cfg_text, &s->topology);
    cmn_replicas_broadcast(&m->gradients, m->net, &s->topology);
    wait_for_all(s);
    cmn_optimizer_begin(o);
}

void cmn_model_detach(struct cmn_model *m)
{
    if (m->attached) {
        cmn_optimizer_close(&m->optimizer);
        cmn_gradients_close(&m->gradients);
    }
    free(m->cfg_text);
    m->cfg_text = NULL;
    m->attached = 0;
}

/* ---- what all ranks together have ---- */

static float *keep(const struct cmn_gradients *g, enum cmn_tensor_kind kind)
{
    float *kept = cmn_malloc(cmn_gradients_floats(g, kind), sizeof *kept);

    cmn_gradients_pack(g, kind, kept);
    return kept;
}

static void put_back(const struct cmn_gradients *g, enum cmn_tensor_kind kind, float **kept)
{
    if (*kept) {
        cmn_gradients_unpack(g, kind, *kept);
        free(*kept);
        *kept = NULL;
    }
}

void cmn_model_swap_in_averages(struct cmn_model *m)
{
    const struct cmn_topology *top = &m->session->topology;

    if (top->size == 1 || !m->attached) {
        return;
    }
    m->own_statistics = keep(&m->gradients, CMN_STATISTIC);
    cmn_replicas_average_statistics(&m->gradients, top);
    if (!cmn_optimizer_synchronised(&m->optimizer)) {
        m->own_weights = keep(&m->gradients, CMN_WEIGHT);
        cmn_replicas_average_weights(&m->gradients, top);
    }
}

void cmn_model_swap_in_validated(struct cmn_model *m)
{
    struct cmn_ema *ema = &m->optimizer.ema;

    if (!m->attached || !(ema->decay > 0)) {
        cmn_model_swap_in_averages(m);
        return;
    }
    m->own_statistics = keep(&m->gradients, CMN_STATISTIC);
    cmn_gradients_unpack(&m->gradients, CMN_STATISTIC, ema->statistics);
    cmn_ema_swap_in(ema, &m->gradients);
    cmn_replicas_average_statistics(&m->gradients, &m->session->topology);
}

void cmn_model_restore_own(struct cmn_model *m)
{
    cmn_ema_restore(&m->optimizer.ema, &m->gradients);
    put_back(&m->gradients, CMN_STATISTIC, &m->own_statistics);
    put_back(&m->gradients, CMN_WEIGHT, &m->own_weights);
}
