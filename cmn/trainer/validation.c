/* Extension, cmn_validate: validation during training. It leaves the training's state unchanged. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/timeline.h"
#include "mpi/call.h"
#include "report/row.h"
#include "trainer/extension.h"

static void count_classes(const struct cmn_session *s, struct cmn_net *net, struct cmn_row *row)
{
    struct cmn_score score;
    int chunk = cmn_net_batch(net);

    /* The ranks' parts of a batch may differ by one image; all ranks cut the list by the
     * smallest. */
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &chunk, 1, MPI_INT, MPI_MIN, s->topology.world));
    cmn_evaluate(net, &s->valid, chunk, &s->topology, &score);
    row->validation_loss = score.loss;
    row->validation_accuracy = (double)score.top1 / (double)score.images;
}

static void count_boxes(const struct cmn_session *s, struct cmn_net *net, struct cmn_row *row)
{
    /* The averages that are reported depend on neither threshold. */
    static const struct cmn_precision_plan plan = {.iou = .5, .confidence = .5f};
    struct cmn_box_score score;

    cmn_evaluate_boxes(net, &s->boxes, &plan, &s->topology, &score);
    free(score.each);
    if (score.all.boxes) {
        row->validation_map = score.all.ap[0];
        row->validation_map95 = cmn_precision_mean(&score.all);
    }
}

static void validate(const struct cmn_session *s, struct cmn_model *m, struct cmn_row *row)
{
    double began = cmn_clock();
    struct cmn_net_size trained = cmn_net_size(m->net);

    cmn_status_compute("validation");
    cmn_net_resize(m->net, m->size);
    cmn_model_swap_in_validated(m);
    (s->valid.images ? count_classes : count_boxes)(s, m->net, row);
    cmn_model_restore_own(m);
    cmn_net_resize(m->net, trained);
    cmn_timeline_span(CMN_SPAN_VALIDATE, -1, began, cmn_clock());
}

/* ---- when ---- */

static int is_due(const struct cmn_step *p)
{
    long every = p->session->options.validate;
    long before = cmn_feed_epoch(p->feed, p->seen);
    long now = cmn_feed_epoch(p->feed, cmn_net_seen(p->model->net));

    return cmn_model_validates(p->model) && now / every > before / every;
}

/* A stop request does not wait for a validation. The run that resumes this one validates in its
 * first step, unless cmn_patience may end the training here. */
static void after_step(void *self, struct cmn_step *p)
{
    const struct cmn_session *s = p->session;
    int due = is_due(p);
    int deferred = s->stop_signal && !cmn_best_may_end(&p->kept.best, &s->options);

    (void)self;
    p->kept.validation_pending = due && deferred;
    p->due.scheduled = due;
    p->due.validation = (due && !deferred) || (cmn_step_ends_training(p) && !s->stop_signal &&
                                               cmn_model_validates(p->model));
}

static void fill_row(void *self, struct cmn_step *p, struct cmn_row *row)
{
    (void)self;
    row->validation_loss = row->validation_accuracy = -1;
    row->validation_map = row->validation_map95 = -1;
    if (p->due.validation) {
        validate(p->session, p->model, row);
    }
}

const struct cmn_extension cmn_validation_extension = {
    .name = "validation",
    .after_step = after_step,
    .fill_row = fill_row,
};
