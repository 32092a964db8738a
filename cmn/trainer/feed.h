/* The input of a training: each rank's part of a batch, the next samples, the number of iterations
 * that follows from these, and the learning rate that goes with them. */
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

/* How a step is divided over the ranks. */
struct cmn_share {
    int micro_batches;          /* this rank's micro-batches in a step */
    int local;                  /* images of each of these */
    int step;                   /* images of a step, of all ranks */
    int dealt, offset;          /* images that the sampler deals together; of lower ranks */
    int seen_before, seen_each; /* images of the step that all ranks have seen after micro-batch
                                      i: seen_before + (i + 1) * seen_each */
    int whole;                  /* each micro-batch is one of the cfg's; others have the rest */
    int first;                  /* cmn_exact: this rank's first micro-batch in the step */
    int spare;                  /* cmn_exact: this rank has no micro-batch and computes nothing */
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
    size_t step_end, step_first; /* end of this step's samples on this rank, and the first */
    struct cmn_balance balance;  /* with cmn_exact */
    int *first;                  /* with cmn_exact: each rank's first micro-batch, and the end */
    long step;                   /* number of the next step of this run, from 0; with cmn_balance */
    _Atomic(char **) paths;      /* the training list, or NULL until an image was drawn from it */
};

/* All calls are local and not blocking, except those that say otherwise. */

/* Returns this rank's part of a step of `micro_batches` micro-batches of `batch` images. Ends the
 * job if there are too few for all ranks. */
struct cmn_share cmn_feed_share(const struct cmn_session *s, int batch, int micro_batches);

/* With cmn_exact. Seeds the calling thread's random numbers for micro-batch `number` of the step
 * before which all ranks had seen `seen` images, so that they do not depend on which rank computes
 * it. */
void cmn_feed_seed_micro_batch(size_t seen, int number);

/* With cmn_exact returns the micro-batches of a step on all ranks together; else 0. */
int cmn_feed_exact(const struct cmn_feed *f);

/* Divides a step over the ranks. `micro_batches` and `batch` are those of the cfg. */
void cmn_feed_open(struct cmn_feed *f, const struct cmn_session *s, struct cmn_net *net, int batch,
                   int micro_batches);
void cmn_feed_close(struct cmn_feed *f);

/* Return the images of a step, of all ranks and of this one. */
size_t cmn_feed_step_images(const struct cmn_feed *f);
size_t cmn_feed_own_images(const struct cmn_feed *f);

/* Returns the whole passes over the training list in which so many images are seen; 0 if its length
 * is not known. */
long cmn_feed_epoch(const struct cmn_feed *f, size_t images);

/* Changes the network's learning rate as cmn_scale_lr says; called once, after the network was
 * read. */
void cmn_feed_scale_rate(const struct cmn_feed *f);
/* Prints that rate when the training begins. */
void cmn_feed_tell_rate(const struct cmn_feed *f);

/* Collective, blocking; does nothing without cmn_data=scatter. Sends the other hosts the images of
 * the training list (which `list` holds; it is rewound), those of the validation list, and all
 * labels. */
void cmn_feed_scatter(const struct cmn_feed *f, FILE *list);
/* Collective, blocking. Does the same for the images of another list. */
void cmn_feed_scatter_paths(const struct cmn_session *s, char *const *paths, int n);

/* Sets the last iteration by cmn_epochs, once the length of the list is known. */
void cmn_feed_set_epochs(const struct cmn_feed *f);

/* Takes the next *n samples from a list of `images` and returns the number of the first.
 * cmn_balance changes *n. */
size_t cmn_feed_next_batch(struct cmn_feed *f, size_t *n, size_t images);
/* Makes the samples that were drawn last the next ones again: they were not used. */
void cmn_feed_rewind(struct cmn_feed *f);
/* Returns the next of `rows` samples that lie in memory. */
size_t cmn_feed_next_sample(struct cmn_feed *f, size_t rows);

/* Returns how many images all ranks together have seen since the last step, after micro-batch i of
 * this rank. */
int cmn_feed_seen(const struct cmn_feed *f, int micro_batch);

/* Begins a step with the next samples. Returns whether this rank's share may have changed
 * (cmn_balance). */
int cmn_feed_begin_step(struct cmn_feed *f);
/* Lists this rank's samples in this step, for messages: those of a micro-batch or, for -1, of the
 * whole step. Returns how many there are; 0 if samples have no numbers, as in a text. The caller
 * frees *sample. */
size_t cmn_feed_samples(const struct cmn_feed *f, int micro_batch, struct cmn_sample **sample);
/* Writes the name of a sample for messages: its file, or its number. */
void cmn_feed_name_sample(const struct cmn_feed *f, const struct cmn_sample *sample, char *text,
                          size_t bytes);

#endif
