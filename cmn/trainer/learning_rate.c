/* The learning rate of a training on several ranks.
 *
 * cmn_scale_lr=linear: N ranks with a batch each take N times the cfg's rate (linear scaling: Goyal et al., "Accurate, Large
 * Minibatch SGD: Training ImageNet in 1 Hour", 2017). It is the same as another learning_rate in the cfg, so each policy
 * means what it means, and burn_in is the warm-up: from 0 to the scaled rate, by `power`. */
#include "trainer/trainer.h"

#include <stdio.h>

#include "darknet.h"
#include "base/log.h"

enum { WARM_EPOCHS = 5 }; /* of Goyal et al. */

static int scales(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;

    return s->options.scale_lr == CMN_SCALE_LINEAR && s->command->does == CMN_TRAINS &&
           s->options.batch == CMN_BATCH_PER_RANK;
}

void cmn_trainer_rate(struct cmn_trainer *t)
{
    if (scales(t)) {
        t->net->learning_rate *= (float)t->session->topology.size;
    }
}

/* What burn_in is in this training, in words. */
static void tell_warm_up(const struct cmn_trainer *t, char *text, size_t bytes)
{
    const network *net = t->net;
    size_t images = t->session->train_images * WARM_EPOCHS;

    if (net->burn_in && net->max_batches && net->burn_in >= net->max_batches) {
        snprintf(text, bytes,
                 ": never reached, for burn_in=%d does not end before iteration %d, the last one: "
                 "lower it",
                 net->burn_in, net->max_batches);
    } else if (net->burn_in) {
        snprintf(text, bytes, ", reached after burn_in=%d iterations", net->burn_in);
    } else if (images) {
        snprintf(text, bytes,
                 " from the first iteration on; where that diverges, warm up by burn_in (%d epochs "
                 "are %zu iterations)",
                 WARM_EPOCHS, images / cmn_trainer_step_images(t));
    } else {
        snprintf(text, bytes,
                 " from the first iteration on; where that diverges, warm up by burn_in");
    }
}

void cmn_trainer_tell_rate(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    char warm_up[256];

    if (s->options.scale_lr != CMN_SCALE_LINEAR || s->topology.size == 1) {
        return;
    }
    if (!scales(t)) {
        cmn_say("cmn_scale_lr=linear changes nothing with cmn_batch=global: the batch of all ranks "
                "is the cfg's");
        return;
    }
    tell_warm_up(t, warm_up, sizeof warm_up);
    cmn_say("learning rate %g, %d times the cfg's%s", (double)t->net->learning_rate,
            s->topology.size, warm_up);
}
