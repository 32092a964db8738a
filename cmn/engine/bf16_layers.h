/* bf16_layers: a training's layers in bf16 on the CPU (cmn_mixed=bf16). Between convolutions, pooling,
 * shortcuts, routes, upsampling and dropout, outputs and their gradients are images of bf16 as in
 * engine/bf16_images.h, in the memory of Darknet's outputs and deltas; other layers see Darknet's floats.
 * Weights, statistics and gradients of weights keep 32 bits. All calls are local. The process trains one
 * network. */
#ifndef CMN_BF16_LAYERS_H
#define CMN_BF16_LAYERS_H

#include <stddef.h>

struct cmn_net;

/* Whoever trains: batch normalisation exchanges the statistics of n filters, each over `count`
 * values, between ranks. `progress` makes progress in exchanges that are under way. */
struct cmn_bf16_trainer {
    void *self;
    void (*statistics)(void *self, float *mean, float *variance, int n, int count);
    void (*deltas)(void *self, float *mean_delta, float *variance_delta, int n, int count);
    void (*progress)(void *self);
};

/* From now on the training's passes of `net` are computed so, where the processor can; evaluations
 * stay Darknet's. Call cmn_convolution_use_bf16() before. `net` is valid until the close. */
void cmn_bf16_layers_open(struct cmn_net *net, const struct cmn_bf16_trainer *trainer);

/* Darknet computes its layers again. May be called without an open. */
void cmn_bf16_layers_close(void);

/* Returns whether the gradient of layer i's output is overwritten by the layers behind it, so that
 * nobody needs to set it to zero. */
int cmn_bf16_layers_overwrite(const struct cmn_net *net, int i);

#endif
