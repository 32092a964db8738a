/* Clipping by the global norm (cmn_clip): a step whose gradient is longer than a limit is made as
 * long as the limit. Local.
 *
 * With s the sum of the gradients over all images of a step, as the update sees it, and n those
 * images:
 *     norm = |s / n|, over the values of all tensors: the L2 norm of the mean gradient
 *     s = s * min(1, limit / (norm + 1e-6))
 * The gradient is the loss's alone, as PyTorch's clip_grad_norm_ has it: decay and momentum come
 * after it, and so does the learning rate. Source: Pascanu, Mikolov, Bengio, "On the difficulty of
 * training recurrent neural networks", 2013. */
#ifndef CMN_CLIP_H
#define CMN_CLIP_H

#include "communicators/communicator.h"

/* The norm of the mean of the sums in x, over `images`, where the exchange has not made it. It is
 * made in double, in the order of the tensors, so ranks with the same sums get the same bits. */
double cmn_clip_norm(const struct cmn_exchange *x, int images);

/* Makes the sums in x, whose mean has that norm, so that it is at most `limit`. Returns whether
 * that changed them. A norm that is NaN changes nothing; an infinite one makes NaN of infinite
 * values, and 0 of the others. */
int cmn_clip(const struct cmn_exchange *x, double limit, double norm);

/* By what sums whose mean has that norm are scaled, where it is less than 1. */
double cmn_clip_keeps(double limit, double norm);

#endif
