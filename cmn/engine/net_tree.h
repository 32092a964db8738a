/* The functions of net.h and inference.h of which each tree of Darknet needs its own. The file of the
 * tree that is built defines them (darknet_tree.h). */
#ifndef CMN_NET_TREE_H
#define CMN_NET_TREE_H

#include <stddef.h>
#include <string.h>

struct cmn_net;

/* Cfg, device and Darknet decide these traits. Texts are static. */
struct cmn_net_traits {
    int uses_adam; /* the update uses Adam */
    /* A key of the cfg that makes the update different from momentum's and Adam's, or NULL. */
    const char *own_update;
    /* The factor by which gradients on a GPU are multiplied until the update; 1 if they are not
     * scaled. */
    double loss_scale;
    /* The keys of the cfg by which Darknet rejects labels, depending on earlier micro-batches, or
     * NULL. */
    const char *follows;
    int averages;        /* Darknet itself keeps averages of the weights (ema_alpha) */
    int compares_images; /* an image's loss depends on the other images of its micro-batch */
    /* A sample may contain other images of the list besides the one with which it begins, as with
     * mosaic and mixup. */
    int draws_images;
    /* A detector's input has the image between grey bars; networks with [detection] stretch it. */
    int letterboxes;
    int loader_threads; /* threads of the trainer that load images */
    int predicts_only;  /* it was read only for predictions, besides the network that trains */
    int lacks_weights;  /* a weights file did not fill all weights, or contained more */
    /* Batch normalisation divides sums of squares by count - variance_less for a variance. */
    double variance_less;
};

/* Thread-safe. The cfg may have been read only in part. */
struct cmn_net_traits cmn_net_traits(const struct cmn_net *net);

/* Return the floats of one image's input and labels. */
size_t cmn_net_inputs(const struct cmn_net *net);
size_t cmn_net_truths(const struct cmn_net *net);

/* Sets the images of a micro-batch on this rank. The layers' memory has room for as many images as
 * the cfg gave this rank; n must not be larger. */
void cmn_net_set_batch(struct cmn_net *net, int n);

/* Sets the number of images that the network was trained with. */
void cmn_net_set_seen(struct cmn_net *net, size_t seen);

/* Returns the number of steps that the images seen amount to: Darknet's iteration number. */
size_t cmn_net_iteration(const struct cmn_net *net);

/* Draws a random number from the generator if policy=random, because trainers do so when they print
 * the rate after each step. Does nothing with other policies. */
void cmn_net_draw_random_rate(struct cmn_net *net);

/* Collective in a job: rank 0 reads the file for all ranks. Returns the names of classes, one per
 * line and ended by NULL, and sets *n to their number. They are never freed. */
char **cmn_read_names(const char *file, int *n);

/* Writes to `name` where Darknet looks for the labels of an image: "images" becomes "labels", the
 * extension becomes .txt. Returns NULL, or why the name leads to no label file. */
enum { CMN_LABEL_FILE = 4096 };
const char *cmn_label_file(const char *image, char name[CMN_LABEL_FILE]);

/* Returns whether the name is that of a label file, which ends with .txt. */
static inline int cmn_label_name_ends(const char *name)
{
    size_t n = strlen(name);

    return n >= 4 && !strcmp(name + n - 4, ".txt");
}

#endif
