/* One training, from the cfg to the weights files: its parts, and the order in which Darknet's
 * calls reach them. */
#ifndef CMN_TRAINER_H
#define CMN_TRAINER_H

#include <stdio.h>

#include "engine/plan.h"
#include "trainer/checkpointing.h"
#include "trainer/feed.h"
#include "trainer/model.h"
#include "trainer/progress.h"
#include "trainer/session.h"
#include "trainer/step.h"

struct cmn_trainer {
    struct cmn_session *session;
    struct cmn_feed feed;
    struct cmn_model model;
    struct cmn_step step;
    struct cmn_training_progress progress;
    struct cmn_checkpointing *checkpointing; /* NULL until network and backup folder are known */
    int started;                             /* the first micro-batch has begun */
    struct cmn_plan plan;                    /* what the network needs */
    char *cfg;
    int batch, micro_batches; /* as the cfg says it */
    double program;           /* bytes in memory, and allocated, before the network was built */
    size_t allocated;
    double save_began;
};

/* Local. [net] of the cfg is read: so many micro-batches of `batch` images, or sequences, as the
 * cfg says it. Free with cmn_trainer_close(); s and net must outlive it. */
struct cmn_trainer *cmn_trainer_open(struct cmn_session *s, struct cmn_net *net, int batch,
                                     int micro_batches);

/* Collective, blocking. Ends report and checkpoints, gives the network its memory back, and frees
 * t. */
void cmn_trainer_close(struct cmn_trainer *t);

/* Local, blocking. The job ends, and Darknet does not free its network: ends report and
 * checkpoints. */
void cmn_trainer_flush(struct cmn_trainer *t);

/* Collective, blocking. `net` was read from `cfg`, on rank 0 with weights. It takes the place of
 * the one that cmn_trainer_open() was given, and must outlive the trainer. */
void cmn_trainer_attach(struct cmn_trainer *t, struct cmn_net *net, const char *cfg);

/* Collective, blocking. When the network is attached and the backup folder is known: resumes from
 * the newest checkpoint. To be called after each of the two; does nothing before both are known,
 * and the second time. */
void cmn_trainer_resume(struct cmn_trainer *t);

/* Local. The training list is read: its stream, which is rewound; its length is in the session. */
void cmn_trainer_list(struct cmn_trainer *t, FILE *list);

/* Local; collective in the first step, which begins the training. A micro-batch begins. Returns how
 * many images more all ranks have seen then. */
int cmn_trainer_before_micro_batch(struct cmn_trainer *t);

/* Collective, blocking. Darknet has done a batch: if it brought an update, what is due after a
 * step. Returns the loss of the last step of all ranks, and before there is one `loss`, this rank's. */
float cmn_trainer_after_batch(struct cmn_trainer *t, float loss);

/* Local. Steps of this run and of those that it resumes. */
long cmn_trainer_steps(const struct cmn_trainer *t);

/* Collective, blocking. Weights are about to be saved in that file: the network gets what all ranks
 * have together. Returns whether this rank is to write them; cmn_trainer_after_save() follows on
 * the rank that does. */
int cmn_trainer_before_save(struct cmn_trainer *t, const char *file);

/* Local. The weights are saved: gives this rank its own weights and statistics back. */
void cmn_trainer_after_save(struct cmn_trainer *t);

/* Local, on the rank that writes, when it could not; `reason` is an errno. Whether the training
 * continues all the same, because it takes checkpoints and has not ended: then a line says so. */
int cmn_trainer_save_failed(struct cmn_trainer *t, const char *file, int reason);

#endif
