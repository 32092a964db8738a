/* Validation during training, which it does not disturb. */
#include "training.h"

#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "gradients_gpu.h"
#include "log.h"
#include "report/report.h"
#include "timeline.h"

int cmn_training_validates(const struct cmn_training *t)
{
    const struct cmn_session *s = t->session;

    return s->valid.images || (s->boxes.images && cmn_finds_boxes(t->net));
}

/* The statistics of this rank, one behind the other: *kept, which the caller frees, when `back` is not set; else the other
 * way round. */
static int keep_statistics(const struct cmn_gradients *g, float **kept, int back)
{
    size_t n = 0, at = 0;

    for (int i = 0; i < g->tensors; i++) {
        n += g->tensor[i].kind == CMN_STATISTIC ? g->tensor[i].n : 0;
    }
    if (!back) {
        *kept = calloc(n + 1, sizeof **kept);
        if (!*kept || cmn_gradients_pull(g, CMN_STATISTIC)) {
            return *kept ? -1 : cmn_fail("out of memory");
        }
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        if (x->kind == CMN_STATISTIC) {
            memcpy(back ? *x->at : *kept + at, back ? *kept + at : *x->at, x->n * sizeof **kept);
            at += x->n;
        }
    }
    return back ? cmn_gradients_push(g, CMN_STATISTIC) : 0;
}

static int count_classes(struct cmn_training *t, struct cmn_row *row)
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

static int count_boxes(struct cmn_training *t, struct cmn_row *row)
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

int cmn_training_validate(struct cmn_training *t, struct cmn_row *row)
{
    struct cmn_session *s = t->session;
    double begin = cmn_clock();
    int w = t->net->w, h = t->net->h;
    float *kept = NULL;
    int result;

    if (w != t->w || h != t->h) {
        resize_network(t->net, t->w, t->h);
    }
    result = keep_statistics(&t->gradients, &kept, 0) ||
             cmn_gradients_average_statistics(&t->gradients, &s->topology) ||
             (s->valid.images ? count_classes(t, row) : count_boxes(t, row)) ||
             keep_statistics(&t->gradients, &kept, 1);
    free(kept);
    if (w != t->w || h != t->h) {
        resize_network(t->net, w, h);
    }
    cmn_timeline_span(CMN_SPAN_VALIDATE, -1, begin, cmn_clock());
    return result ? cmn_fail_in("validation") : 0;
}
