/* cmn_sync_bn in a training: whether statistics are exchanged, when, and what it takes. */
#include "trainer/trainer.h"

#include <string.h>

#include "base/log.h"
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

int cmn_trainer_norm_open(struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    size_t filters = most_filters(&t->gradients);

    if (!s->options.sync_bn) {
        return 0;
    }
    if (s->options.local_steps > 1) {
        return cmn_fail("cmn_sync_bn=1 and cmn_local_steps=%ld do not go together: with local "
                        "steps each rank trains weights of its own, which have no statistics in "
                        "common: leave one of them away",
                        s->options.local_steps);
    }
    if (!filters) {
        cmn_say("cmn_sync_bn=1 changes nothing: the network has no batch normalisation");
        return 0;
    }
    if (s->topology.size == 1 || !s->communicator->sums) {
        return 0;
    }
    t->norm = cmn_batch_norm_open(&s->topology, &s->options, filters);
    return 0;
}

int cmn_trainer_syncs(const struct cmn_trainer *t)
{
    return t->session->options.sync_bn && t->mark > 0;
}

static int poll(void *self)
{
    return cmn_trainer_progress(self);
}

int cmn_trainer_norm(struct cmn_trainer *t, enum cmn_direction way, float *mean, float *variance,
                     int n, int count)
{
    double began, took;

    if (!t->norm || !cmn_trainer_syncs(t)) {
        return 0;
    }
    began = cmn_clock();
    cmn_batch_norm_idle(t->norm, t->optimizer.begun ? poll : NULL, t);
    (way == CMN_FORWARD ? cmn_batch_norm_forward : cmn_batch_norm_backward)(t->norm, mean, variance,
                                                                            (size_t)n, count);
    /* Not the time of a computation: its clock is put on by as much. */
    took = cmn_clock() - began;
    t->sums.exchange += took;
    t->pass_began += took;
    return 0;
}
