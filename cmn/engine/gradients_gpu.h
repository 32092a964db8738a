/* The GPU's half of gradients.h. There a tensor has two places: the host's, where Darknet reads and writes
 * files, and the device's, where it trains. In a build without CUDA no network is on a GPU. */
#ifndef CMN_GRADIENTS_GPU_H
#define CMN_GRADIENTS_GPU_H

#include "engine/gradients.h"

/* Local. Moves the gradients of g's list, as they are on the GPU, to one block of its memory, behind them room
 * for the metrics. 0, or -1 with a reason. */
int cmn_gradients_gpu_open(struct cmn_gradients *g);

/* Local. Takes the block away from the network again, and frees it. */
void cmn_gradients_gpu_close(struct cmn_gradients *g);

/* Local, not blocking. Asks the GPU whether tensor i, a gradient, is finite as it is after what Darknet has asked for. */
int cmn_gradients_gpu_look(struct cmn_gradients *g, int i);

/* Local, blocking. What the GPU has found since the last time: *i becomes the number of the first tensor that was not finite, or -1. 0,
 * or -1 with a reason. */
int cmn_gradients_gpu_found(struct cmn_gradients *g, int *i);

/* As cmn_gradients_sum(). While backward still runs on the GPU it moves on what was begun. */
int cmn_gradients_gpu_sum(struct cmn_gradients *g, const struct cmn_communicator *c, void *self);

/* Local, blocking. The host's copy of all tensors of a kind becomes the device's, or the other way round.
 * Nothing where g is not on a GPU. 0, or -1 with a reason. */
int cmn_gradients_pull(const struct cmn_gradients *g, enum cmn_tensor_kind kind);
int cmn_gradients_push(const struct cmn_gradients *g, enum cmn_tensor_kind kind);

#endif
