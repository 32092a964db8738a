#include "trainer/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "checkpoint/cfg_changes.h"
#include "config/pairs.h"
#include "engine/nonfinite.h"
#include "engine/replicas.h"
#include "mpi/call.h"

/* ---- attaching ---- */

/* Waits for all ranks: weights in shared memory are filled by one rank of the node, and then
 * sent. */
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

/* Ends the job if a key and this network do not go together. */
static void refuse_pairs(const struct cmn_options *o, const struct cmn_net *net)
{
    const struct cmn_net_traits is = cmn_net_traits(net);

    if ((is.follows && cmn_pairs_check_trait(o, CMN_LEARNS_IN_ORDER, is.follows)) ||
        (is.uses_adam && cmn_pairs_check_trait(o, CMN_USES_ADAM, "adam=1 in the cfg")) ||
        (is.own_update && cmn_pairs_check_trait(o, CMN_UPDATES_ITSELF, is.own_update)) ||
        (is.averages && cmn_pairs_check_trait(o, CMN_AVERAGES_ITSELF, "ema_alpha in the cfg"))) {
        cmn_fatal_reason();
    }
}

static void check_precision(const struct cmn_session *s, const struct cmn_net *net)
{
    const struct cmn_options *o = &s->options;

    if (o->mixed == CMN_MIXED_BF16 && !cmn_net_convolves(net) &&
        (s->topology.device >= 0 || !cmn_net_connects(net))) {
        cmn_fatal("cmn_mixed=bf16: the network has no convolution%s: remove the key",
                  s->topology.device >= 0 ? "" : " and no connected layer");
    }
}

void cmn_model_plan(const struct cmn_session *s, const struct cmn_net *net, struct cmn_optimizer *o)
{
    const struct cmn_net_traits is = cmn_net_traits(net);

    if (s->command->does == CMN_TRAINS) {
        cmn_session_refuse_pairs(s);
        refuse_pairs(&s->options, net);
        check_precision(s, net);
    }
    cmn_optimizer_plan(o, &s->topology, &s->options, s->communicator, s->exchange, is.uses_adam,
                       is.own_update);
}

/* Local, rank 0. Ends the job if the weights that Darknet has read hold NaN or Inf. */
static void check_weights(const struct cmn_model *m)
{
    struct cmn_nonfinite found;
    char what[160];

    if (m->session->options.nonfinite != CMN_NONFINITE_IGNORE &&
        cmn_nonfinite_tensor(&m->gradients, CMN_WEIGHT, &found)) {
        cmn_nonfinite_say(m->net, &found, what, sizeof what);
        cmn_fatal("%s in the file of weights, which is worthless (cmn_nonfinite=ignore would take "
                  "it)",
                  what);
    }
}

void cmn_model_attach(struct cmn_model *m, const struct cmn_feed *f, const char *cfg)
{
    const struct cmn_session *s = m->session;
    struct cmn_optimizer *o = &m->optimizer;

    m->size = cmn_net_size(m->net);
    set_names(m, cfg);
    cmn_feed_scale_rate(f);
    cmn_model_plan(s, m->net, o);
    o->loss_scale = cmn_net_traits(m->net).loss_scale;
    cmn_gradient_exchange_open(&m->gradients, m->net, &o->communicator, s->exchange);
    m->attached = 1;
    m->gradients.images = f->share.local;
    m->gradients.plain_statistics = f->share.whole;
    cmn_optimizer_open(o, &m->gradients, cmn_net_layers(m->net));
    if (cmn_feed_exact(f)) {
        cmn_optimizer_add_in_order(o, cmn_feed_exact(f));
    }
    wait_for_all(s);
    m->cfg_text = cmn_cfg_plain(s->cfg ? s->cfg : "");
    cmn_replicas_compare(&m->gradients, m->net, m->cfg_text, &s->topology);
    if (s->topology.rank == 0) {
        check_weights(m);
    }
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

int cmn_model_validates(const struct cmn_model *m)
{
    const struct cmn_session *s = m->session;

    return s->valid.images || (s->boxes.images && cmn_net_detects(m->net));
}

/* ---- the merged state of all ranks ---- */

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
