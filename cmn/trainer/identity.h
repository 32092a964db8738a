/* The description of a training in its checkpoints, and whether a training may resume from one. All
 * local. */
#ifndef CMN_IDENTITY_H
#define CMN_IDENTITY_H

#include "trainer/checkpoint_contents.h"

/* Describes the training and its progress. `row_made`: the row of this iteration is being written.
 * The caller frees. NULL: out of memory. */
cJSON *cmn_identity_describe(const struct cmn_checkpointing *c, int row_made);

/* The best validation in such a description (or NULL) becomes that of now: a last step is described
 * before it is validated. */
void cmn_identity_amend(cJSON *training, const struct cmn_checkpointing *c);

/* A text member of such a description; "" when it lacks it. */
const char *cmn_saved_text(const cJSON *saved, const char *key);

/* Compares this training with `saved`, the description in `file`; sets c->by. 0 when it may resume
 * from it, or -1 with a reason that says what to do. */
int cmn_identity_fits(struct cmn_checkpointing *c, const cJSON *saved, const char *file);

/* Says, once, from which checkpoint the training is resumed, and what is different here; frees the
 * file. */
void cmn_identity_tell_origin(struct cmn_checkpointing *c);

#endif
