/* The network that is trained or evaluated, as a handle that hides Darknet's struct.
 *
 * Other rooms know only `struct cmn_net`. hooks/ makes it from Darknet's struct
 * (engine/darknet_net.h). All functions are local and blocking. A layer is identified by its index,
 * 0 to cmn_net_layers() - 1. */
#ifndef CMN_NET_H
#define CMN_NET_H

#include <stddef.h>
#include <stdio.h>

#include "engine/net_tree.h"

struct cmn_net;

/* ---- shape ---- */

int cmn_net_layers(const struct cmn_net *net);

/* Returns the type of a layer, e.g. "connected". Static. */
const char *cmn_net_layer_name(const struct cmn_net *net, int layer);

/* Returns the images of a micro-batch on this rank. */
int cmn_net_batch(const struct cmn_net *net);

/* Returns the micro-batches of a step. */
int cmn_net_subdivisions(const struct cmn_net *net);

/* Pixels of the input. With `random` in the cfg, trainers change them. */
struct cmn_net_size {
    int width, height;
};
struct cmn_net_size cmn_net_size(const struct cmn_net *net);

/* Resizes the network's input; does nothing if it has that size already. Input, labels and outputs
 * become undefined. */
void cmn_net_resize(struct cmn_net *net, struct cmn_net_size size);

/* Checks whether a training may have brought the network to this size: it has that size now, or
 * `random` of this cfg or of an earlier version of it can draw the size. Returns 0, or -1 with a
 * reason that names the allowed sizes. */
int cmn_net_check_size(const struct cmn_net *net, struct cmn_net_size size);

/* Resizes the network if `random` of this cfg can draw that size. */
void cmn_net_resize_as_drawn(struct cmn_net *net, struct cmn_net_size size);

/* Returns whether a layer is a convolution. */
int cmn_net_convolves(const struct cmn_net *net);

/* Returns whether it has connected layers. */
int cmn_net_connects(const struct cmn_net *net);

/* Returns whether labels and output have one value for each class, so that right answers can be
 * counted. */
int cmn_net_classifies(const struct cmn_net *net);

/* Returns whether any layer computes a loss. */
int cmn_net_has_loss(const struct cmn_net *net);

/* Returns the number of classes of a detector's boxes, or -1 if the network is not a detector. */
int cmn_net_detected_classes(const struct cmn_net *net);

/* Returns the detector's class for the class of a label: the cfg's map= may change it. Returns -1
 * if it is none of the detector's classes. */
int cmn_net_label_class(const struct cmn_net *net, int class);

/* Returns whether the network is a detector: its last layer finds boxes, or, in a Darknet that
 * allows other layers behind it, an earlier one does. */
int cmn_net_detects(const struct cmn_net *net);

/* Returns the number of classes of the boxes that a layer finds, or -1 if it finds no boxes. */
int cmn_net_box_classes(const struct cmn_net *net, int layer);

/* ---- progress of the training ---- */

/* The number of images that the network was trained with, over all ranks and runs. Weights files
 * contain it. */
size_t cmn_net_seen(const struct cmn_net *net);

/* The number of updates so far; Adam corrects its bias with it. Weights files do not contain it. */
int cmn_net_updates(const struct cmn_net *net);
void cmn_net_set_updates(struct cmn_net *net, int updates);

/* The iteration after which the training ends (max_batches); 0: never. */
int cmn_net_last_iteration(const struct cmn_net *net);
void cmn_net_set_last_iteration(struct cmn_net *net, int iteration);

/* Returns whether the last iteration is done. */
int cmn_net_training_ended(const struct cmn_net *net);

/* Makes the current iteration the last one: Darknet's trainers then end their loop and save. */
void cmn_net_stop_after_this_iteration(struct cmn_net *net);

/* ---- learning rate ---- */

/* The learning_rate of the cfg, before its policy changes it. */
float cmn_net_learning_rate(const struct cmn_net *net);
void cmn_net_scale_learning_rate(struct cmn_net *net, float factor);

/* Returns the iterations of the warm-up (burn_in), or 0 without one. */
int cmn_net_burn_in(const struct cmn_net *net);

/* ---- the micro-batch that was just computed ---- */

/* Returns the sum of the images' losses, or NaN in a network without a loss. */
float cmn_net_loss(const struct cmn_net *net);

/* Returns the number of images whose largest output is that of their label; 0 unless
 * cmn_net_classifies(). */
int cmn_net_count_right(const struct cmn_net *net);

/* save returns a copy of input and labels, which restore copies back and frees. In between the
 * network may be resized, and resized back. save returns NULL, and restore does nothing with it, if
 * each step has its own memory for them. */
float *cmn_net_save_batch(const struct cmn_net *net);
void cmn_net_restore_batch(struct cmn_net *net, float *saved);

/* ---- files ---- */

/* Writes to `name` what a cfg's weights files are called: the cfg's file name up to the first
 * dot. */
void cmn_net_name(const char *cfg, char *name, size_t bytes);

/* Writes the weights in the format of Darknet's weights files. The caller checks ferror(). */
void cmn_net_write_weights(struct cmn_net *net, FILE *out);

#endif
