/* The flat gradient buffer of a network, and the communicator that exchanges it. */
#ifndef CMN_GRADIENT_EXCHANGE_H
#define CMN_GRADIENT_EXCHANGE_H

#include "communicators/communicator.h"
#include "engine/gradients.h"

/* Collective when the communicator c (with its self) has memory of its own. As cmn_gradients_open,
 * in that memory; when c can step, the weights lie there, too. c must stay open until
 * cmn_gradients_close. */
void cmn_gradient_exchange_open(struct cmn_gradients *g, struct cmn_net *net,
                                const struct cmn_communicator *c, void *self);

/* Collective, blocking. Gradients and metrics become their sum over all ranks. On a GPU the
 * communicator is polled while backward still runs there. */
void cmn_gradient_exchange_sum(struct cmn_gradients *g, const struct cmn_communicator *c,
                               void *self);

/* Collective, blocking. Sum and update in one, by a communicator that can step. `images` of all
 * ranks were in the step; rate and decay as Darknet gives them to its layers' updates. *sgd says
 * all else; it gets each tensor's. */
void cmn_gradient_exchange_step(struct cmn_gradients *g, const struct cmn_communicator *c,
                                void *self, int images, float rate, float decay,
                                struct cmn_sgd *sgd);

#endif
