/* One network in training: passes, steps, epochs; what happens between two updates. */
#ifndef CMN_TRAINING_H
#define CMN_TRAINING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "engine/net.h"
#include "engine/nonfinite.h"
#include "optimizers/optimizer.h"
#include "trainer/session.h"

struct cmn_checkpointing;
struct cmn_batch_norm;
struct cmn_report;
struct cmn_row;
struct cmn_sampler;
struct cmn_trace;
struct network;

struct cmn_trainer {
    struct cmn_session *session;
    struct network *net;
    char name[256];                /* of the cfg, without folder and extension */
    char cfg[256];                 /* the same with its extension: names end at their first dot */
    char *cfg_text;                /* its lines, without blanks and comments */
    char json[2 * CMN_TEXT];       /* file of the log */
    int total, local, offset;      /* images of a pass: all ranks, this one, ranks before it */
    int sequences, first_sequence; /* local and offset as the cfg counts: without its time_steps */
    int w, h;     /* of the input, as the cfg says; random=1 changes the network's */
    int attached; /* gradients lie in the flat buffer */
    struct cmn_gradients gradients;
    struct cmn_optimizer optimizer;
    struct cmn_batch_norm *norm;           /* cmn_sync_bn on several ranks, or NULL */
    float *kept_statistics, *kept_weights; /* while the network has those of all ranks */
    struct cmn_sampler *scatter;
    size_t batch; /* samples that the loader asks for at a time */
    size_t drawn; /* those handed to it */
    size_t trained,
        current; /* samples of steps that are done or under way; the first of this step */
    _Atomic(char **) paths;    /* the trainer's list, once images were drawn from it; or NULL */
    struct cmn_report *report; /* rank 0 only */
    struct cmn_trace *trace;   /* cmn_timeline, or NULL */
    const char **layer;        /* for it: what the layers are */

    int started;
    int pass;            /* passes of the step that are done */
    float loss, right;   /* sums of this rank over the passes of the step */
    float mean_loss, lr; /* of the last step; the loss over all ranks */
    int stepped;         /* an update happened in this batch */
    int row_due, verify_due;
    int validation_owed;            /* the run was stopped where its row was to have one */
    float interrupts, terminations; /* wishes to stop that have come with the metrics */
    long steps, first_step;         /* updates, and their number when training began */
    long epoch;                     /* whole passes over the list, as of the last step */
    long earlier;                   /* steps of the runs that this one goes on from */
    long row_at;     /* iteration of the last row that any run writes: not of one that ends a run */
    size_t row_seen; /* images by then */
    int weights_given; /* a weights file was read */
    struct cmn_checkpointing *checkpoint;

    struct cmn_row_sums {
        double loss, right, images;
        double compute, exchange, load;
        double since;
        long steps;
    } sums;                         /* since the last row */
    double began, pass_began, left; /* clock: training, this pass, end of the last batch */
    double mark;                    /* for the timeline: end of the last layer; 0: not in a pass */
    double save_began;
    double step_began; /* the first pass of this step */
    int fused;         /* the update was part of the exchange */

    struct cmn_nonfinite bad; /* of this step: name is NULL unless something was found */
    int bad_pass, bad_image;  /* pass of the step, and image of it that brought it, or -1 */
    char why[256];            /* and where it began, in words */
    int looked;               /* at the loss of this pass */
    int next;                 /* tensor that backward comes to next */
    long skipped, in_a_row;   /* steps that were left out; the latest of them */
    float *statistics; /* cmn_nonfinite=skip: the rolling ones as they were before the step */
};

enum cmn_direction { CMN_FORWARD, CMN_BACKWARD };

/* All return 0, or -1 with a reason. `t` is owned by the caller, zeroed, with session and net set. */

