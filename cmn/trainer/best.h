/* The best validation of a training: its weights, and the training's end when none is better for a
 * while (cmn_patience). All ranks decide by the figures of rank 0. */
#ifndef CMN_BEST_H
#define CMN_BEST_H

#include "trainer/step.h"

struct cmn_best {
    int known;    /* there was one, and its weights are in the file */
    double value; /* of the best one: accuracy or mAP@0.5, 0 to 1 */
    long at;      /* its iteration */
    size_t seen;  /* images until then; 0: not known */
    long worse;   /* validations that were due since then, and were not better */
};

/* Collective, blocking. A validation has just been made; `scheduled`: it was due, not only made
 * because the training ends. `value` counts on rank 0; it is negative when nothing could be
 * compared, which ends the job with cmn_patience. Saves the weights where they are the best, and
 * makes this iteration the last where cmn_patience says so. */
void cmn_best_validated(struct cmn_best *b, struct cmn_step *step, double value, int scheduled);

/* Collective, blocking; after a resume. Forgets the best one where its weights are gone, or where the
 * file has another training's, of fewer images. */
void cmn_best_check(struct cmn_best *b, const struct cmn_model *m);

/* Local. Whether cmn_patience has ended the training, maybe in an earlier run; whether the next
 * validation may do so. */
int cmn_best_ended(const struct cmn_best *b, const struct cmn_options *o);
int cmn_best_may_end(const struct cmn_best *b, const struct cmn_options *o);

/* Local. Whether `file` has the name of the best weights; whether this training validates, so that
 * nobody else writes that file. */
int cmn_best_is(const struct cmn_model *m, const char *file);
int cmn_best_owns(const struct cmn_model *m, const char *file);

#endif
