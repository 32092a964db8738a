/* Validation during training, which it does not disturb. */
#include "trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "base/log.h"
#include "report/report.h"
#include "base/timeline.h"
#include "base/status.h"

int cmn_trainer_validates(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;

    return s->valid.images || (s->boxes.images && cmn_finds_boxes(t->net));
}

static int count_classes(struct cmn_trainer *t, struct cmn_row *row)
{
    struct cmn_session *s = t->session;
    struct cmn_score score;
    int chunk = t->net->batch;

    /* Shares of a batch may differ by one image: all ranks cut the list by the smallest. */
    if (cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, &chunk, 1, MPI_INT, MPI_MIN, s->topology.world),
                      "MPI_Allreduce") ||
        cmn_evaluate(t->net, &s->valid, chunk, &s->topology, &score)) {
        return -1;
    }
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

    if (cmn_evaluate_boxes(t->net, &s->boxes, &plan, &s->topology, &score)) {
        return -1;
    }
    free(score.each);
    if (score.all.boxes) {
        row->validation_map = score.all.ap[0];
        row->validation_map95 = cmn_precision_mean(&score.all);
    }
    return 0;
}

static size_t floats(const struct cmn_recurrent_state *hidden)
{
    return hidden->n * hidden->sequences;
}

/* What recurrent layers carry to the next step, which becomes 0 as in a network that was just read. The caller frees; NULL with
 * a reason. */
static float *put_aside(struct network *net)
{
    struct cmn_recurrent_state hidden;
    size_t n = 0;
    float *kept, *next;

    if (cmn_recurrent_state_copy(cmn_net_of(net), CMN_RECURRENT_READ)) {
        return NULL;
    }
    for (int i = 0; cmn_recurrent_state_at(cmn_net_of(net), i, &hidden); i++) {
        n += floats(&hidden);
    }
    next = kept = calloc(n ? n : 1, sizeof *kept);
    if (!kept) {
        cmn_fail("out of memory");
        return NULL;
    }
    for (int i = 0; cmn_recurrent_state_at(cmn_net_of(net), i, &hidden);
         next += floats(&hidden), i++) {
        memcpy(next, hidden.at, floats(&hidden) * sizeof *next);
        memset(hidden.at, 0, floats(&hidden) * sizeof *next);
    }
    if (cmn_recurrent_state_copy(cmn_net_of(net), CMN_RECURRENT_WRITE)) {
        free(kept);
        return NULL;
    }
    return kept;
}

static int put_back(struct network *net, const float *kept)
{
    struct cmn_recurrent_state hidden;

    for (int i = 0; cmn_recurrent_state_at(cmn_net_of(net), i, &hidden);
         kept += floats(&hidden), i++) {
        memcpy(hidden.at, kept, floats(&hidden) * sizeof *kept);
    }
    return cmn_recurrent_state_copy(cmn_net_of(net), CMN_RECURRENT_WRITE);
}

int cmn_trainer_validate(struct cmn_trainer *t, struct cmn_row *row)
{
    struct cmn_session *s = t->session;
    double begin = cmn_clock();
    int w = t->net->w, h = t->net->h;
    float *hidden = put_aside(t->net);
    int result;

    if (!hidden) {
        return cmn_fail_in("validation");
    }
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
    result = put_back(t->net, hidden) || result ? -1 : 0;
    free(hidden);
    cmn_timeline_span(CMN_SPAN_VALIDATE, -1, begin, cmn_clock());
    return result ? cmn_fail_in("validation") : 0;
}