/* Local. Whether output and truth hold one value a class, so that right answers can be counted. */
int cmn_trainer_classifies(const struct cmn_trainer *t);
/* Collective. */
int cmn_trainer_attach(struct cmn_trainer *t, const char *cfg);
/* Local. Undoes attach and ends the report. */
void cmn_trainer_detach(struct cmn_trainer *t);
/* Local (rate.c). Once, when the network is read: scales its learning rate as cmn_scale_lr asks. */
void cmn_trainer_rate(struct cmn_trainer *t);
/* Local (rate.c). Says so, when the training begins. */
void cmn_trainer_tell_rate(const struct cmn_trainer *t);
/* Local. A pass begins. */
int cmn_trainer_before_micro_batch(struct cmn_trainer *t);
/* Local. A pass has ended; returns whether it was the step's last. */
int cmn_trainer_after_micro_batch(struct cmn_trainer *t);
/* Local. Layer i has done its part of a pass. */
int cmn_trainer_after_forward(struct cmn_trainer *t, int i);
int cmn_trainer_after_backward(struct cmn_trainer *t, int i);
/* Local. Moves on what is exchanged in the background. */
int cmn_trainer_progress(struct cmn_trainer *t);
/* Local, rank 0 (epoch.c). Writes the graph of the network, if there is to be one, and begins the report. */
int cmn_trainer_report(struct cmn_trainer *t);
/* Collective (training_norm.c). Gradients are attached: prepares cmn_sync_bn, if it is to be. */
int cmn_trainer_norm_open(struct cmn_trainer *t);
/* Local (training_norm.c). Whether a pass runs in which statistics are those of all ranks, of which there may be one. */
int cmn_trainer_syncs(const struct cmn_trainer *t);
/* Collective, blocking (training_norm.c). In such a pass exchanges what a layer has found out of its `count` values a filter, see norm.h;
 * otherwise nothing. */
int cmn_trainer_norm(struct cmn_trainer *t, enum cmn_direction way, float *mean, float *variance,
                     int n, int count);
/* Collective (epoch.c). Begins the timeline, if there is to be one. */
int cmn_trainer_timeline(struct cmn_trainer *t);
/* Local, rank 0 (epoch.c). Weights are about to be saved in that file: says so when nothing was left to train. 0, or -1 with a reason when
 * newer ones are there. */
int cmn_trainer_untrained(struct cmn_trainer *t, const char *file);
/* Local, rank 0 (training_untrained.c). Whether that file has weights which were written after the checkpoint that this training goes on
 * from, and have seen more images: -1 with a reason. */
int cmn_trainer_newer(const struct cmn_trainer *t, const char *file, size_t seen);
/* Local (epoch.c). What this rank has to do while weights are saved, since save_began, is done: takes back what was lent. */
int cmn_trainer_saved(struct cmn_trainer *t);
/* Collective (epoch.c). The training goes on, and its first images lie in the network: makes the row that the run before owes, if it
 * does. */
int cmn_trainer_pending_validation(struct cmn_trainer *t);
/* Collective (training_averages.c). The network gets what all ranks together have: statistics merged, and with local steps the mean of
 * the weights. Nothing may train until take_back (local), which gives each rank its own again. */
int cmn_trainer_swap_in_averages(struct cmn_trainer *t);
int cmn_trainer_restore_own(struct cmn_trainer *t);
/* Collective. After the update: with local steps averages the weights, where that is due or `settle` is set. */
int cmn_trainer_average(struct cmn_trainer *t, int settle);
/* Collective. All ranks have the same weights afterwards. */
int cmn_trainer_synchronise(struct cmn_trainer *t);
/* Local (training_nonfinite.c). Backward has done layer i, or all of it with i = -1: looks for numbers that are none. 0, or -1 with the
 * reason to stop. */
int cmn_trainer_check_gradient(struct cmn_trainer *t, int i);
/* Local (training_nonfinite.c). A step begins. */
int cmn_trainer_remember(struct cmn_trainer *t);
/* Local, blocking (training_nonfinite.c). What a GPU was asked about its gradients; on the CPU there is nothing to wait for. */
int cmn_trainer_gpu_checked(struct cmn_trainer *t);
/* Collective, blocking (training_nonfinite.c). 1: the step is to be left out on all ranks, and that is said; 0: it is not; -1 with a
 * reason. */
