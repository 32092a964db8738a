/* Distributed evaluation of a classifier: every image of a list is counted exactly once. */
#ifndef CMN_CLASSIFIER_H
#define CMN_CLASSIFIER_H

#include "mpi/topology.h"

struct cmn_net;

/* Owned by the caller. A path belongs to the first label that it contains, as in Darknet. */
struct cmn_labelled_images {
    char **paths;
    int images;
    char **labels;
    int classes;
    int top; /* k of top-k, 1 to classes */
    /* As `classifier validcrop` does it: the image is stretched to the input, and each label that
     * its path contains is right. Otherwise its middle is cut out, and the first such label is
     * right. */
    int stretch;
};

/* Collective, blocking. The labels of a file; ends the job where they are fewer than the classes. The
 * caller may free the array. */
char **cmn_valid_labels(const char *labels, int classes);

/* Collective, blocking. Fills *set from the files, read by rank 0. Brings `top` into its range.
 * Ends the job when a file cannot be read or holds fewer labels than classes. The set is never
 * freed. */
void cmn_valid_open(struct cmn_labelled_images *set, const char *list, const char *labels,
                    int classes, int top);

struct cmn_score {
    long images, top1, topk;
    double loss; /* mean per image; 0 when the network has no loss */
};

/* Local, the same on all ranks. Ends the job for a network with a layer that takes several images
 * as one sequence: evaluations look at single images. */
void cmn_require_single_images(const struct cmn_net *net);

/* Collective, blocking. The list is cut into chunks of `chunk` images (1 to the network's batch,
 * equal on all ranks), chunk i goes to rank i mod size: so an image is computed with the same
 * neighbours, and its prediction has the same bits, on any number of ranks. Leaves net as it was
 * but for the layers' outputs. Ends the job when an image cannot be read, or matches no label
 * (unless there is one class only). */
void cmn_evaluate(struct cmn_net *net, const struct cmn_labelled_images *set, int chunk,
                  const struct cmn_topology *t, struct cmn_score *score);

#endif
