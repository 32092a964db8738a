/* cmn_ema: an exponential moving average of the weights. It is validated and saved in place of the
 * weights, and does not affect the training.
 *
 * With w the weights after update t of the training (the first is 1), D the key's value:
 *     d = min(D, (1 + t) / (10 + t))
 *     e = e + (1 - d) * (w - e)
 * The average starts as a copy of the first weights; since d grows from 2/11, these random weights
 * are soon forgotten. A skipped step is no update. After steps in which the ranks have no common
 * weights (local SGD) the average follows the next mean m of the weights in one update for all of
 * them: e = e + (1 - d_1 * d_2 * …) * (m - e).
 *
 * The average covers every tensor that has a gradient and, by the same rule, the rolling statistics
 * of batch normalisation: each rank averages its own statistics, since they differ between ranks.
 * Sources: Polyak, Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; the
 * factor d is that of TensorFlow's ExponentialMovingAverage with num_updates. */
#ifndef CMN_EMA_H
#define CMN_EMA_H

#include "communicators/communicator.h"
#include "engine/gradients.h"

struct cmn_ema {
    double decay;      /* 0: off; all other fields are then unused */
    long steps;        /* updates that the average includes */
    long unaveraged;   /* local SGD: updates since the last mean, not yet in the average */
    float *weights;    /* the average, laid out like the flat buffer */
    float *statistics; /* this rank's averages, in the order of cmn_gradients_pack() */
    const struct cmn_flat_buffer_ops *ops; /* for the memory that holds the weights */
    float **own;     /* the network's own pointers while it has the average, else NULL */
    int ours, fills; /* `weights` is not the communicator's; this rank fills it */
};

/* Collective, blocking. Gets the memory of the average; if the communicator c has `step`, the ranks
 * of a node share it. The caller must have refused a network with its own average (ema_alpha). */
void cmn_ema_open(struct cmn_ema *e, double decay, const struct cmn_gradients *g,
                  const struct cmn_communicator *c, void *self);
void cmn_ema_close(struct cmn_ema *e);

/* All calls below are local. */

/* Sets the average to the network's weights and statistics. */
void cmn_ema_begin(struct cmn_ema *e, const struct cmn_gradients *g);

/* Counts `steps` updates and lets the average of the statistics follow. Returns the factor 1 - d by
 * which the caller must let the average of the weights follow; 0 if the average is off. */
float cmn_ema_next(struct cmn_ema *e, const struct cmn_gradients *g, long steps);

/* Lets the average follow the network's weights; or `weights`, laid out like the flat buffer. */
void cmn_ema_follow(struct cmn_ema *e, const struct cmn_gradients *g, float part);
void cmn_ema_follow_block(struct cmn_ema *e, const struct cmn_gradients *g, const float *weights,
                          float part);

/* Point the network to the average, and back to its own weights, whose memory is unchanged. The
 * caller must exchange the statistics. */
void cmn_ema_swap_in(struct cmn_ema *e, const struct cmn_gradients *g);
void cmn_ema_restore(struct cmn_ema *e, const struct cmn_gradients *g);

#endif