int cmn_trainer_agree_to_skip(struct cmn_trainer *t);
/* Local (training_nonfinite.c). Before weights are saved: 0, or -1 with the reason not to. On all ranks the same. */
int cmn_trainer_worth_saving(const struct cmn_trainer *t);
/* Collective. `rule` is what Darknet would update with, and becomes what it is to do. */
int cmn_trainer_update(struct cmn_trainer *t, struct cmn_rule *rule);
/* Local (validation.c). Whether there is something to validate on that this network can answer. */
int cmn_trainer_validates(const struct cmn_trainer *t);
/* Collective (validation.c). Fills what `row` says of the validation; training goes on as if there had been none. */
int cmn_trainer_validate(struct cmn_trainer *t, struct cmn_row *row);
/* Collective (epoch.c). After a batch; does nothing unless it brought an update. */
int cmn_trainer_step_done(struct cmn_trainer *t);

/* training_checkpoint.c */

/* Collective. When the network and the backup folder are known: goes on from the newest checkpoint, if there is one and cmn_checkpoint is not
 * 0. To be called after each of the two is known; does nothing before both are, and the second time. */
int cmn_trainer_resume(struct cmn_trainer *t);
/* Local (training_resume.c). Says from which checkpoint it goes on, once, and lets go of the file. */
void cmn_trainer_tell_origin(struct cmn_trainer *t);
/* Local (training_resume.c). The training begins: its clocks and sums are as they were. */
int cmn_trainer_resumed(struct cmn_trainer *t);
/* Local. The training list is read: its stream, which is rewound. */
void cmn_trainer_list(struct cmn_trainer *t, FILE *list);
/* Local, but collective where a training goes on. offset[j] belongs to sequence j of this rank's; the first call for the array finds what a
 * checkpoint has of it, and later ones keep it. Returns whether offset[j] is from there, or -1. */
int cmn_trainer_offset(struct cmn_trainer *t, size_t *offset, int j);
/* Collective. Keeps what the training is now; `row_made`: this iteration's row is counted as written. Nothing where no checkpoints are taken. */
int cmn_trainer_collect(struct cmn_trainer *t, int row_made);
/* Local (epoch.c). Whether max_batches is reached, as after a wish to stop. */
int cmn_trainer_ends(const struct cmn_trainer *t);
/* Local. Whether the training is not at its end, and takes checkpoints. */
int cmn_trainer_checkpoints_continue(const struct cmn_trainer *t);
/* Local. Whether one is due after this iteration. */
int cmn_trainer_checkpoint_due(const struct cmn_trainer *t);
/* Local. Gives what was collected, if it was, to the thread that writes, and says what became of earlier ones. */
int cmn_trainer_checkpoint(struct cmn_trainer *t);
/* Local, blocking. Waits for what is being written. */
void cmn_trainer_checkpoint_close(struct cmn_trainer *t);

/* samples.c */

/* Local. Divides `batch` (images, or sequences, of one pass, as the cfg says) as cmn_batch asks. */
int cmn_trainer_split_batch(struct cmn_trainer *t, int batch);
/* Local. Images of a step of all ranks. */
size_t cmn_trainer_step_images(const struct cmn_trainer *t);
/* Local. Once the length of the list is known: cmn_epochs becomes max_batches. */
int cmn_trainer_epochs(struct cmn_trainer *t);
/* Local. n samples are wanted from a list of `images`; *first is the number of the first. */
int cmn_trainer_next_batch(struct cmn_trainer *t, size_t n, size_t images, size_t *first);
/* Local. The samples drawn last were not used: they are drawn again. */
void cmn_trainer_rewind_batch(struct cmn_trainer *t);
/* Local. The next sample, for data that lie in memory: *row of `rows`. */
int cmn_trainer_next_sample(struct cmn_trainer *t, size_t rows, size_t *row);
/* Local. The calling thread's random numbers become those of sequence i of this rank's, in this pass. -1 where
 * cmn_scatter says how to scatter a list: there is none. */
int cmn_trainer_seed_sequence(struct cmn_trainer *t, int i);

#endif
