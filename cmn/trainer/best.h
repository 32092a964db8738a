/* Extension: the best validation of a training. Saves its weights, and ends the training if none is
 * better for a while (cmn_patience). All ranks decide by rank 0's figures. */
#ifndef CMN_BEST_H
#define CMN_BEST_H

#include "trainer/model.h"

struct cmn_best {
    int known;    /* there was a validation, and the weights of the best one are in the file */
    double value; /* accuracy or mAP@0.5 of the best one, 0 to 1 */
    long at;      /* its iteration */
    size_t seen;  /* images seen until then; 0: not known */
    long worse;   /* scheduled validations since then, none of them better */
};

/* Collective, blocking; called after a resume. Forgets the best validation if its file is missing,
 * or holds weights that have seen fewer images and so belong to another training. */
void cmn_best_check(struct cmn_best *b, const struct cmn_model *m);

/* Local. Return whether cmn_patience has ended the training, possibly in an earlier run; and
 * whether the next validation may end it. */
int cmn_best_ended(const struct cmn_best *b, const struct cmn_options *o);
int cmn_best_may_end(const struct cmn_best *b, const struct cmn_options *o);

/* Local. Return whether `file` has the name of the best weights; and whether, in addition, this
 * training validates, so that nothing else may write that file. */
int cmn_best_is(const struct cmn_model *m, const char *file);
int cmn_best_owns(const struct cmn_model *m, const char *file);

#endif
