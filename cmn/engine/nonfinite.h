/* Numbers that are none, NaN and infinities, and where in a network they stand. Local, not blocking.
 *
 * They are told by their bits: Darknet's source is compiled in a way that folds isnan() away.
 *
 * What is looked at of a gradient: all of it up to 4096 floats, and of tensors that are no matrix; of a larger matrix its first
 * row and its first column. A weight's gradient is the sum of products of an output's delta and an input: a delta that is no
 * number makes its whole row none, such an input its whole column. So a row and a column miss only a single product that is too
 * large for a float, and cost next to nothing. */
#ifndef CMN_NONFINITE_H
#define CMN_NONFINITE_H

#include "engine/gradients.h"

struct cmn_net;

/* Where one was found. */
struct cmn_nonfinite {
    int layer; /* -1: the network's own */
    const char *part,
        *name; /* sub-layer, or ""; field, as in struct cmn_tensor. Static. NULL: nothing was found */
    float value;
};

/* The first float of x that is no number, or NULL. */
const float *cmn_nonfinite_find(const float *x, size_t n);

/* Whether a gradient holds one; it is the CPU's memory. */
int cmn_nonfinite_gradient(const struct cmn_tensor *t, struct cmn_nonfinite *found);

/* Whether a tensor of that kind holds one, from the first layer on. On GPUs the tensors must have been pulled. */
int cmn_nonfinite_tensor(const struct cmn_gradients *g, enum cmn_tensor_kind kind,
                         struct cmn_nonfinite *found);

/* Whether the loss of this pass is one: then the layer whose it is. */
int cmn_nonfinite_loss(const struct cmn_net *net, struct cmn_nonfinite *found);

/* In words: "the weights of layer 3 (connected) are nan". */
void cmn_nonfinite_say(const struct cmn_net *net, const struct cmn_nonfinite *found, char *text,
                       size_t bytes);

/* In words, where it began, as a clause behind a comma; "" when that is not to be seen. Of the pass that has just been done;
 * *image becomes the number of the image in it that brought it, or -1. */
void cmn_nonfinite_origin(const struct cmn_gradients *g, const struct cmn_net *net, char *text,
                          size_t bytes, long *image);

#endif
