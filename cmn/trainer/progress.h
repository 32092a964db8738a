/* What people see of a training between steps: rows of the report, with validation, comparison of
 * the weights, the timeline. */
#ifndef CMN_PROGRESS_H
#define CMN_PROGRESS_H

#include <stddef.h>

#include "trainer/best.h"
#include "trainer/session.h"
#include "trainer/step.h"

struct cmn_trace;

struct cmn_training_progress {
    struct cmn_session *session;
    struct cmn_model *model;
    struct cmn_step *step;
    char json[2 * CMN_TEXT]; /* file of the log */
    char timeline[CMN_TEXT]; /* file of the trace, "": none */
    struct cmn_trace *trace; /* cmn_timeline, or NULL */
    const char **layer;      /* the layers' types, for the trace */
    double began;            /* clock: the training, less the time of earlier runs */
    long epoch;              /* whole passes over the list, as of the last step */
    int resumed;             /* from a checkpoint */
    int row_due, verify_due; /* due, once sums have arrived and all ranks have the same weights */
    struct cmn_best best;
    int validation_pending; /* a stop request came before the validation of the last row */
    long row_at;     /* iteration of the last row that was not written only because a run ended */
    size_t row_seen; /* images by then */
};

/* Collective, blocking. The training begins: opens report (rank 0) and timeline. */
void cmn_progress_open(struct cmn_training_progress *p);
/* Local. Closes the report, once weights and checkpoints are saved. Rows of a log that are lost end
 * the job. */
void cmn_progress_close_report(struct cmn_training_progress *p);
/* Collective. Closes report and timeline. */
void cmn_progress_close(struct cmn_training_progress *p);

/* What is due after a step. */
struct cmn_progress_due {
    int last;       /* the training ends here */
    int regular;    /* the row is due anyway, not only because the training ends */
    int validation; /* in the row */
    int scheduled;  /* it is due anyway */
};

/* Collective. An update has happened: means of weights that are due, stop requests, and what else
 * is due. */
struct cmn_progress_due cmn_progress_step_done(struct cmn_training_progress *p);
/* Collective, blocking where something is due. Compares the weights, and makes the row. */
void cmn_progress_tell(struct cmn_training_progress *p, const struct cmn_progress_due *due);
/* Local. Redraws the progress bar. */
void cmn_progress_redraw(struct cmn_training_progress *p, double images_per_s);
/* Local. Images a second of all ranks since the last row. */
double cmn_progress_speed(const struct cmn_training_progress *p);

/* Collective, blocking. The training is resumed, and its first images lie in the network: makes the
 * row with validation that the run before was to make, if there is one. */
void cmn_progress_pending_validation(struct cmn_training_progress *p);

#endif
