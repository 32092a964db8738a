/* Extension: a step is divided over the ranks by micro-batches or images (trainer/feed.h), and
 * counts as one process would count it. */
#include "base/random.h"
#include "engine/convolution.h"
#include "engine/replicas.h"
#include "trainer/extension.h"

static void before_step(void *self, struct cmn_step *p)
{
    (void)self;
    if (cmn_feed_begin_step(p->feed)) {
        cmn_optimizer_divide(&p->model->optimizer, p->feed->first);
    }
    p->model->gradients.exchange.images = (float)cmn_feed_step_images(p->feed);
}

static void before_micro_batch(void *self, struct cmn_step *p)
{
    const struct cmn_feed *f = p->feed;

    (void)self;
    if (p->micro_batch == 0) {
        cmn_convolution_hold_weights(f->share.micro_batches > 1);
        cmn_gradients_scale_statistics(&p->model->gradients, &f->share.before);
    }
    if (cmn_feed_exact(f)) {
        cmn_feed_seed_micro_batch(p->seen, f->share.first + p->micro_batch);
    } else {
        cmn_random_own();
    }
}

static void after_micro_batch(void *self, struct cmn_step *p)
{
    const struct cmn_feed *f = p->feed;
    struct cmn_net *net = p->model->net;
    const float metrics[CMN_METRICS] = {
        [CMN_LOSS] = p->loss, [CMN_RIGHT] = p->right, [CMN_IMAGES] = (float)f->share.local};

    (void)self;
    cmn_random_common();
    if (cmn_feed_exact(f) && !f->share.spare) {
        cmn_optimizer_after_micro_batch(&p->model->optimizer, metrics);
    }
    if (cmn_step_is_last(p)) {
        cmn_net_set_seen(net, cmn_net_seen(net) + cmn_feed_step_images(f) -
                                  (size_t)cmn_feed_seen(f, p->micro_batch));
        cmn_gradients_scale_statistics(&p->model->gradients, &f->share.after);
        cmn_convolution_hold_weights(0);
    }
}

static void after_update(void *self, struct cmn_step *p)
{
    (void)self;
    cmn_replicas_average_followed(&p->model->gradients, &p->session->topology);
}

const struct cmn_extension cmn_division_extension = {
    .name = "division of a step",
    .before_step = before_step,
    .before_micro_batch = before_micro_batch,
    .after_micro_batch = after_micro_batch,
    .after_update = after_update,
};
