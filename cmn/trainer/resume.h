/* Resuming a training from its newest checkpoint. */
#ifndef CMN_RESUME_H
#define CMN_RESUME_H

#include "trainer/checkpoint_contents.h"

/* Collective, blocking. The network and the backup folder are known: looks for the newest
 * checkpoint, unless cmn_checkpoint is 0, and takes over what it holds. The caller ends what this
 * returns with cmn_checkpointing_close(). The other structs must outlive it. */
struct cmn_checkpointing *cmn_resume(struct cmn_session *s, struct cmn_model *m,
                                     struct cmn_step *step, struct cmn_training_progress *p);

/* Local. The first step begins, and the training list is known: compares it, and sets clocks and
 * sums to what they were. c may be NULL. */
void cmn_resume_begin(struct cmn_checkpointing *c);

/* Local, but collective where a training is resumed. offset[j] belongs to sequence j of this
 * rank's; the first call for an array finds what a checkpoint has of it, and later checkpoints keep
 * it. Returns whether offset[j] is from there. */
int cmn_resume_offset(struct cmn_checkpointing *c, size_t *offset, int j);

/* Local, rank 0. Nothing was left to train, and weights are about to be saved in that file: ends
 * the job when the file has weights that have seen more images than the checkpoint's. */
void cmn_resume_protect_newer(const struct cmn_checkpointing *c, const char *file);

#endif
