/* A training's checkpoints: what is in them, when they are taken, and how a training resumes from one. For checkpointing.c,
 * checkpoint_contents.c, identity.c and resume.c. */
#ifndef CMN_CHECKPOINTING_H
#define CMN_CHECKPOINTING_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/gather.h"
#include "checkpoint/writer.h"
#include "trainer/trainer.h"

enum { CMN_ROW_VALUES = 8, CMN_LIST_HASH = 32, CMN_PLACES = 256 };

struct cmn_checkpointing {
    struct cmn_writer *writer; /* rank 0, where checkpoints are taken */
    struct cmn_checkpoint_file
        *file;           /* rank 0, from the begin of a resumed training to its first step */
    int looked, resumed; /* whether there is a checkpoint is known; there is one */
    cJSON *saved;        /* what it says of the training; on all ranks */
    struct cmn_checkpoint_origin by; /* who wrote it */
    char places[CMN_PLACES];         /* each rank's node, or a hash of them */
    char *layout;                    /* cmn_replicas_describe() at the cfg's size */
    char list_hash[CMN_LIST_HASH];   /* of the training list; "": not known */

    struct cmn_checkpoint_item *item;
    int items, room;
    float *averages;            /* statistics merged over the ranks, in the order of the tensors */
    double row[CMN_ROW_VALUES]; /* sums since the last row */
    size_t *offset;             /* of this rank's sequences in a text; the trainer's, or NULL */
    size_t offsets, restored;   /* restored: so many were in the checkpoint */

    struct cmn_snapshot *ready; /* rank 0: collected, and not given to the writer */
    long ready_iteration;
    int announced;  /* that the first one is on the disk */
    int not_finite; /* the message that none is taken of weights that are not finite */
};

/* checkpoint_contents.c; local. */

/* Lists in c->item what this rank puts into a checkpoint (cmn_trainer_items_to_write), or what it gets out of the one that
 * c->saved and c->by describe. The items point to the training's own memory. */
void cmn_trainer_items_to_write(struct cmn_trainer *t);
void cmn_trainer_items_to_read(struct cmn_trainer *t);
/* The host's copy of all tensors becomes the device's, or the other way round. Nothing on the CPU. */
void cmn_trainer_pull_tensors(struct cmn_trainer *t);
void cmn_trainer_push_tensors(struct cmn_trainer *t);
/* Statistics as they are now become c->averages. */
void cmn_trainer_keep_averages(struct cmn_trainer *t);
/* The name of a tensor that holds NaN or Inf on the host (static, or the thread's own), or NULL. */
const char *cmn_trainer_not_finite(const struct cmn_trainer *t);

/* identity.c; local. */

/* What a checkpoint says of the training: what it is, and how far it is. `row_made`: the row of this iteration is being
 * written. The caller frees. NULL: out of memory. */
cJSON *cmn_trainer_describe(const struct cmn_trainer *t, int row_made);
/* Whether this training may resume from a file that says this: sets c->by. 0, or -1 with a reason that says what to do. */
int cmn_trainer_fits(const struct cmn_trainer *t, const cJSON *saved, const char *file);
/* Values of that description: texts ("" when there is none), and counts of its "progress" (0). */
const char *cmn_saved_text(const cJSON *saved, const char *key);
double cmn_saved_number(const struct cmn_trainer *t, const char *key);
size_t cmn_saved_count(const struct cmn_trainer *t, const char *key);

#endif
