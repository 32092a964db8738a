#include "trainer/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"

void cmn_step_begin(struct cmn_step *p)
{
    p->first = (long)cmn_net_iteration(p->model->net);
    CMN_EXTENSIONS(p, begin, p);
}

/* ---- micro-batches ---- */

int cmn_step_before_micro_batch(struct cmn_step *p)
{
    p->micro_batch_began = cmn_clock();
    if (p->micro_batch == 0) {
        p->seen = cmn_net_seen(p->model->net);
        p->skip = 0;
        CMN_EXTENSIONS(p, before_step, p);
    }
    CMN_EXTENSIONS(p, before_micro_batch, p);
    /* The images of a step count as seen one micro-batch after the other, as in one process; where
     * other ranks have some of them, this rank has its own place in their order. */
    return cmn_feed_seen(p->feed, p->micro_batch) -
           (p->micro_batch ? cmn_feed_seen(p->feed, p->micro_batch - 1) : 0);
}

void cmn_step_progress(struct cmn_step *p)
{
    cmn_status_progress();
    cmn_optimizer_poll(&p->model->optimizer);
}

void cmn_step_after_forward(struct cmn_step *p, int i)
{
    CMN_EXTENSIONS(p, after_layer, p, 0, i);
    cmn_step_progress(p);
    CMN_EXTENSIONS(p, before_layer, p);
}

void cmn_step_after_backward(struct cmn_step *p, int i)
{
    CMN_EXTENSIONS(p, after_layer, p, 1, i);
    if (cmn_step_is_last(p)) {
        cmn_optimizer_after_backward(&p->model->optimizer, i);
    } else {
        cmn_step_progress(p);
    }
    CMN_EXTENSIONS(p, before_layer, p);
}

int cmn_step_after_micro_batch(struct cmn_step *p)
{
    int last = cmn_step_is_last(p);

    CMN_EXTENSIONS(p, after_micro_batch, p);
    cmn_status_compute("the update");
    p->micro_batch = last ? 0 : p->micro_batch + 1;
    return last;
}

/* ---- the update ---- */

void cmn_step_update(struct cmn_step *p, struct cmn_rule *rule)
{
    struct cmn_optimizer *o = &p->model->optimizer;
    int sums_arrived;

    cmn_optimizer_finish_backward(o);
    p->exchange_began = cmn_clock();
    memset(o->metrics, 0, sizeof o->metrics);
    CMN_EXTENSIONS(p, before_exchange, p);
    p->lr = rule->rate;
    sums_arrived = cmn_optimizer_update(o, rule, (int)cmn_feed_step_images(p->feed), p->skip);
    if ((!sums_arrived && !o->policy->own_weights) || cmn_step_is_discarded(p)) {
        cmn_net_set_updates(p->model->net, cmn_net_updates(p->model->net) - 1); /* Adam's count */
    }
    p->updated = 1;
    p->fused = rule->done;
    CMN_EXTENSIONS(p, after_exchange, p);
    if (sums_arrived) {
        CMN_EXTENSIONS(p, after_sums, p);
    }
}

/* Local SGD: the mean of the weights, where it is due. */
static void agree_on_weights(struct cmn_step *p, int synchronise)
{
    p->exchange_began = cmn_clock();
    if (cmn_optimizer_after_update(&p->model->optimizer, synchronise)) {
        CMN_EXTENSIONS(p, after_sums, p);
    }
}

/* Saves what is due before the ranks synchronise at the end of the training: a run that resumes
 * this one then continues as a run without that end. */
static void save(struct cmn_step *p)
{
    if (p->due.checkpoint || cmn_step_ends_training(p)) {
        CMN_EXTENSIONS(p, save, p);
    }
    if (cmn_step_ends_training(p) && !cmn_optimizer_synchronised(&p->model->optimizer)) {
        cmn_status_wait("the average of the weights");
        agree_on_weights(p, 1);
        cmn_status_wait(NULL);
    }
}

static void end_step(struct cmn_step *p)
{
    int saves_first;

    CMN_EXTENSIONS(p, after_update, p);
    p->done++;
    /* Darknet saves at the end of an epoch, so the ranks must synchronise there anyway. They do so
     * before the row, which then has the loss of all steps. */
    p->epoch_ended =
        cmn_feed_epoch(p->feed, cmn_net_seen(p->model->net)) > cmn_feed_epoch(p->feed, p->seen);
    agree_on_weights(p, p->epoch_ended);
    p->due = (struct cmn_due){0};
    CMN_EXTENSIONS(p, after_step, p);
    /* The last row has the loss of all steps, too. But a training that was asked to stop is saved
     * after a row that is due anyway: it is that of a training without the stop, and its validation
     * may end the training by cmn_patience. */
    saves_first = cmn_step_ends_training(p) && !(p->due.row && p->session->stop_signal);
    if (saves_first) {
        save(p);
    }
    CMN_EXTENSIONS(p, report, p);
    if (!saves_first) {
        save(p);
    }
    CMN_EXTENSIONS(p, after_report, p);
    p->ended = cmn_clock();
}

float cmn_step_after_batch(struct cmn_step *p, float loss)
{
    if (p->updated) {
        p->updated = 0;
        end_step(p);
    }
    cmn_status_compute("loading images");
    return p->done ? p->mean_loss : loss;
}
