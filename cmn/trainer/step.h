/* One step of a training: its micro-batches, the update with the sums over all ranks, and what is
 * due after it. */
#ifndef CMN_STEP_H
#define CMN_STEP_H

#include "trainer/extension.h"

/* Collective, blocking. The images of the first micro-batch of this run are in the network. */
void cmn_step_begin(struct cmn_step *p);

/* Local, but with cmn_balance collective at the begin of a step. A micro-batch begins. Returns how
 * many images more all ranks have seen then. */
int cmn_step_before_micro_batch(struct cmn_step *p);
/* Local. Forward has done layer i. */
void cmn_step_after_forward(struct cmn_step *p, int i);
/* Collective in order, not blocking. Backward has done layer i: in the last micro-batch of a step
 * the exchange of gradients may begin. */
void cmn_step_after_backward(struct cmn_step *p, int i);
/* Local, not blocking. Makes progress in exchanges that are under way. */
void cmn_step_progress(struct cmn_step *p);
/* Local. A micro-batch has ended; returns whether it was the step's last. */
int cmn_step_after_micro_batch(struct cmn_step *p);

/* Collective, blocking. Sums the gradients. Then it has updated the weights (rule->done), or has
 * changed batch and momentum of *rule so that Darknet's own update is right. */
void cmn_step_update(struct cmn_step *p, struct cmn_rule *rule);
/* Collective, blocking. Darknet has computed a batch and, if that was a step's last, its own update
 * is done, too: ends that step with what is due after it. Returns the loss of the last step over
 * all ranks, or before the first one `loss`, which is this rank's. */
float cmn_step_after_batch(struct cmn_step *p, float loss);

#endif
