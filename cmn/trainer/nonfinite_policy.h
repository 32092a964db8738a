/* Extension, cmn_nonfinite: steps with a loss or gradient that is NaN or Inf.
 *
 * They are looked for before the gradients leave their rank, so the weights stay as they were.
 * stop: the rank that finds one ends the job. skip: all ranks learn of it before they exchange
 * anything, and discard the step. ignore: nothing is looked at. */
#ifndef CMN_NONFINITE_POLICY_H
#define CMN_NONFINITE_POLICY_H

#include "engine/nonfinite.h"
#include "trainer/extension.h"

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

/* Local, blocking. Ends the job where the GPU found something in the last step and nobody has asked
 * yet: before its gradients are used or saved. NULL: no step has begun. */
void cmn_nonfinite_complete(struct cmn_nonfinite_policy *p);

/* Local. Ends the job when the weights that are about to be saved are not finite; the same on all
 * ranks. NULL: no step has begun, nothing is checked. */
void cmn_nonfinite_check_weights(const struct cmn_nonfinite_policy *p);

#endif
