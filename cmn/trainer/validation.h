/* Validation during training. It leaves the training's state unchanged. */
#ifndef CMN_VALIDATION_H
#define CMN_VALIDATION_H

#include "report/row.h"
#include "trainer/model.h"
#include "trainer/session.h"

/* Local. Returns whether there is a validation list of a kind that this network can answer. */
int cmn_validates(const struct cmn_session *s, const struct cmn_net *net);

/* Collective, blocking. Sets the validation columns of *row. */
void cmn_validate(const struct cmn_session *s, struct cmn_model *m, struct cmn_row *row);

#endif
