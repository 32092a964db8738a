/* NaN and infinities, and where in a network they are. Local, not blocking.
 *
 * They are recognised by their bits: Darknet is compiled with -ffast-math, which folds isnan()
 * away.
 *
 * Of a gradient that is a matrix of more than 4096 floats only the first row and the first
 * column are scanned; all other gradients are scanned whole. A weight's gradient is the sum of
 * products of an output's delta and an input: a NaN delta makes its whole row NaN, a NaN input
 * its whole column. So a row and a column miss only a single product that overflows a float,
 * and cost next to nothing. */
#ifndef CMN_NONFINITE_H
#define CMN_NONFINITE_H

#include "engine/gradients.h"

struct cmn_net;

/* The place of a value that is NaN or infinite. */
struct cmn_nonfinite {
    int layer;        /* -1: the network itself */
    const char *part; /* sub-layer, or ""; as in struct cmn_tensor */
    const char *name; /* field, as in struct cmn_tensor; static. NULL: nothing was found */
    float value;      /* 0: it is gone */
};

/* The first NaN or infinity of x, or NULL. */
const float *cmn_nonfinite_find(const float *x, size_t n);

/* Whether a gradient in the CPU's memory holds one. */
int cmn_nonfinite_gradient(const struct cmn_tensor *t, struct cmn_nonfinite *found);

/* Whether a tensor of that kind holds one: the first layer's. On GPUs the tensors must have
 * been pulled. */
int cmn_nonfinite_tensor(const struct cmn_gradients *g, enum cmn_tensor_kind kind,
                         struct cmn_nonfinite *found);

/* Whether the loss of the last micro-batch is one: then the layer whose loss it is. */
int cmn_nonfinite_loss(const struct cmn_net *net, struct cmn_nonfinite *found);

/* In words: "weights of layer 3 (connected): nan". */
void cmn_nonfinite_say(const struct cmn_net *net, const struct cmn_nonfinite *found, char *text,
                       size_t bytes);

/* Where it began, as a clause that follows a comma; "" when that cannot be seen. Looks at the
 * micro-batch that has just been computed; *image becomes the number of the image in it that
 * brought it, or -1. */
void cmn_nonfinite_origin(const struct cmn_gradients *g, const struct cmn_net *net, char *text,
                          size_t bytes, long *image);

#endif
