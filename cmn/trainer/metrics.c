/* Extension: loss and right answers, summed over the ranks in the exchange of the gradients. */
#include <stdlib.h>

#include "base/memory.h"
#include "report/row.h"
#include "trainer/extension.h"

struct metrics {
    float loss, right; /* of this rank, over the micro-batches of the current step */
    float mean_loss;   /* of them: the best that is known until the sums arrive */
};

static void *open_metrics(struct cmn_step *p)
{
    (void)p;
    return cmn_calloc(1, sizeof(struct metrics));
}

static void after_micro_batch(void *self, struct cmn_step *p)
{
    struct metrics *m = self;

    p->loss = cmn_net_loss(p->model->net);
    p->right = (float)cmn_net_count_right(p->model->net);
    m->loss += p->loss;
    m->right += p->right;
}

static void before_exchange(void *self, struct cmn_step *p)
{
    struct metrics *m = self;
    float *metrics = p->model->optimizer.metrics;

    metrics[CMN_LOSS] = m->loss;
    metrics[CMN_RIGHT] = m->right;
    metrics[CMN_IMAGES] = (float)cmn_feed_own_images(p->feed);
    m->mean_loss = metrics[CMN_LOSS] / metrics[CMN_IMAGES];
    m->loss = m->right = 0;
}

static void after_exchange(void *self, struct cmn_step *p)
{
    const struct metrics *m = self;

    if (!p->skip && !cmn_step_is_discarded(p)) {
        p->mean_loss = m->mean_loss;
    }
}

static void after_sums(void *self, struct cmn_step *p)
{
    const float *metrics = p->model->optimizer.metrics;

    (void)self;
    if (cmn_step_is_discarded(p)) {
        return; /* as a step that cmn_nonfinite=skip discards */
    }
    p->mean_loss = metrics[CMN_LOSS] / metrics[CMN_IMAGES];
    p->sums.loss += metrics[CMN_LOSS];
    p->sums.right += metrics[CMN_RIGHT];
    p->sums.images += metrics[CMN_IMAGES];
}

static void fill_row(void *self, struct cmn_step *p, struct cmn_row *row)
{
    const struct cmn_row_sums *sums = &p->sums;

    (void)self;
    row->loss = sums->images > 0 ? sums->loss / sums->images : -1;
    row->accuracy =
        sums->images > 0 && cmn_net_classifies(p->model->net) ? sums->right / sums->images : -1;
}

const struct cmn_extension cmn_metrics_extension = {
    .name = "loss and right answers",
    .open = open_metrics,
    .close = free,
    .after_micro_batch = after_micro_batch,
    .before_exchange = before_exchange,
    .after_exchange = after_exchange,
    .after_sums = after_sums,
    .fill_row = fill_row,
};
