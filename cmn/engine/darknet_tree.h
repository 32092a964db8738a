/* Darknet's headers, and what differs between its trees: pjreddie's and AlexeyAB's. The build
 * compiles one of tree_pjreddie.c and tree_alexeyab.c, and nothing else asks which tree it is. For
 * engine/ and hooks/ alone.
 *
 * All calls are local and blocking. Networks and layers are the caller's, and are not kept. */
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

/* No header of AlexeyAB's declares it. */
void reset_network_state(network *net, int b);

extern const struct cmn_tree {
    const char *whose;     /* "pjreddie's" */
    int has_all_hooks;     /* for each command of config/commands.c, and not those of both trees */
    int has_more;          /* what config/ calls AlexeyAB's: keys of a cfg, options like -map */
    int keeps_cell_deltas; /* backward of an LSTM begins with the deltas of the last micro-batch */
    int keeps_batch;       /* input and labels lie in memory of the network's, not the trainer's */
} cmn_tree;

/* ---- the cfg ---- */

/* Why ranks cannot train what the cfg, as far as it is read, or the words of the command line ask
 * for; NULL: they can. Either may be NULL. The text is static, until the next call. */
const char *cmn_tree_refusal(const network *net, char *const *words);

/* The file that has this line of a cfg, and its number; NULL where the parser does not keep
 * them. */
const char *cmn_tree_line_of(const kvp *pair, int *line);

/* Reads a cfg. cmn_tree_free frees the network; what Darknet cannot read ends the job. */
network *cmn_tree_read(const char *cfg);
void cmn_tree_free(network *net);

/* Whether the network was read for predictions alone, beside the one that trains. */
int cmn_tree_predicts_only(const network *net);

/* ---- the network ---- */

/* Whether this tree wrote the weights file that has this revision in its head. */
int cmn_tree_wrote(int revision);

/* What Darknet calls layers of a type, or should. Static. */
const char *cmn_tree_layer_name(LAYER_TYPE type);

/* Whether weights files have the biases of a layer of this type. Those that they have not do not
 * learn. */
int cmn_tree_saves_biases(const layer *l);

/* Sets the images of a micro-batch; there is room for them. */
void cmn_tree_set_batch(network *net, int n);

/* Where a trainer's network is a copy: it gets what a resize of the network itself has allocated
 * anew. */
void cmn_tree_update_copy(network *copy, const network *net);

/* Floats of one image, at the network's present size; of its labels. */
size_t cmn_tree_inputs(const network *net);
size_t cmn_tree_truths(const network *net);

/* Pixels to a side that random of the cfg draws; 0 to 0 without it. */
struct cmn_tree_sizes {
    int least, most;
    int squares; /* of multiples of 32 alone */
};
struct cmn_tree_sizes cmn_tree_random_sizes(const network *net);

/* Those that an earlier part of the training may have drawn, with another cfg. */
struct cmn_tree_sizes cmn_tree_earlier_sizes(const network *net);

/* Whether the update is Adam's. */
int cmn_tree_uses_adam(const network *net, int on_gpu);

/* As cmn_net_own_update(). */
const char *cmn_tree_own_update(const network *net, int on_gpu);

/* As cmn_net_loss_scale(). */
double cmn_tree_loss_scale(const network *net, int on_gpu);

/* This process has so many of a step's micro-batches: its loader takes as many sequences. */
void cmn_tree_take_part(network *net, int micro_batches);

/* Sets the images seen, and the number of the iteration that follows from them. */
void cmn_tree_set_seen(network *net, size_t seen);
size_t cmn_tree_iteration(const network *net);

/* Computes the learning rate, for which policy=random draws a number. */
void cmn_tree_draw_rate(network *net);

/* The loss of the micro-batch that was just computed. */
float cmn_tree_loss(const network *net);

/* Values that this process follows through its micro-batches and that decide what it trains with,
 * as the thresholds of badlabels_*: value i, and its name in checkpoints (static); NULL where there
 * are no more. */
float **cmn_tree_followed(network *net, int i, const char **name);

/* Whether an image's loss depends on the other images of its micro-batch. */
int cmn_tree_compares_images(const network *net);

/* Whether a sample may hold other images of the list than the one with which it begins. */
int cmn_tree_draws_images(const network *net);

/* The keys of the cfg that Darknet does not know where this network trains, as "adam=1, clip"; ""
 * when there are none. */
