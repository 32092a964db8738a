#include "trainer/validation.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "base/timeline.h"
#include "engine/recurrent_state.h"
#include "mpi/call.h"

int cmn_validates(const struct cmn_session *s, const struct cmn_net *net)
{
    return s->valid.images || (s->boxes.images && cmn_net_detects(net));
}

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

void cmn_validate(const struct cmn_session *s, struct cmn_model *m, struct cmn_row *row)
{
    double began = cmn_clock();
    struct cmn_net_size trained = cmn_net_size(m->net);
    float *state = cmn_recurrent_state_clear(m->net);

    cmn_status_compute("validation");
    cmn_net_resize(m->net, m->size);
    cmn_model_swap_in_validated(m);
    (s->valid.images ? count_classes : count_boxes)(s, m->net, row);
    cmn_model_restore_own(m);
    cmn_net_resize(m->net, trained);
    cmn_recurrent_state_restore(m->net, state);
    cmn_timeline_span(CMN_SPAN_VALIDATE, -1, began, cmn_clock());
}
