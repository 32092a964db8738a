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

/* By what sums whose mean has that norm are multiplied: 1, or less. A norm that is NaN gives 1; an
 * infinite one 0, which makes NaN of infinite values. */
double cmn_clip_keeps(double limit, double norm);

#endif
