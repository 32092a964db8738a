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

/* The l above, of the norms of the weights and of the sum of their gradients over `images`;
 * Darknet's gradients point downhill, which is the same to a norm. An update with momentum in units
 * of the weights takes rate = 1, and r * l as the factor of sum and decay. */
double cmn_lars_rate(double weights, double sum, double coefficient, double images, double decay);

#endif
