#include "trainer/best.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/status.h"
#include "mpi/call.h"
#include "report/report.h"
#include "report/row.h"
#include "trainer/extension.h"
#include "trainer/nonfinite_policy.h"
#include "trainer/weights_file.h"

int cmn_best_ended(const struct cmn_best *b, const struct cmn_options *o)
{
    return o->patience && o->validate && b->worse >= o->patience;
}

int cmn_best_may_end(const struct cmn_best *b, const struct cmn_options *o)
{
    return o->patience && b->worse + 1 >= o->patience;
}

/* ---- the file ---- */

static void name_file(const struct cmn_model *m, char file[PATH_MAX])
{
    snprintf(file, PATH_MAX, "%s/%s_best.weights", m->session->backup, m->name);
}

int cmn_best_is(const struct cmn_model *m, const char *file)
{
    char own[PATH_MAX];

    name_file(m, own);
    return !strcmp(file, own);
}

int cmn_best_owns(const struct cmn_model *m, const char *file)
{
    return cmn_model_validates(m) && cmn_best_is(m, file);
}

/* Local, rank 0. Returns whether the weights are in the file. */
static int write_file(struct cmn_step *step)
{
    struct cmn_model *m = step->model;
    char file[PATH_MAX];

    name_file(m, file);
    cmn_nonfinite_check_weights(step->nonfinite);
    cmn_status_compute("writing the best weights");
    if (!cmn_weights_file_write(m, file)) {
        return 1;
    }
    cmn_report_clear(m->session->report);
    cmn_warn("best weights not written to %s: %s; the training continues, and saves the next that "
             "are better than those in the file",
             file, strerror(errno));
    return 0;
}

/* Collective. Returns, on all ranks, whether rank 0 has written the file. */
static int save(struct cmn_step *step)
{
    const struct cmn_topology *top = &step->session->topology;
    int saved = 0;

    cmn_status_wait("the averages that are made for saving");
    cmn_model_swap_in_validated(step->model);
    cmn_status_wait(NULL);
    if (top->rank == 0) {
        saved = write_file(step);
    }
    cmn_model_restore_own(step->model);
    cmn_mpi_bcast(&saved, sizeof saved, MPI_BYTE, top->world);
    return saved;
}

void cmn_best_check(struct cmn_best *b, const struct cmn_model *m)
{
    char file[PATH_MAX];
    size_t least = b->seen ? b->seen : 1;
    int lost;

    if (!b->known || !cmn_model_validates(m)) {
        return;
    }
    name_file(m, file);
    lost = m->session->topology.rank == 0 && cmn_weights_file_seen(file) < least;
    cmn_mpi_bcast(&lost, sizeof lost, MPI_BYTE, m->session->topology.world);
    if (lost) {
        cmn_warn(
            "%s is missing, or another training's: it was the best of this one, of iteration %ld; "
            "the next validation is the best now",
            file, b->at);
        *b = (struct cmn_best){.worse = b->worse};
    }
}

/* ---- after a validation ---- */

static void end_training(const struct cmn_best *b, const struct cmn_step *step)
{
    const struct cmn_session *s = step->session;

    cmn_net_stop_after_this_iteration(step->model->net);
    cmn_report_clear(s->report);
    cmn_warn("cmn_patience=%ld: no better %s than %.6g, of iteration %ld, in the last %ld "
             "validation%s: the training ends after iteration %ld, with its weights saved",
             s->options.patience, s->valid.images ? "accuracy" : "mAP@0.5", b->value, b->at,
             b->worse, b->worse == 1 ? "" : "s", cmn_step_iteration(step));
}

/* Rank 0's figure counts. It is negative if there was nothing to compare. */
static double value_of(const struct cmn_session *s, const struct cmn_row *row)
{
    /* Rounded to float, because a checkpoint restores it with 15 digits as the same float. */
    double value =
        (double)(float)(s->valid.images ? row->validation_accuracy : row->validation_map);

    cmn_mpi_bcast(&value, sizeof value, MPI_BYTE, s->topology.world);
    if (!(value >= 0) && s->options.patience) {
        cmn_fatal("no image of %s has a true box, so there is no mAP that cmn_patience could "
                  "compare: add label files, or remove the key",
                  s->valid_list);
    }
    return value;
}

/* Fills no column, but looks at those of the validation. */
static void fill_row(void *self, struct cmn_step *p, struct cmn_row *row)
{
    struct cmn_best *b = &p->kept.best;
    double value;
    int better;

    (void)self;
    if (!p->due.validation || !((value = value_of(p->session, row)) >= 0)) {
        return;
    }
    better = !b->known || value > b->value;
    b->worse = better ? 0 : b->worse + p->due.scheduled;
    if (better && save(p)) {
        *b = (struct cmn_best){.known = 1,
                               .value = value,
                               .at = cmn_step_iteration(p),
                               .seen = cmn_net_seen(p->model->net)};
    }
    if (cmn_best_ended(b, &p->session->options) && !cmn_step_ends_training(p)) {
        end_training(b, p);
    }
}

const struct cmn_extension cmn_best_extension = {
    .name = "best weights and patience",
    .fill_row = fill_row,
};
