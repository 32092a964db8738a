/* Connects the flat gradient buffer of a network to the communicator that exchanges it. */
#ifndef CMN_GRADIENT_EXCHANGE_H
#define CMN_GRADIENT_EXCHANGE_H

#include "communicators/communicator.h"
#include "engine/gradients.h"

/* Collective if the communicator c (with its self) provides memory. Does the same as
 * cmn_gradients_open() in c's memory; if c has `step`, the weights move there, too. c must stay
 * open until cmn_gradients_close(). */
void cmn_gradient_exchange_open(struct cmn_gradients *g, struct cmn_net *net,
                                const struct cmn_communicator *c, void *self);

/* Collective, blocking. Replaces gradients and metrics by their sums over all ranks. On a GPU it
 * polls the communicator while backward still runs there. */
void cmn_gradient_exchange_sum(struct cmn_gradients *g, const struct cmn_communicator *c,
                               void *self);

/* Collective, blocking; c must have `step`. Sums the gradients and updates the weights in one call.
 * The step had `images` images of all ranks; rate and decay are those that Darknet gives to its
 * layers' updates. Sets rate, decay and scale of *sgd; the caller sets its other fields. */
void cmn_gradient_exchange_step(struct cmn_gradients *g, const struct cmn_communicator *c,
                                void *self, int images, float rate, float decay,
                                struct cmn_sgd *sgd);

#endif
