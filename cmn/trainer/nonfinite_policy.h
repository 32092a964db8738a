/* Extension, cmn_nonfinite: handles steps whose loss or gradient is NaN or Inf.
 *
 * The values are checked before the gradients leave their rank, so the weights stay as they were.
 * stop: the rank that finds NaN or Inf ends the job. skip: all ranks learn of it before they
 * exchange anything, and discard the step. ignore: nothing is checked. */
#ifndef CMN_NONFINITE_POLICY_H
#define CMN_NONFINITE_POLICY_H

#include "engine/nonfinite.h"
#include "trainer/extension.h"

struct cmn_nonfinite_policy {
    struct cmn_session *session;
    struct cmn_model *model;
    const struct cmn_feed *feed;
    long iteration;                     /* the current step, as messages count it */
    struct cmn_nonfinite found;         /* what was found in this step; its name is NULL: nothing */
    int found_micro_batch, found_image; /* micro-batch that caused it, and image of that, or -1 */
    char origin[256];                   /* its origin, in words */
    int looked;                         /* the loss of this micro-batch was checked */
    int next;                           /* next tensor to check during backward */
    long skipped, in_a_row;             /* discarded steps: all, and the latest in a row */
    long last;                          /* iteration of the latest one */
    float *statistics;                  /* with skip: rolling statistics from before the step */
    /* With double buffering on a GPU: the iteration whose gradients the GPU is checking (0: none),
     * and its images. The answer is read just before the gradients are used, so the host need not
     * wait for backward. */
    long asked;
    struct cmn_sample *asked_sample;
    size_t asked_samples;
};

/* Local, blocking. Ends the job if the GPU has found NaN or Inf in the last step and the answer was
 * not read yet. Call it before the step's gradients are used or saved. NULL: the network is not
 * attached. */
void cmn_nonfinite_complete(struct cmn_nonfinite_policy *p);

/* Local. Ends the job if the weights or statistics in the network, which are about to be saved, are
 * not finite. NULL: the network is not attached, and nothing is checked. */
void cmn_nonfinite_check_weights(const struct cmn_nonfinite_policy *p);

#endif
