/* Darknet's headers, and the differences of its two trees, pjreddie's and AlexeyAB's. The build
 * compiles either tree_pjreddie.c or tree_alexeyab.c, and no other code asks which tree it is. Only
 * engine/ and hooks/ include this file.
 *
 * All functions are local and blocking. Networks and layers belong to the caller, and no pointer to
 * them is kept. */
#ifndef CMN_DARKNET_TREE_H
#define CMN_DARKNET_TREE_H

#include <stdio.h>

#include "blas.h"
#include "box.h"
#include "data.h"
#include "image.h"
#include "list.h"
#include "network.h"
#include "option_list.h"
#include "parser.h"
#include "tree.h"
#include "utils.h"

/* AlexeyAB's headers do not declare this function. */
void reset_network_state(network *net, int b);

extern const struct cmn_tree {
    const char *whose; /* "pjreddie's" */
    /* 1: all commands of config/commands.c have hooks; 0: only those marked as in both trees */
    int has_all_hooks;
    /* 1: this tree has the cfg keys and options (e.g. -map) that config/ lists as AlexeyAB's. */
    int has_more;
    /* 1: an LSTM's backward pass starts with the cell deltas of the last micro-batch. */
    int keeps_cell_deltas;
    /* 1: input and labels are in the network's memory, not in the trainer's. */
    int keeps_batch;
} cmn_tree;

/* ---- the cfg ---- */

/* Returns why ranks cannot train this network or run this command line, or NULL if they can. The
 * cfg may have been read only in part. Either argument may be NULL. The text is static and valid
 * until the next call. */
const char *cmn_tree_refusal(const network *net, char *const *words);

/* Returns the file that contains this line of a cfg, and sets *line to its number. Returns NULL if
 * the parser does not record them. */
const char *cmn_tree_line_of(const kvp *pair, int *line);

/* Reads a cfg. cmn_tree_free() frees the network. A cfg that Darknet cannot read ends the job. */
network *cmn_tree_read(const char *cfg);
void cmn_tree_free(network *net);

/* Returns whether the network was read only for predictions, besides the one that trains. */
int cmn_tree_predicts_only(const network *net);

/* ---- the network ---- */

/* Returns whether this tree wrote the weights file that has this revision in its head. */
int cmn_tree_wrote(int revision);

/* Returns Darknet's name for layers of a type, also for types that Darknet itself has no name for.
 * Static. */
const char *cmn_tree_layer_name(LAYER_TYPE type);

/* Returns whether weights files contain the biases of a layer of this type. Biases that they do not
 * contain are not trained. */
int cmn_tree_saves_biases(const layer *l);

/* Sets the number of images of a micro-batch. The layers' memory must be large enough. */
void cmn_tree_set_batch(network *net, int n);

/* If a trainer's network is a copy, gives the copy the memory that a resize of the network itself
 * has reallocated. */
void cmn_tree_update_copy(network *copy, const network *net);

/* Return the floats of one image at the network's present size, and of its labels. */
size_t cmn_tree_inputs(const network *net);
size_t cmn_tree_truths(const network *net);

/* The range of the input's width and height, in pixels, that `random` of the cfg draws; 0 to 0
 * without random. */
struct cmn_tree_sizes {
    int least, most;
    int squares; /* 1: only squares whose sides are multiples of 32 */
};
struct cmn_tree_sizes cmn_tree_random_sizes(const network *net);

/* Returns the sizes that an earlier part of the training may have drawn, with another cfg. */
struct cmn_tree_sizes cmn_tree_earlier_sizes(const network *net);

/* Returns whether the update uses Adam. */
int cmn_tree_uses_adam(const network *net, int on_gpu);

/* Does the same as cmn_net_own_update(). */
const char *cmn_tree_own_update(const network *net, int on_gpu);

/* Does the same as cmn_net_loss_scale(). */
double cmn_tree_loss_scale(const network *net, int on_gpu);

/* Tells the network that this process computes `micro_batches` micro-batches of a step: its loader
 * then takes as many sequences. */
void cmn_tree_take_part(network *net, int micro_batches);

/* Sets the images seen. cmn_tree_iteration() returns the iteration number that follows from
 * them. */
void cmn_tree_set_seen(network *net, size_t seen);
size_t cmn_tree_iteration(const network *net);

/* Computes the learning rate; policy=random draws a random number for it. */
void cmn_tree_draw_rate(network *net);

/* Returns the loss of the micro-batch that was just computed. */
float cmn_tree_loss(const network *net);

/* Returns the network's pointer to value i of those that this process updates through its
 * micro-batches and that decide what it trains with, e.g. the thresholds of badlabels_*. *name
 * becomes its name in checkpoints (static). Returns NULL if there is no value i. */
float **cmn_tree_followed(network *net, int i, const char **name);

/* Returns whether an image's loss depends on the other images of its micro-batch. */
int cmn_tree_compares_images(const network *net);

/* Returns whether a sample may contain other images of the list besides the one with which it
 * begins. */
