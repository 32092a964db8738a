/* cmn_ema: an exponential moving average of the weights. It is validated and saved in place of the
 * weights, and changes nothing of the training.
 *
 * With w the weights after update t of the training (the first is 1), D the key's value:
 *     d = min(D, (1 + t) / (10 + t))
 *     e = e + (1 - d) * (w - e)
 * d grows from 2/11, so that the first weights, which are random, are soon forgotten. It begins
 * from the weights with which the training begins. A step that is left out is no update. Steps of
 * which the ranks have no common weights (local SGD) are taken together at the next mean m of the
 * weights: e = e + (1 - d_1 * d_2 * …) * (m - e).
 *
 * Every tensor that has a gradient is in it, and the rolling statistics of batch normalisation, by
 * the same rule: each rank averages its own, as they are its own.
 * Sources: Polyak, Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; the
 * factor d is that of TensorFlow's ExponentialMovingAverage with num_updates. */
#ifndef CMN_EMA_H
#define CMN_EMA_H

#include "communicators/communicator.h"
#include "engine/gradients.h"

struct cmn_ema {
    double decay;      /* 0: off, and all else is unused */
    long steps;        /* updates that are in the average */
    long unaveraged;   /* local SGD: updates since the last mean, none of them in the average */
    float *weights;    /* of all tensors with a gradient, as the flat buffer lies */
    float *statistics; /* this rank's, as cmn_gradients_pack() has them */
    const struct cmn_flat_buffer_ops *ops; /* of where the weights lie */
    float **own;     /* the network's pointers while it has the average, or NULL */
    int ours, fills; /* `weights`: is no memory of the communicator's; filled by this rank */
};

/* Collective, blocking. Gets memory: what the ranks of a node have in common where the communicator
 * c steps. Ends the job when the network has an average of its own (ema_alpha). */
void cmn_ema_open(struct cmn_ema *e, double decay, const struct cmn_gradients *g,
                  const struct cmn_communicator *c, void *self);
void cmn_ema_close(struct cmn_ema *e);

/* All local. */

/* The average becomes what the network has. */
void cmn_ema_begin(struct cmn_ema *e, const struct cmn_gradients *g);

/* The next update, or so many at once, is counted, and the statistics follow. Returns the part by
 * which the weights' average is to follow them; the caller does that. 0 where it is off. */
float cmn_ema_next(struct cmn_ema *e, const struct cmn_gradients *g, long steps);

/* The average follows the weights that the network has; or weights that lie as the flat buffer. */
void cmn_ema_follow(struct cmn_ema *e, const struct cmn_gradients *g, float part);
void cmn_ema_follow_block(struct cmn_ema *e, const struct cmn_gradients *g, const float *weights,
                          float part);

/* The network gets the average in place of its weights, whose memory stays as it is; and back. The
 * statistics are the caller's to move. */
void cmn_ema_swap_in(struct cmn_ema *e, const struct cmn_gradients *g);
void cmn_ema_restore(struct cmn_ema *e, const struct cmn_gradients *g);

#endif
