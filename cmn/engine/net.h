/* The network that is trained or evaluated, without the struct of the Darknet that it is made of.
 *
 * Other rooms know `struct cmn_net` alone. hooks/ makes it from Darknet's struct
 * (engine/darknet_net.h). All calls are local and blocking. A layer is named by its index, 0 to
 * cmn_net_layers() - 1. */
#ifndef CMN_NET_H
#define CMN_NET_H

#include <stddef.h>
#include <stdio.h>

struct cmn_net;

/* ---- shape ---- */

int cmn_net_layers(const struct cmn_net *net);

/* The type of a layer, e.g. "connected". Static. */
const char *cmn_net_layer_name(const struct cmn_net *net, int layer);

/* Images of a micro-batch on this rank. A step of a sequence counts as an image. */
int cmn_net_batch(const struct cmn_net *net);

/* The layers' memory has room for as many images as the cfg gave this rank; n is at most that. */
void cmn_net_set_batch(struct cmn_net *net, int n);

/* Micro-batches of a step. */
int cmn_net_subdivisions(const struct cmn_net *net);

/* Images of a sequence, 1 for networks without time_steps. */
int cmn_net_time_steps(const struct cmn_net *net);

/* The first layer that takes several images as one sequence, or -1. */
int cmn_net_first_recurrent_layer(const struct cmn_net *net);

/* Whether an image's loss depends on the other images of its micro-batch. */
int cmn_net_compares_images(const struct cmn_net *net);

/* Whether a sample may hold other images of the list than the one with which it begins, as mosaic
 * and mixup make them. */
int cmn_net_draws_images(const struct cmn_net *net);

/* Floats of one image's input and labels. */
size_t cmn_net_inputs(const struct cmn_net *net);
size_t cmn_net_truths(const struct cmn_net *net);

/* Pixels of the input. random=1 in the cfg makes trainers change them. */
struct cmn_net_size {
    int width, height;
};
struct cmn_net_size cmn_net_size(const struct cmn_net *net);

/* Nothing happens when the network has that size already. Input, labels and outputs become
 * undefined. */
void cmn_net_resize(struct cmn_net *net, struct cmn_net_size size);

/* Whether a training may have brought the network to this size: it has it now, or random=1 draws
 * it, in this cfg or as it was. 0, or -1 with a reason: the sizes that it may have. */
int cmn_net_check_size(const struct cmn_net *net, struct cmn_net_size size);

/* Resizes where random=1 of this cfg draws that size. */
void cmn_net_resize_as_drawn(struct cmn_net *net, struct cmn_net_size size);

/* Whether the update is Adam's. */
int cmn_net_uses_adam(const struct cmn_net *net);

/* A key of the cfg that makes the update another one than momentum's or Adam's, or NULL. Static. */
const char *cmn_net_own_update(const struct cmn_net *net);

/* By what the gradients on a GPU are multiplied until that update; 1: by nothing. */
double cmn_net_loss_scale(const struct cmn_net *net);

/* Whether a layer's outputs depend on images of earlier micro-batches. */
int cmn_net_looks_back(const struct cmn_net *net);

/* A key of the cfg by which Darknet rejects labels as earlier micro-batches had them, or NULL.
 * Static. */
const char *cmn_net_follows(const struct cmn_net *net);

/* Whether Darknet keeps averages of the weights by itself (ema_alpha). */
int cmn_net_averages(const struct cmn_net *net);

/* Whether labels and output hold one value for each class, so that right answers can be
 * counted. */
int cmn_net_classifies(const struct cmn_net *net);

/* Whether any layer computes a loss. */
int cmn_net_has_loss(const struct cmn_net *net);

/* The number of classes of a detector's boxes; -1: it is none. */
int cmn_net_detected_classes(const struct cmn_net *net);

/* The class by which a detector knows the class of a label: another one where its cfg has map=. -1: none of
 * its classes. */
int cmn_net_label_class(const struct cmn_net *net, int class);

/* Whether the last layer finds boxes, or the one before those that Darknet may have behind it. */
int cmn_net_detects(const struct cmn_net *net);

/* The number of classes whose boxes a layer finds; -1: it finds no boxes. */
int cmn_net_box_classes(const struct cmn_net *net, int layer);

/* ---- progress of the training ---- */

/* Images that the network has been trained with, of all ranks and runs. Weights files keep it. */
size_t cmn_net_seen(const struct cmn_net *net);
void cmn_net_set_seen(struct cmn_net *net, size_t seen);

/* Steps that the images seen amount to: Darknet's number of the iteration. */
size_t cmn_net_iteration(const struct cmn_net *net);

/* Updates so far; Adam corrects its bias with it. Weights files do not keep it. */
int cmn_net_updates(const struct cmn_net *net);
void cmn_net_set_updates(struct cmn_net *net, int updates);

/* The iteration after which the training ends (max_batches); 0: never. */
int cmn_net_last_iteration(const struct cmn_net *net);
void cmn_net_set_last_iteration(struct cmn_net *net, int iteration);

/* Whether the last iteration is done. */
int cmn_net_training_ended(const struct cmn_net *net);

/* The current iteration becomes the last: Darknet's trainers end their loop and save. */
void cmn_net_stop_after_this_iteration(struct cmn_net *net);

/* ---- learning rate ---- */

/* learning_rate of the cfg, before its policy changes it. */
float cmn_net_learning_rate(const struct cmn_net *net);
void cmn_net_scale_learning_rate(struct cmn_net *net, float factor);

/* Iterations of the warm-up (burn_in); 0: none. */
int cmn_net_burn_in(const struct cmn_net *net);

/* Trainers print the rate after each step, and policy=random draws a number for that. Draws it;
 * nothing happens with other policies. */
void cmn_net_draw_random_rate(struct cmn_net *net);

/* ---- the micro-batch that was just computed ---- */

/* The sum of the images' losses. NaN in a network without a loss. */
float cmn_net_loss(const struct cmn_net *net);

/* Images whose largest output is that of their label; 0 unless cmn_net_classifies(). */
int cmn_net_count_right(const struct cmn_net *net);

/* A copy of input and labels, which the caller frees by restoring them. In between the network
 * may be resized, and back. */
float *cmn_net_save_batch(const struct cmn_net *net);
void cmn_net_restore_batch(struct cmn_net *net, float *saved);

/* ---- files ---- */

/* What a cfg's weights files are called: its file name up to the first dot. */
void cmn_net_name(const char *cfg, char *name, size_t bytes);

/* Writes the weights as Darknet's weights files hold them. The caller asks ferror(). */
void cmn_net_write_weights(struct cmn_net *net, FILE *out);

#endif
