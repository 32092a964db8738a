/* One training, from the cfg to the weights files: it connects the parts of this room in the order
 * of Darknet's calls. */
#ifndef CMN_TRAINER_H
#define CMN_TRAINER_H

#include <stdio.h>

#include "engine/plan.h"
#include "trainer/checkpointing.h"
#include "trainer/feed.h"
#include "trainer/model.h"
#include "trainer/session.h"
#include "trainer/step.h"

struct cmn_trainer {
    struct cmn_session *session;
    struct cmn_feed feed;
    struct cmn_model model;
    struct cmn_step step;
    int started;          /* set when the first micro-batch begins */
    struct cmn_plan plan; /* what the network needs */
    char *cfg;
    int batch, micro_batches; /* as the cfg says it */
    double program; /* resident bytes, and bytes allocated, before the network was built */
    size_t allocated;
    double save_began;
};

/* Local. Called when [net] of the cfg is read. By the cfg, a step has `micro_batches` micro-batches
 * of `batch` images. Free with cmn_trainer_close(); s and net must outlive it. */
struct cmn_trainer *cmn_trainer_open(struct cmn_session *s, struct cmn_net *net, int batch,
                                     int micro_batches);

/* Collective, blocking. Closes report and checkpoints, returns the network's memory to it, and
 * frees t. */
void cmn_trainer_close(struct cmn_trainer *t);

/* Collective, blocking. Closes report and checkpoints at the end of a job in which Darknet does not
 * free its network. */
void cmn_trainer_flush(struct cmn_trainer *t);

/* Collective, blocking. `net` was read from `cfg`, and rank 0's has the weights. It replaces the
 * network that cmn_trainer_open() was given, and must outlive the trainer. */
void cmn_trainer_attach(struct cmn_trainer *t, struct cmn_net *net, const char *cfg);

/* Collective, blocking. Resumes from the newest checkpoint once the network is attached and the
 * backup folder is known. Called after each of these two; does nothing before both, nor a second
 * time. */
void cmn_trainer_resume(struct cmn_trainer *t);

/* Local. Called when the training list is read: `list` is its stream, which is rewound, and its
 * length is in the session. */
void cmn_trainer_list(struct cmn_trainer *t, FILE *list);

/* Local, except in the first step, which begins the training and is collective. Called when a
 * micro-batch begins. Returns by how many images the number that all ranks have seen grows. */
int cmn_trainer_before_micro_batch(struct cmn_trainer *t);

/* Collective, blocking. Called before weights are saved to `file`: the network gets the averages
 * over all ranks. Returns whether this rank writes the file; cmn_trainer_after_save() follows on
 * that rank. */
int cmn_trainer_before_save(struct cmn_trainer *t, const char *file);

/* Local. Called when the weights are saved: restores the weights and statistics of this rank. */
void cmn_trainer_after_save(struct cmn_trainer *t);

/* Local. Called on the rank that writes if the file could not be written; `reason` is an errno.
 * If the training continues because its checkpoints keep the weights, it warns and returns 1. */
int cmn_trainer_save_failed(struct cmn_trainer *t, const char *file, int reason);

#endif
