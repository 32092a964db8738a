/* What all ranks together would have: lent to the network while something looks at it, and taken back, so that the training
 * goes on as if nobody had looked. */
#include "trainer/trainer.h"

#include <stdlib.h>

#include "base/memory.h"
#include "engine/replicas.h"

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

int cmn_trainer_swap_in_averages(struct cmn_trainer *t)
{
    const struct cmn_topology *top = &t->session->topology;

    if (top->size == 1) {
        return 0;
    }
    t->kept_statistics = keep(&t->gradients, CMN_STATISTIC);
    cmn_replicas_average_statistics(&t->gradients, top);
    if (!cmn_optimizer_synchronised(&t->optimizer)) {
        t->kept_weights = keep(&t->gradients, CMN_WEIGHT);
        cmn_replicas_average_weights(&t->gradients, top);
    }
    return 0;
}

int cmn_trainer_restore_own(struct cmn_trainer *t)
{
    put_back(&t->gradients, CMN_STATISTIC, &t->kept_statistics);
    put_back(&t->gradients, CMN_WEIGHT, &t->kept_weights);
    return 0;
}
