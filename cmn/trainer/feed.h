/* What a training is fed with: each rank's part of a batch, which sample comes next, how many
 * iterations that makes, and the learning rate that goes with it. */
#ifndef CMN_FEED_H
#define CMN_FEED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "data/sampler.h"
#include "engine/gradients.h"
#include "engine/net.h"
#include "trainer/balance.h"
#include "trainer/session.h"

/* How a step is divided over the ranks. Images of a recurrent network are steps of sequences. */
struct cmn_share {
    int micro_batches;             /* of a step on this rank */
    int local;                     /* images of each of them */
    int step;                      /* images of a step, of all ranks */
    int dealt, offset;             /* images that the sampler deals out at once; of ranks before */
    int seen_before, seen_each;    /* of the step's images, all ranks have seen in micro-batch i:
                                      seen_before + (i + 1) * seen_each */
    int sequences, first_sequence; /* local and offset as the cfg counts: without its time_steps */
    int whole; /* micro-batches are the cfg's own; other ranks have its other ones */
    int first; /* cmn_exact: number of this rank's first one in the step */
    int spare; /* cmn_exact: there is none for this rank, which computes nothing */
    /* Factors of the rolling statistics of batch normalisation before and after a step. */
    struct cmn_rolling_factor before, after;
};

struct cmn_feed {
    const struct cmn_session *session;
    struct cmn_net *net;
    struct cmn_share share;
    struct cmn_sampler *sampler; /* NULL until the first sample is drawn */
    size_t batch;                /* samples of a step on this rank */
    size_t drawn;                /* samples that were handed out */
    size_t step_end, step_first; /* samples of the steps so far; the first one of this step */
    struct cmn_balance balance;  /* with cmn_exact */
    int *first;                  /* with cmn_exact: of each rank in this step, and the end */
    long step;                   /* of this run, from 0 */
    _Atomic(char **) paths;      /* the training list, once images were drawn from it; or NULL */
};

/* All local, not blocking. */

/* This rank's part of a step of micro_batches times `batch` images, or sequences of time_steps
 * images. Ends the job where there are too few of them. */
struct cmn_share cmn_feed_share(const struct cmn_session *s, int batch, int micro_batches,
                                int time_steps);

/* Local, with cmn_exact. Random numbers are those of this micro-batch of the step before which all
 * ranks had seen so many images, whoever computes it. */
void cmn_feed_seed_micro_batch(size_t seen, int number);

/* cmn_exact: micro-batches of a step on all ranks together; else 0. */
int cmn_feed_exact(const struct cmn_feed *f);

/* Whether ranks divide each micro-batch, and may not take whole ones. */
int cmn_feed_divides(const struct cmn_session *s, int time_steps);

/* Divides a step over the ranks: micro_batches of `batch` images, or sequences, as the cfg says it.
 * The network knows nothing but time_steps yet. */
void cmn_feed_open(struct cmn_feed *f, const struct cmn_session *s, struct cmn_net *net, int batch,
                   int micro_batches);
void cmn_feed_close(struct cmn_feed *f);

/* Images of a step of all ranks, and of this one. */
size_t cmn_feed_step_images(const struct cmn_feed *f);
size_t cmn_feed_own_images(const struct cmn_feed *f);

/* Once, when the network is read: cmn_scale_lr changes its learning rate. */
void cmn_feed_scale_rate(const struct cmn_feed *f);
/* Says so, when the training begins. */
void cmn_feed_tell_rate(const struct cmn_feed *f);

/* Collective, blocking, with cmn_data=scatter. The other hosts get the images of the training list,
 * which the stream holds, those of the validation list and all labels. */
void cmn_feed_scatter(const struct cmn_feed *f, FILE *list);
/* Does the same for the images of another list. */
void cmn_feed_scatter_paths(const struct cmn_session *s, char *const *paths, int n);

/* Once the length of the list is known: cmn_epochs sets the last iteration. */
void cmn_feed_set_epochs(const struct cmn_feed *f);

/* *n samples are wanted out of a list of `images`; returns the number of the first. cmn_balance
 * changes *n. */
size_t cmn_feed_next_batch(struct cmn_feed *f, size_t *n, size_t images);
/* The samples drawn last were not used: they are drawn again. */
void cmn_feed_rewind(struct cmn_feed *f);
/* The next of `rows` samples that lie in memory. */
size_t cmn_feed_next_sample(struct cmn_feed *f, size_t rows);
/* The calling thread's random numbers become those of sequence i of this rank's, when all ranks have
 * seen so many images. */
void cmn_feed_seed_sequence(const struct cmn_feed *f, size_t seen, int i);

/* Images that all ranks together have seen since the last step, in micro-batch i of this rank. */
int cmn_feed_seen(const struct cmn_feed *f, int micro_batch);

/* A step begins: its samples are the next ones. Returns whether this rank's share may have changed
 * (cmn_balance). */
int cmn_feed_begin_step(struct cmn_feed *f);
/* Samples of this rank in this step, for messages: those of a micro-batch, or of the whole step for
 * -1. Returns their number; 0 where samples have no numbers, as in a text. The caller frees
 * *sample. */
size_t cmn_feed_samples(const struct cmn_feed *f, int micro_batch, struct cmn_sample **sample);
/* What people call a sample: its file, or its number. */
void cmn_feed_name_sample(const struct cmn_feed *f, const struct cmn_sample *sample, char *text,
                          size_t bytes);

#endif
