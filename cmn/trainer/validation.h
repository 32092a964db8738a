/* Validation during training. It leaves the training's state unchanged. */
#ifndef CMN_VALIDATION_H
#define CMN_VALIDATION_H

#include "report/row.h"
#include "trainer/model.h"
#include "trainer/session.h"

/* Local. Whether there is a list of images for an answer that this network gives. */
int cmn_validates(const struct cmn_session *s, const struct cmn_net *net);

/* Collective, blocking. Fills the validation's columns of *row. */
void cmn_validate(const struct cmn_session *s, struct cmn_model *m, struct cmn_row *row);

#endif
