/* One step of a training: its micro-batches, and the update with the sum over all ranks. */
#ifndef CMN_STEP_H
#define CMN_STEP_H

#include "trainer/feed.h"
#include "trainer/model.h"
#include "trainer/nonfinite_policy.h"
#include "trainer/sequences.h"
#include "trainer/session.h"

struct cmn_batch_norm;

/* Sums since the last row of the report. */
struct cmn_row_sums {
    double loss, right, images;     /* over all ranks */
    double compute, exchange, load; /* seconds of this rank */
    double since;                   /* clock: when they began */
    long steps;
};

struct cmn_step {
    struct cmn_session *session;
    struct cmn_model *model;
    struct cmn_feed *feed;
    struct cmn_nonfinite_policy nonfinite;
    struct cmn_sequences sequences; /* of a text, with cmn_exact */
    struct cmn_batch_norm *norm;    /* cmn_sync_bn on several ranks, or NULL */

    /* cmn_exact with batch normalisation, or NULL: the rolling statistics before this step, and what
     * each of its micro-batches on this rank has made of zeros. */
    float *rolling, *added;

    long done;           /* steps of this run */
    long first;          /* the iteration before its first step */
    long earlier;        /* steps of the runs that this one resumes */
    int micro_batch;     /* of this step, that are done */
    float loss, right;   /* sums of this rank over them */
    float mean_loss, lr; /* of the last step; the loss over all ranks */
    int updated;         /* since the last cmn_trainer_after_batch() */
    size_t seen;         /* images, before this step */
    int fused;           /* the communicator has updated, and not Darknet */
    struct cmn_row_sums sums;
    struct cmn_row_sums window;      /* cmn_balance: compute and load, since it last measured */
    long window_batches;             /* micro-batches in it */
    double began, micro_batch_began; /* clock: this step, and this micro-batch */
    double layer_ended; /* clock, for the timeline: the layer before; 0: not in a micro-batch */
    double ended;       /* clock: the end of the last step, or of a save after it */
};

/* Collective. The model is attached: prepares cmn_sync_bn. The other structs must outlive the
 * step. */
void cmn_step_open(struct cmn_step *p);
void cmn_step_close(struct cmn_step *p);

/* Local. The number of the last step that is done, as rows and files call it. */
long cmn_step_iteration(const struct cmn_step *p);

/* Local, but with cmn_balance collective at the begin of a step. A micro-batch begins. Returns how many images more all ranks have seen then. */
int cmn_step_before_micro_batch(struct cmn_step *p);
/* Local. A micro-batch has ended; returns whether it was the step's last. */
int cmn_step_after_micro_batch(struct cmn_step *p);

/* Local. Forward has done layer i. */
void cmn_step_after_forward(struct cmn_step *p, int i);
/* Collective in order, not blocking. Backward has done layer i: in the last micro-batch of a step
 * gradients may begin to travel. */
void cmn_step_after_backward(struct cmn_step *p, int i);
/* Local, not blocking. Makes progress in exchanges that are under way. */
void cmn_step_progress(struct cmn_step *p);

/* Local. Whether cmn_sync_bn=on and a micro-batch runs; also with one rank. */
int cmn_step_syncs_batch_norm(const struct cmn_step *p);
/* Collective, blocking. In such a micro-batch exchanges what a layer has found in its `count`
 * values a filter (engine/batch_norm.h), forward or backward; else nothing. */
void cmn_step_sync_forward(struct cmn_step *p, float *mean, float *variance, int n, int count);
void cmn_step_sync_backward(struct cmn_step *p, float *mean_delta, float *variance_delta, int n,
                            int count);

/* Collective, blocking. Sums the gradients. Then it has updated the weights (rule->done), or has
 * changed batch and momentum of *rule so that Darknet's own update is right. */
void cmn_step_update(struct cmn_step *p, struct cmn_rule *rule);
/* Local. Darknet's update leaves this layer out: its gradients stay, a part of the sum on each
 * rank. */
void cmn_step_leaves_out(struct cmn_step *p, int layer);
/* Collective, after Darknet's update. Local SGD: the mean of the weights, where it is due or
 * `synchronise` asks for it; blocks then. */
void cmn_step_after_update(struct cmn_step *p, int synchronise);
/* Collective, blocking. Afterwards all ranks have the same weights. */
void cmn_step_synchronise(struct cmn_step *p);

#endif