int cmn_tree_draws_images(const network *net);

/* Writes to `text` the keys of the cfg that Darknet ignores on the device where this network
 * trains, e.g. "adam=1, clip"; "" if there are none. */
void cmn_tree_leaves_out(const network *net, int on_gpu, char *text, size_t bytes);

/* Returns the number of threads of this network's trainer that load images. */
int cmn_tree_loader_threads(const network *net);

/* Writes the weights of the layers before `cutoff`, in the format of Darknet's weights files. If
 * `average` is set, AlexeyAB's tree writes its averages of the weights. The caller checks
 * ferror(). */
void cmn_tree_write_weights(network *net, FILE *out, int cutoff, int average);

/* Returns whether a weights file has filled all weights of the network and contained no more. */
int cmn_tree_has_weights(const network *net);

/* ---- layers ---- */

/* Returns whether the layer finds boxes of classes. */
int cmn_tree_finds_boxes(const layer *l);

/* Returns the index of the layer that decides how a detector's boxes are compared and named: the
 * last layer, or, if other layers may follow it, the last one that finds boxes. */
int cmn_tree_detector(const network *net);

/* Returns whether Darknet updates the weights of this layer, and of the layers inside it. */
int cmn_tree_updates(const layer *l);

/* Returns whether the layer's rolling statistics stay unchanged while it trains. */
int cmn_tree_keeps_statistics(const layer *l);

/* Returns whether the layer's outputs depend on images of earlier micro-batches. */
int cmn_tree_looks_back(const layer *l);

/* Returns whether the layer keeps its last outputs and puts a part of them into the next ones
 * ([history]). */
int cmn_tree_keeps_outputs(const layer *l);

/* Returns whether the layer carries h and c from step to step. */
int cmn_tree_is_lstm(const layer *l);

/* Fills part[] with the layers inside an LSTM, a GRU and similar layers, in the order of weights
 * files. Returns their number, 0 for all other layers. */
enum { CMN_TREE_PARTS = 11 };
struct cmn_tree_part {
    const char *name; /* "uf." */
    layer *l;         /* may be NULL */
};
int cmn_tree_parts(const layer *l, struct cmn_tree_part part[CMN_TREE_PARTS]);

/* Returns the number of weights of layers without outputs of their own to normalise, e.g. a
 * shortcut; 0 for all other layers. */
size_t cmn_tree_plain_weights(const layer *l);

/* Sets average[] to the layer's pointers to exponential averages of its weights, biases and scales,
 * in this order. Returns whether the network keeps such averages. */
int cmn_tree_averages(const network *net, layer *l, float **average[3]);

/* Returns a pointer to the layer's factor of the learning rate in its update. */
const float *cmn_tree_rate_scale(const layer *l);

/* Returns the factor that the layer applies to the old value of a rolling statistic in each
 * micro-batch. */
double cmn_tree_rolling_keeps(const layer *l);

/* Returns d, if batch normalisation divides sums of squares by count - d for a variance. */
double cmn_tree_variance_less(void);

#ifdef GPU
/* Multiplies n floats in the GPU's memory; does not block. */
void cmn_tree_scale_on_gpu(float *x, size_t n, float factor);

/* Sets *input and *truth to the places where the network stores the addresses of its input and
 * labels on the GPU. */
void cmn_tree_gpu_batch(network *net, float ***input, float ***truth);

/* Updates the network's loss from the losses of its layers, in a tree that stores it. */
void cmn_tree_add_losses(network *net);
#endif

/* ---- images and predictions ---- */

/* Returns the lines of a file, ended by NULL, and sets *n to their number. The caller frees the
 * array. */
char **cmn_tree_names(const char *file, int *n);

/* Decodes an image to 8 bits per channel. Thread-safe. The caller frees the pixels. Returns NULL
 * and sets *reason if it fails. */
unsigned char *cmn_tree_load_pixels(const char *path, int channels, int *w, int *h, int *c,
                                    const char **reason);

/* Returns the middle of the image, as large as possible, resized to w x h. The caller frees both
 * images. */
image cmn_tree_crop_centre(image whole, int w, int h);

/* Returns whether this detector's input has the image between grey bars. */
int cmn_tree_letterboxes(const network *net);

/* Runs forward without training. `truth` may be NULL. */
void cmn_tree_predict(network *net, float *input, float *truth);

/* After this call the output of the network's last layer is in the host's memory. */
void cmn_tree_fetch_output(const network *net);

/* Turns the outputs of a tree of classes into probabilities. */
void cmn_tree_hierarchy(const network *net, float *out);

/* Returns the boxes of the last prediction for an image of w x h pixels; of overlapping boxes those
 * with lower scores are suppressed. free_detections() frees them. */
detection *cmn_tree_boxes(network *net, int w, int h, float score, float hierarchy, float nms,
                          int *n);

/* Writes to `name` where Darknet looks for the labels of an image; `name` has room for 4096
 * characters. */
void cmn_tree_label_file(const char *image, char *name);

#endif