void cmn_tree_leaves_out(const network *net, int on_gpu, char *text, size_t bytes);

/* Threads of this network's trainer that load images. */
int cmn_tree_loader_threads(const network *net);

/* Those of the layers before `cutoff`, as Darknet's weights files hold them; AlexeyAB's average of
 * them where `average` is set. The caller asks ferror(). */
void cmn_tree_write_weights(network *net, FILE *out, int cutoff, int average);

/* Whether a file has filled all weights of the network, and had no more. */
int cmn_tree_has_weights(const network *net);

/* ---- layers ---- */

/* Whether the layer finds boxes of classes. */
int cmn_tree_finds_boxes(const layer *l);

/* The layer that says how a detector's boxes are compared and named: the last one, or the last one
 * that finds boxes where others may follow it. */
int cmn_tree_detector(const network *net);

/* Whether Darknet updates the weights of this layer of a network, and of those inside of it. */
int cmn_tree_updates(const layer *l);

/* Whether the layer's rolling statistics stay as they are while it trains. */
int cmn_tree_keeps_statistics(const layer *l);

/* Whether the layer's outputs depend on images before this one, of other micro-batches. */
int cmn_tree_looks_back(const layer *l);

/* Whether the layer keeps its last outputs, of which the next ones hold a part ([history]). */
int cmn_tree_keeps_outputs(const layer *l);

/* Whether the layer carries h and c from step to step. */
int cmn_tree_is_lstm(const layer *l);

/* The layers inside of an LSTM, a GRU and their like, in the order of weights files; returns how
 * many, 0 for all others. */
enum { CMN_TREE_PARTS = 11 };
struct cmn_tree_part {
    const char *name; /* "uf." */
    layer *l;         /* may be NULL */
};
int cmn_tree_parts(const layer *l, struct cmn_tree_part part[CMN_TREE_PARTS]);

/* Weights of the layers that have no outputs of their own to normalise, as a shortcut's; 0 for all
 * others. */
size_t cmn_tree_plain_weights(const layer *l);

/* Where the layer keeps exponential averages of weights, biases and scales, in this order; returns
 * whether the network has them. */
int cmn_tree_averages(const network *net, layer *l, float **average[3]);

/* The layer's factor of the learning rate in its update. */
const float *cmn_tree_rate_scale(const layer *l);

/* The part of a rolling statistic that the layer keeps in each micro-batch. */
double cmn_tree_rolling_keeps(const layer *l);

/* Batch normalisation divides squares by their count less this. */
double cmn_tree_variance_less(void);

#ifdef GPU
/* Multiplies n floats of the GPU's memory; does not wait. */
void cmn_tree_scale_on_gpu(float *x, size_t n, float factor);

/* Where the network keeps the addresses of its input and labels on the GPU. */
void cmn_tree_gpu_batch(network *net, float ***input, float ***truth);

/* Makes the network's loss of those of its layers, where it keeps one. */
void cmn_tree_add_losses(network *net);
#endif

/* ---- images and predictions ---- */

/* The lines of a file, ended by NULL; *n of them. The caller frees the array. */
char **cmn_tree_names(const char *file, int *n);

/* Decodes an image, for 8-bit channels; thread-safe. The caller frees; NULL with a reason. */
unsigned char *cmn_tree_load_pixels(const char *path, int channels, int *w, int *h, int *c,
                                    const char **reason);

/* The middle of the image, as large as possible, in this size. The caller frees both. */
image cmn_tree_crop_centre(image whole, int w, int h);

/* Whether images lie between grey bars in this detector's input. */
int cmn_tree_letterboxes(const network *net);

/* Forward without training. `truth` may be NULL. */
void cmn_tree_predict(network *net, float *input, float *truth);

/* What the network's last layer has found is in the host's memory then. */
void cmn_tree_fetch_output(const network *net);

/* Outputs of a tree of classes become probabilities. */
void cmn_tree_hierarchy(const network *net, float *out);

/* The boxes of an image of w * h pixels in the last prediction, those of lower scores suppressed.
 * free_detections() frees. */
detection *cmn_tree_boxes(network *net, int w, int h, float score, float hierarchy, float nms,
                          int *n);

/* Where Darknet looks for the labels of an image; `name` has room for 4096 characters. */
void cmn_tree_label_file(const char *image, char *name);

#endif
