/* What happens between the steps of a training: rows of the report with validation, the comparison
 * of the weights over the ranks, and the timeline. */
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
    char json[2 * CMN_TEXT]; /* name of the log file */
    char timeline[CMN_TEXT]; /* name of the trace file; "": none */
    struct cmn_trace *trace; /* cmn_timeline, or NULL */
    const char **layer;      /* the layers' types, for the trace */
    double began; /* cmn_clock() at the start, minus the time of the runs that this one resumes */
    long epoch;   /* whole passes over the training list, up to the last step */
    int resumed;  /* the training began from a checkpoint */
    /* Due as soon as sums have arrived, and as soon as all ranks have the same weights. */
    int row_due, verify_due;
    struct cmn_best best;
    int validation_pending; /* a stop request came before the validation of the last row */
    long row_at;            /* iteration of the last regular row */
    size_t row_seen;        /* images that all ranks had seen at that row */
};

/* Collective, blocking. Called when the training begins: opens the report (on rank 0) and the
 * timeline. */
void cmn_progress_open(struct cmn_training_progress *p);
/* Local. Closes the report; weights and checkpoints are saved by then. Ends the job if rows of the
 * log are lost. */
void cmn_progress_close_report(struct cmn_training_progress *p);
/* Collective. Closes report and timeline. */
void cmn_progress_close(struct cmn_training_progress *p);

/* What is due after a step. */
struct cmn_progress_due {
    int last;       /* the training ends with this step */
    int regular;    /* a row is due, and not only because the training ends */
    int validation; /* the row has a validation */
    int scheduled;  /* that validation is due, and not only because the training ends */
};

/* Collective. Called after each update: ends the step (cmn_step_end) and returns what is due. */
struct cmn_progress_due cmn_progress_step_done(struct cmn_training_progress *p);
/* Collective, blocking if something is due. Compares the weights and makes the row. */
void cmn_progress_tell(struct cmn_training_progress *p, const struct cmn_progress_due *due);
/* Local. Redraws the progress bar. */
void cmn_progress_redraw(struct cmn_training_progress *p, double images_per_s);
/* Local. Returns the images per second of all ranks since the last row. */
double cmn_progress_speed(const struct cmn_training_progress *p);

/* Collective, blocking. Called in the first step of a resumed training, when its first images are
 * in the network. Makes the row with the validation that the earlier run postponed, if there is
 * one. */
void cmn_progress_pending_validation(struct cmn_training_progress *p);

#endif
