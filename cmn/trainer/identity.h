/* What a checkpoint says of the training that it is of, and whether another one may resume it. All
 * local. */
#ifndef CMN_IDENTITY_H
#define CMN_IDENTITY_H

#include "trainer/checkpoint_contents.h"

/* What the training is, and how far it is. `row_made`: the row of this iteration is being written.
 * The caller frees. NULL: out of memory. */
cJSON *cmn_identity_describe(const struct cmn_checkpointing *c, int row_made);

/* A text of such a description; "" when there is none of that name. */
const char *cmn_saved_text(const cJSON *saved, const char *key);

/* Whether this training may resume a file that says this: sets c->by. 0, or -1 with a reason that
 * says what to do. */
int cmn_identity_fits(struct cmn_checkpointing *c, const cJSON *saved, const char *file);

/* Says, once, from which checkpoint the training is resumed, and what is different here; frees the
 * file. */
void cmn_identity_tell_origin(struct cmn_checkpointing *c);

#endif
