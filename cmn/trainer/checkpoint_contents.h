/* What a rank puts into a checkpoint of a training and gets out of it: tensors, and what the update
 * policy and the sequences of a text keep.
 *
 * What is equal on all ranks is rank 0's to write: weights, momentum kept apart, Adam's moments.
 * Each rank writes its part of the momentum that lies among the gradients. With local SGD, and
 * without an exchange, each rank writes all of its own. */
#ifndef CMN_CHECKPOINT_CONTENTS_H
#define CMN_CHECKPOINT_CONTENTS_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "checkpoint/gather.h"
#include "checkpoint/writer.h"
#include "trainer/progress.h"
#include "trainer/step.h"

enum { CMN_ROW_VALUES = 8, CMN_LIST_HASH = 32, CMN_PLACES = 256, CMN_RUN_ID = 17 };

/* The checkpoints that a training writes, and the one from which it resumes. */
struct cmn_checkpointing {
    struct cmn_session *session;
    struct cmn_model *model;
    struct cmn_step *step;
    struct cmn_training_progress *progress;

    struct cmn_writer *writer; /* rank 0, where checkpoints are taken */
    int lock;                  /* rank 0, where none are: of the backup folder; -1: none */
    struct cmn_checkpoint_file
        *file;            /* rank 0, from the start of a resumed training to its first step */
    int resumes;          /* from a checkpoint */
    int lost;             /* the last checkpoint could not be written */
    char run[CMN_RUN_ID]; /* rank 0: the training's id, the same after each restart; 16 digits */
    cJSON *saved;         /* its description of the training; on all ranks */
    struct cmn_checkpoint_origin by; /* who wrote it */
    char places[CMN_PLACES];         /* each rank's node, or a hash of them */
    char *layout;                    /* cmn_replicas_describe() at the cfg's size */
    char list_hash[CMN_LIST_HASH];   /* of the training list; "": not known */

    struct cmn_checkpoint_item *item;
    int items, room;
    /* Statistics merged over the ranks, in the order of the tensors, and those of cmn_ema. */
    float *averages, *ema_averages;
    double row[CMN_ROW_VALUES]; /* sums since the last row */
    size_t *offset;             /* of this rank's sequences in a text; the trainer's, or NULL */
    size_t offsets, restored;   /* their number; how many were in the checkpoint */

    struct cmn_snapshot *ready; /* rank 0: collected, and not given to the writer */
    cJSON *ready_training;      /* its description, which it owns */
    long ready_iteration;
    size_t ready_seen, written_seen; /* images, of it and of the one that the writer has */
    long announced;                  /* the last one known to be on the disk; 0: none */
    int nonfinite_said;              /* people know that none is taken of NaN or Inf weights */
};

/* All local. */

/* Numbers of a checkpoint's "progress", whose ranges cmn_identity_fits() has checked; 0 when there
 * is none of that name. */
double cmn_saved_number(const struct cmn_checkpointing *c, const char *key);
size_t cmn_saved_count(const struct cmn_checkpointing *c, const char *key);

/* Fill c->item with the tensors that this rank writes into a checkpoint, or reads from the one that
 * c->saved and c->by describe. The items point to the training's own memory. */
void cmn_contents_to_write(struct cmn_checkpointing *c);
void cmn_contents_to_read(struct cmn_checkpointing *c);

/* Rank 0: items that the weights of the snapshot hold already are not written again. */
void cmn_contents_refer_to_weights(struct cmn_checkpointing *c, struct cmn_snapshot *to);

/* Whether what was read may be what they hold: a checksum says nothing about who has made it. 0, or
 * -1 with a reason: tensor, value, what it may be. */
int cmn_contents_check(const struct cmn_checkpointing *c);

/* The host's copy of all tensors becomes the device's, or the other way round. Nothing on the
 * CPU. */
void cmn_contents_pull(struct cmn_checkpointing *c);
void cmn_contents_push(struct cmn_checkpointing *c);

/* Copies the rolling statistics to c->averages or c->ema_averages (`into`), which gets memory; they
 * are merged over the ranks at that time. */
void cmn_contents_keep_averages(struct cmn_checkpointing *c, float **into);

/* The name of a tensor that holds NaN or Inf on the host (the thread's own), or NULL. */
const char *cmn_contents_not_finite(const struct cmn_checkpointing *c);

#endif
