/* A training's checkpoints: what is in them, when they are taken, and how a training goes on from one. For the files
 * training_checkpoint.c, training_resume.c, training_parts.c and training_identity.c. */
#ifndef CMN_TRAINING_CHECKPOINT_H
#define CMN_TRAINING_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/gather.h"
#include "trainer/trainer.h"

enum {
    CMN_PACK_STATISTICS = 2,
    CMN_PACK_MOMENTS = 3,
    CMN_PACKS = 4,
    CMN_ROW_VALUES = 8,
    CMN_LIST_HASH = 32,
    CMN_PLACES = 256
};

struct cmn_checkpointing {
    struct cmn_writer *writer; /* rank 0, where checkpoints are taken */
    struct cmn_checkpoint_file
        *file;           /* rank 0, from the begin of a training that goes on to its first step */
    int looked, goes_on; /* whether there is a checkpoint is known; there is one */
    char *identity;      /* of the file, on all ranks */
    struct cmn_checkpoint_origin by; /* who wrote it */
    double step_images;              /* of all ranks, when it was written */
    char places[CMN_PLACES];         /* each rank's node, or a hash of them */
    char *layout;                    /* cmn_replicas_describe() at the cfg's size */
    char list_hash[CMN_LIST_HASH];   /* of the training list; "": not known */

    struct cmn_checkpoint_item *part;
    int parts, room;
    float *pack[CMN_PACKS]; /* tensors of a kind, one behind the other */
    size_t packed[CMN_PACKS];
    double row[CMN_ROW_VALUES]; /* sums since the last row */
    size_t *offset;             /* of this rank's sequences in a text; the trainer's, or NULL */
    size_t offsets, restored;   /* restored: so many were in the checkpoint */

    struct cmn_snapshot *ready; /* rank 0: collected, and not given to the writer */
    long ready_iteration;
    int announced;  /* that the first one is on the disk */
    int not_finite; /* it was said that none is taken of weights that are not finite */
};

/* All return 0, or -1 with a reason. */

/* Local (training_parts.c). Lists what this rank has to keep, in c->part, and gets memory for it. With `fill`, the packs are filled with
 * what the tensors hold. */
int cmn_trainer_checkpoint_items(struct cmn_trainer *t, int fill);
/* Local. The other way round: the tensors get what the packs hold. */
int cmn_trainer_unpack(struct cmn_trainer *t);
/* Local. *what (static, or the thread's own) becomes the name of a tensor that held something which is no number when the packs were filled,
 * or NULL. */
void cmn_trainer_not_finite(const struct cmn_trainer *t, const char **what);
/* Local. Statistics as they are now, in their pack: n floats. */
int cmn_trainer_statistics(struct cmn_trainer *t, const float **statistics, size_t *n);

/* training_identity.c; all local. */

/* What a checkpoint is of: lines "key = value". The caller frees. NULL with a reason. */
char *cmn_trainer_identity(const struct cmn_trainer *t);
/* What else is no part of a rank: the same form. `row_made`: the row of this iteration is being written. */
char *cmn_trainer_numbers(const struct cmn_trainer *t, int row_made);
/* The value of a key in such a text, up to the line's end; "" when it has none. */
const char *cmn_identity_value(const char *text, const char *key, char *value, size_t bytes);
/* Whether this training may go on from a file with that identity and layout; 0, or -1 with a reason that says what to do. */
int cmn_trainer_fits(const struct cmn_trainer *t, const char *identity, const char *layout,
                     const char *file);

#endif
