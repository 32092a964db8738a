/* Resuming a training from its newest checkpoint. */
#ifndef CMN_RESUME_H
#define CMN_RESUME_H

#include "trainer/checkpoint_contents.h"

/* Collective, blocking. Call it once the network and the backup folder are known. Finds the newest
 * checkpoint, unless cmn_checkpoint is 0, and restores its contents. The extension `checkpoints`
 * closes the result. */
struct cmn_checkpointing *cmn_resume(struct cmn_step *step);

/* Local. Call it when the first step begins and the training list is known. If the training is
 * resumed, compares the list with the checkpoint's (a difference ends the job), and restores clocks
 * and sums. c may be NULL. */
void cmn_resume_begin(struct cmn_checkpointing *c);

/* Local, rank 0. Nothing was left to train, and weights are about to be saved in `file`: ends the
 * job if that file holds weights that have seen more images than the checkpoint's. */
void cmn_resume_protect_newer(const struct cmn_checkpointing *c, const char *file);

#endif
