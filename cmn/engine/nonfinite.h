/* NaN and infinities, and where in a network they are. All functions are local and do not block.
 *
 * They are recognised by their bits: Darknet is compiled with -ffast-math, which folds isnan()
 * away.
 *
 * If a gradient is a matrix of more than 4096 floats, only its first row and its first column are
 * scanned; all other gradients are scanned whole. A weight's gradient is the sum of products of an
 * output's delta and an input: a NaN delta makes its whole row NaN, a NaN input its whole column.
 * So a row and a column miss only a single product that overflows a float, and cost next to
 * nothing. */
#ifndef CMN_NONFINITE_H
#define CMN_NONFINITE_H

#include "engine/gradients.h"

struct cmn_net;

/* The place of a value that is NaN or infinite. */
struct cmn_nonfinite {
    int layer;        /* -1: the network itself */
    const char *name; /* field, as in struct cmn_tensor; static. NULL: nothing was found */
    float value;      /* 0: the value is no longer known */
};

/* Returns the address of the first NaN or infinity of x, or NULL. */
const float *cmn_nonfinite_find(const float *x, size_t n);

/* Returns whether a gradient in the CPU's memory holds one, and sets *found if so. */
int cmn_nonfinite_gradient(const struct cmn_tensor *t, struct cmn_nonfinite *found);

/* Returns whether a tensor of that kind holds one. *found becomes the one in the lowest layer. On
 * GPUs the tensors must have been pulled before. */
int cmn_nonfinite_tensor(const struct cmn_gradients *g, enum cmn_tensor_kind kind,
                         struct cmn_nonfinite *found);

/* Returns whether the loss of the last micro-batch is one. found->layer becomes the first layer
 * whose own loss is one, or -1. */
int cmn_nonfinite_loss(const struct cmn_net *net, struct cmn_nonfinite *found);

/* Writes the finding in words to `text`, e.g. "weights of layer 3 (connected): nan". */
void cmn_nonfinite_say(const struct cmn_net *net, const struct cmn_nonfinite *found, char *text,
                       size_t bytes);

/* Writes where the first one appeared to `text`, as a clause that begins with a comma, or "" if
 * that cannot be seen. It examines the weights and the micro-batch that was just computed. *image
 * becomes the number of the image in that micro-batch in which it appeared, or -1. */
void cmn_nonfinite_origin(const struct cmn_gradients *g, const struct cmn_net *net, char *text,
                          size_t bytes, long *image);

#endif
