/* LARS: a learning rate for each layer's weights, in proportion to their norm and not to that of
 * their gradient. Local.
 *
 * With w the weights, g the mean gradient of the batch's images, c the trust coefficient, d the
 * decay, m the momentum and r the learning rate (of the schedule, times the layer's own factor):
 *     l = c * |w| / (|g| + d * |w|)
 *     v = m * v + r * l * (g + d * w)
 *     w = w - v
 * So what momentum keeps is in units of the weights: a later change of the rate does not change it.
 * l is 1 where the weights, or gradient and decay, are all 0. Biases and scales have no l, and are
 * updated as Darknet does. Source: You, Gitman, Ginsburg, "Large Batch Training of Convolutional
 * Networks", 2017, algorithm 1. */
#ifndef CMN_LARS_H
#define CMN_LARS_H

#include <stddef.h>

#include "base/reduce.h"

/* The l above, of n weights and the sum of their gradients over `images`; Darknet's gradients point
 * downhill, which is the same to a norm. Sums are made in double, in an order that depends on n
 * alone, so ranks with the same floats get the same bits. */
double cmn_lars_rate(const float *w, const float *sum, size_t n, double coefficient, double images,
                     double decay);

/* The same of the two norms. */
double cmn_lars_rate_of(double weights, double sum, double coefficient, double images,
                        double decay);

/* Makes of *how, which is Darknet's update with the sum over `images`, that of LARS, and scales the
 * sum for it. What the update leaves of u is then the momentum in units of the weights. */
void cmn_lars_prepare(struct cmn_sgd_slice *how, const float *w, float *sum, size_t n,
                      double coefficient, int images, float decay);

#endif
