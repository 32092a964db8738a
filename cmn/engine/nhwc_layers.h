/* nhwc_layers: a training's layers on images in NHWC, on the CPU, where oneDNN computes the
 * convolutions. Between convolutions, pooling, shortcuts, routes, upsampling and dropout, outputs and
 * their gradients are images as in engine/nhwc_images.h, in the memory of Darknet's outputs and
 * deltas: oneDNN need not reorder them, and each layer reads memory less often. Other layers see
 * Darknet's order. With cmn_mixed=bf16 these images are bf16; weights, statistics and gradients of
 * weights keep 32 bits. All calls are local. The process trains one network. */
#ifndef CMN_NHWC_LAYERS_H
#define CMN_NHWC_LAYERS_H

#include <stddef.h>

struct cmn_net;

/* The trainer's calls: batch normalisation exchanges the statistics of n filters, each over `count`
 * values, between ranks. `progress` makes progress in exchanges that are under way. */
struct cmn_nhwc_trainer {
    void *self;
    void (*statistics)(void *self, float *mean, float *variance, int n, int count);
    void (*deltas)(void *self, float *mean_delta, float *variance_delta, int n, int count);
    void (*progress)(void *self);
};

/* From now on the training's passes of `net` are computed so, as far as oneDNN is used for them
 * (engine/convolution.h); evaluations stay Darknet's. Images are bf16 if `in_bf16` is set; then
 * cmn_convolution_use_bf16(1) has said that there is bf16. `net` is valid until the close. */
void cmn_nhwc_layers_open(struct cmn_net *net, int in_bf16, const struct cmn_nhwc_trainer *trainer);

/* Returns a copy of layer i's output as floats in NHWC if it is in bf16, else NULL. The caller frees
 * it. */
float *cmn_nhwc_layers_decode(const struct cmn_net *net, int i);

/* Returns how many seconds the products of convolutions and connected layers of a micro-batch take,
 * forward and backward, in bf16 or in 32 bits: the shorter of two times. Their results are thrown
 * away. Call it before the open. */
double cmn_nhwc_layers_measure(struct cmn_net *net, int in_bf16);

/* Darknet computes its layers again. May be called without an open. */
void cmn_nhwc_layers_close(void);

/* Returns whether the gradient of layer i's output is overwritten by the layers behind it, so that
 * nobody needs to set it to zero. */
int cmn_nhwc_layers_overwrite(const struct cmn_net *net, int i);

#endif
