/* The contents of a training's checkpoint, as one rank writes and reads them: tensors, and the
 * state of the update policy.
 *
 * Rank 0 writes what is equal on all ranks: weights, momentum that lies apart, Adam's moments. Each
 * rank writes its part of the momentum that lies in the flat buffer. With local SGD, and without an
 * exchange, each rank writes everything of its own. */
#ifndef CMN_CHECKPOINT_CONTENTS_H
#define CMN_CHECKPOINT_CONTENTS_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "checkpoint/gather.h"
#include "checkpoint/writer.h"
#include "trainer/extension.h"

enum {
    CMN_ROW_VALUES = 8,
    CMN_LIST_HASH = 32,
    CMN_PLACES = 256,
    CMN_RUN_ID = 17,
    CMN_SAVED_NUMBERS = 24
};

/* What the checkpoint that a training resumes from says of it; the ranges are checked. */
struct cmn_saved {
    double number[CMN_SAVED_NUMBERS]; /* of its "progress", in the order of identity.c */
    /* Of these, the ones that a training computes; cmn_identity_restore() sets them. */
    double iteration, seen, updates, step_images, momentum_copies, steps, width, height, row_seen,
        lr, elapsed, ema_kept;
    unsigned long seed;
    size_t list_images;
    size_t best_seen; /* images seen until the best validation; 0: not known */
    char list_hash[CMN_LIST_HASH];
};

/* The checkpoints that a training writes, and the one from which it resumes. */
struct cmn_checkpointing {
    struct cmn_session *session;
    struct cmn_model *model;
    struct cmn_step *step;

    struct cmn_writer *writer; /* rank 0; it locks the training's name, also if it writes nothing */
    struct cmn_checkpoint_file
        *file;              /* rank 0: the checkpoint to resume from, until the first step */
    int resumes;            /* the training resumes from a checkpoint */
    int lost;               /* the last checkpoint of the training could not be written */
    char run[CMN_RUN_ID];   /* rank 0: the training's id, kept through restarts; 16 digits */
    struct cmn_saved saved; /* if it resumes; on all ranks */
    struct cmn_checkpoint_origin by; /* the ranks that wrote `file` */
    char places[CMN_PLACES];         /* each rank's node, or a hash of these */
    char *layout;                    /* cmn_replicas_describe() at the cfg's image size */
    char list_hash[CMN_LIST_HASH];   /* hash of the training list; "": not known */

    struct cmn_checkpoint_item *item;
    int items, room;
    /* Rolling statistics averaged over the ranks, in the order of the tensors; and those of
     * cmn_ema. */
    float *averages, *ema_averages;
    double row[CMN_ROW_VALUES]; /* sums since the last row of the report */

    struct cmn_snapshot *ready; /* rank 0: collected, not yet passed to the writer */
    cJSON *ready_training;      /* its description; `ready` owns it */
    long ready_iteration;
    size_t ready_seen, written_seen; /* images seen, of `ready` and of the writer's one */
    long announced;                  /* iteration of the last one on the disk; 0: none */
    int nonfinite_said;              /* a line has said that none is taken of NaN or Inf weights */
};

/* All calls below are local. */

/* Fills c->item with the tensors that this rank writes to a checkpoint or, if it is `reading`, gets
 * from the one that c->saved and c->by describe. The items point to the training's own memory. */
void cmn_contents_list(struct cmn_checkpointing *c, int reading);

/* Rank 0 only. Refers items to the same bytes in the snapshot's weights, so that they are not
 * written twice. */
void cmn_contents_refer_to_weights(struct cmn_checkpointing *c, struct cmn_snapshot *to);

/* Checks that the items hold values that a training can have written: a checksum does not tell who
 * has made it. Returns 0, or -1 with a reason that names tensor, value and range. */
int cmn_contents_check(const struct cmn_checkpointing *c);

/* Copy all tensors from the GPU to the host (pull), or from the host to the GPU (push). They do
 * nothing for tensors on the CPU. */
void cmn_contents_pull(struct cmn_checkpointing *c);
void cmn_contents_push(struct cmn_checkpointing *c);

/* Checks that no tensor on the host holds NaN or Inf. Returns 0, or -1 with a reason that names the
 * tensor. */
int cmn_contents_check_finite(const struct cmn_checkpointing *c);

#endif
