/* The description of a training in its checkpoints, and the check whether a training may resume
 * from one. All calls are local. */
#ifndef CMN_IDENTITY_H
#define CMN_IDENTITY_H

#include "trainer/checkpoint_contents.h"

/* Returns a description of the training and its progress, or NULL if memory runs out; the caller
 * frees it. */
cJSON *cmn_identity_describe(const struct cmn_checkpointing *c);

/* Updates the best validation in such a description (or NULL): the last step is described before it
 * is validated. */
void cmn_identity_amend(cJSON *training, const struct cmn_checkpointing *c);

/* Return a text member of such a description, "" if it is missing; and a number of its "progress",
 * which cmn_identity_fits() has checked. */
const char *cmn_saved_text(const cJSON *saved, const char *key);
double cmn_saved_number(const cJSON *saved, const char *key);

/* Compares this training with `saved`, the description in c->file, and sets c->by and c->saved.
 * Returns 0 if it may resume from the file, or -1 with a reason that says what to do. */
int cmn_identity_fits(struct cmn_checkpointing *c, const cJSON *saved);

/* Gives this training the numbers of c->saved. */
void cmn_identity_restore(struct cmn_checkpointing *c);

/* Prints, once, from which checkpoint the training is resumed and what has changed since; frees
 * c->file. */
void cmn_identity_tell_origin(struct cmn_checkpointing *c);

#endif
