/* Validation during training, which it does not disturb. */
#include "trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "base/log.h"
#include "engine/recurrent_state.h"
#include "report/report.h"
#include "base/timeline.h"
#include "base/status.h"

int cmn_trainer_validates(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;

    return s->valid.images || (s->boxes.images && cmn_net_detects(cmn_net_of(t->net)));
}

static int count_classes(struct cmn_trainer *t, struct cmn_row *row)
{
    struct cmn_session *s = t->session;
    struct cmn_score score;
    int chunk = t->net->batch;

    /* Shares of a batch may differ by one image: all ranks cut the list by the smallest. */
    if (cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, &chunk, 1, MPI_INT, MPI_MIN, s->topology.world),
                      "MPI_Allreduce")) {
        return -1;
    }
    cmn_evaluate(cmn_net_of(t->net), &s->valid, chunk, &s->topology, &score);
    row->validation_loss = score.loss;
    row->validation_accuracy = (double)score.top1 / (double)score.images;
    return 0;
}

static int count_boxes(struct cmn_trainer *t, struct cmn_row *row)
{
    /* The means depend on neither of the two thresholds. */
    static const struct cmn_precision_plan plan = {.iou = .5, .confidence = .5f};
    struct cmn_session *s = t->session;
    struct cmn_box_score score;

    cmn_evaluate_boxes(cmn_net_of(t->net), &s->boxes, &plan, &s->topology, &score);
    free(score.each);
    if (score.all.boxes) {
        row->validation_map = score.all.ap[0];
        row->validation_map95 = cmn_precision_mean(&score.all);
    }
    return 0;
}

int cmn_trainer_validate(struct cmn_trainer *t, struct cmn_row *row)
{
    struct cmn_session *s = t->session;
    double begin = cmn_clock();
    int w = t->net->w, h = t->net->h;
    float *hidden = cmn_recurrent_state_clear(cmn_net_of(t->net));
    int result;

    cmn_status_compute("validation");
    if (w != t->w || h != t->h) {
        resize_network(t->net, t->w, t->h);
    }
    result = cmn_trainer_swap_in_averages(t) ||
             (s->valid.images ? count_classes(t, row) : count_boxes(t, row)) ||
             cmn_trainer_restore_own(t);
    if (w != t->w || h != t->h) {
        resize_network(t->net, w, h);
    }
    cmn_recurrent_state_restore(cmn_net_of(t->net), hidden);
    cmn_timeline_span(CMN_SPAN_VALIDATE, -1, begin, cmn_clock());
    return result ? cmn_fail_in("validation") : 0;
}
