/* Darknet's headers, and the differences of its two trees, pjreddie's and AlexeyAB's. The build
 * compiles either tree_pjreddie.c or tree_alexeyab.c, which also define the functions of net_tree.h,
 * and no other code asks which tree it is. Only engine/ and hooks/ include this file.
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

#include "cmn.h"
#include "engine/darknet_net.h"
#include "engine/net_tree.h"
#include "mpi/device.h"

extern const struct cmn_tree {
    const char *whose; /* "pjreddie's" */
    /* 1: all commands of config/commands.c have hooks; 0: only those marked as in both trees */
    int has_all_hooks;
    /* 1: this tree has the cfg keys and options (e.g. -map) that config/ lists as AlexeyAB's. */
    int has_more;
    /* 1: the heads of its weights files have a revision that is not 0. */
    int numbers_revisions;
    /* 1: input and labels are in the network's memory, not in the trainer's. */
    int keeps_batch;
    /* 1: a convolution overwrites the gradient of its input, on CPU and GPU, and so drops what layers
     * behind it have added: AlexeyAB's networks are tuned with that. */
    int convolution_overwrites;
} cmn_tree;

/* ---- the cfg ---- */

/* Returns why ranks cannot train this network or run this command line, or NULL if they can. The
 * cfg may have been read only in part. Either argument may be NULL. The text is static and valid
 * until the next call. */
const char *cmn_tree_refusal(const network *net, char *const *words);

/* Reads a cfg. cmn_tree_free() frees the network. A cfg that Darknet cannot read ends the job. */
network *cmn_tree_read(const char *cfg);
void cmn_tree_free(network *net);

/* ---- the network ---- */

/* Returns whether the network trains on a GPU. */
static inline int cmn_net_on_gpu(const struct cmn_net *net)
{
    return cmn_device_built() && cmn_network(net)->gpu_index >= 0;
}

/* If a trainer's network is a copy, gives the copy the memory that a resize of the network itself
 * has reallocated. */
void cmn_tree_update_copy(network *copy, const network *net);

/* The range of the input's width and height, in pixels, that `random` of the cfg draws; 0 to 0
 * without random. */
struct cmn_tree_sizes {
    int least, most;
    int squares; /* 1: only squares whose sides are multiples of 32 */
};
struct cmn_tree_sizes cmn_tree_random_sizes(const network *net);

/* Returns the sizes that an earlier part of the training may have drawn, with another cfg. */
struct cmn_tree_sizes cmn_tree_earlier_sizes(const network *net);

/* Returns the loss of the micro-batch that was just computed. */
float cmn_tree_loss(const network *net);

/* Returns the network's pointer to value i of those that this process updates through its
 * micro-batches and that decide what it trains with, e.g. the thresholds of badlabels_*. *name
 * becomes its name in checkpoints (static). Returns NULL if there is no value i. */
float **cmn_tree_followed(network *net, int i, const char **name);

/* Writes to `text` the keys of the cfg that Darknet ignores on the device where this network
 * trains, e.g. "adam=1, clip"; "" if there are none. */
void cmn_tree_leaves_out(const network *net, int on_gpu, char *text, size_t bytes);

/* Writes the weights of the layers before `cutoff`, in the format of Darknet's weights files. If
 * `average` is set, AlexeyAB's tree writes its averages of the weights. The caller checks
 * ferror(). */
void cmn_tree_write_weights(network *net, FILE *out, int cutoff, int average);

/* ---- layers ---- */

/* Returns the index of the layer that decides how a detector's boxes are compared and named: the
 * last layer, or, if other layers may follow it, the last one that finds boxes. */
int cmn_tree_detector(const network *net);

/* This says what Darknet does with a layer. */
struct cmn_tree_layer {
    const char *name;    /* Darknet's name for the type; static */
    int finds_boxes;     /* of classes */
    int updates;         /* Darknet updates its weights */
    int frozen;          /* its rolling statistics stay unchanged while it trains */
    int leaves_biases;   /* weights files do not contain its biases, and they are not trained */
    size_t weights;      /* of layers without outputs of their own to normalise, e.g. a shortcut */
    const float *rate;   /* its factor of the learning rate */
    double keeps;        /* the factor of a rolling statistic's old value in each micro-batch */
    float **averages[3]; /* exponential averages of its weights, biases and scales, if it has any */
};
struct cmn_tree_layer cmn_tree_layer(const layer *l);

/* How a layer looks at its input. */
struct cmn_tree_view {
    int convolves; /* a convolutional or connected layer; its products are those of `convolution` */
    struct cmn_convolution convolution; /* of a maxpool layer only the strides */
    /* It does what the name of its type says, and nothing more, and has a gradient. */
    int usual;
    float alpha, beta; /* a shortcut's factors of the layer before it and of the other one */
    int samples;       /* a shortcut adds every k-th pixel of a larger image */
    int leaves_biases; /* its biases have no gradient on the CPU */
};
struct cmn_tree_view cmn_tree_view(const layer *l);

/* Returns by what batch normalisation divides. */
float cmn_tree_deviation(float variance);

/* These are a layer's functions for the CPU. */
struct cmn_tree_functions {
    __typeof__(((layer *)0)->forward) forward;
    __typeof__(((layer *)0)->backward) backward;
};

/* A layer's function gets this in a pass. */
struct cmn_tree_pass {
    int index;            /* of the layer */
    float *input, *delta; /* the output of the layer before it and its gradient, or NULL */
    const layer *layers;  /* of the network */
};

/* Functions to put into layers: in a training's passes they call cmn_tree_instead, and Darknet's own
 * functions of the layer where that returns 0. */
extern const struct cmn_tree_functions cmn_tree_functions;

/* Whoever puts them there sets these first. */
extern struct cmn_tree_instead {
    int (*forward)(const layer *l, const struct cmn_tree_pass *p);
    int (*backward)(const layer *l, const struct cmn_tree_pass *p);
    const struct cmn_tree_functions *(*own)(int i); /* Darknet's, of layer i */
} cmn_tree_instead;

#ifdef GPU
/* Sets *input and *truth to the places where the network stores the addresses of its input and
 * labels on the GPU. */
void cmn_tree_gpu_batch(network *net, float ***input, float ***truth);

/* Updates the network's loss from the losses of its layers, in a tree that stores it. */
void cmn_tree_add_losses(network *net);
#endif

/* ---- images and predictions ---- */

/* Returns the middle of the image, as large as possible, resized to w x h. The caller frees both
 * images. */
image cmn_tree_crop_centre(image whole, int w, int h);

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

#endif
