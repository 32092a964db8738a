/* cmn_nonfinite: steps with a loss or gradient that is NaN or Inf.
 *
 * They are looked for before the gradients leave their rank, so the weights stay as they were.
 * stop: the rank that finds one ends the job. skip: all ranks learn of it before they exchange
 * anything, and leave the step out. ignore: nothing is looked at. */
#ifndef CMN_NONFINITE_POLICY_H
#define CMN_NONFINITE_POLICY_H

#include "engine/nonfinite.h"
#include "trainer/feed.h"
#include "trainer/model.h"
#include "trainer/session.h"

struct cmn_nonfinite_policy {
    struct cmn_session *session;
    struct cmn_model *model;
    const struct cmn_feed *feed;
    long iteration;             /* the step that is computed, as messages call it */
    struct cmn_nonfinite found; /* in this step; name is NULL: nothing */
    int found_micro_batch,
        found_image;        /* micro-batch of the step, and image of it that brought it, or -1 */
    char origin[256];       /* where it began, in words */
    int looked;             /* at the loss of this micro-batch */
    int next;               /* tensor that backward comes to next */
    long skipped, in_a_row; /* steps that were left out; the latest of them, */
    long last;              /* up to this iteration */
    float *statistics;      /* skip: rolling statistics from before the step */
    /* With double buffering on a GPU: the iteration whose gradients it was asked about (0: none), and its
     * images. The answer is read when they are about to be used, and nobody waits for backward. */
    long asked;
    struct cmn_sample *asked_sample;
    size_t asked_samples;
};

/* Local. s, m and f must outlive it. */
void cmn_nonfinite_open(struct cmn_nonfinite_policy *p, struct cmn_session *s, struct cmn_model *m,
                        const struct cmn_feed *f);
void cmn_nonfinite_close(struct cmn_nonfinite_policy *p);

/* Local. A step begins, and a micro-batch of it. */
void cmn_nonfinite_begin_step(struct cmn_nonfinite_policy *p, long iteration);
void cmn_nonfinite_begin_micro_batch(struct cmn_nonfinite_policy *p);

/* Local. Backward has done layer i of that micro-batch: looks at the loss once, but on a GPU, and in
 * the last micro-batch of a step, or with cmn_exact in each, at the gradients of the layer. */
void cmn_nonfinite_after_backward(struct cmn_nonfinite_policy *p, int i, int micro_batch);

/* Local. Backward of that micro-batch is queued on a GPU, and its loss is known. */
void cmn_nonfinite_look_at_loss(struct cmn_nonfinite_policy *p, int micro_batch);

/* Collective with cmn_nonfinite=skip, else local; blocks on GPUs and where it is collective.
 * Backward is done: whether this step is to be left out, on all ranks, which is said. Stop requests
 * travel with the answer. */
int cmn_nonfinite_skips(struct cmn_nonfinite_policy *p);

/* Local, blocking. Ends the job where the GPU found something in the last step and nobody has asked
 * yet: before its gradients are used or saved. */
void cmn_nonfinite_complete(struct cmn_nonfinite_policy *p);

/* Local, the same on all ranks. With cmn_nonfinite=skip: the sum of that iteration is not used, for this
 * reason. It counts as a step that was left out, and is said. */
void cmn_nonfinite_leave_out(struct cmn_nonfinite_policy *p, long iteration, const char *why);

/* Local. The rolling statistics become again those from before the step, with cmn_nonfinite=skip. */
void cmn_nonfinite_undo_statistics(const struct cmn_nonfinite_policy *p);

/* Local. Ends the job when the weights that are about to be saved are not finite; the same on all
 * ranks. */
void cmn_nonfinite_check_weights(const struct cmn_nonfinite_policy *p);

#endif
