/* Distributed evaluation of a classifier: every image of a list is counted exactly once. */
#ifndef CMN_CLASSIFIER_H
#define CMN_CLASSIFIER_H

#include "mpi/topology.h"

struct cmn_net;

/* Owned by the caller. An image belongs to the first label that its path contains, as in
 * Darknet. */
struct cmn_labelled_images {
    char **paths;
    int images;
    char **labels;
    int classes;
    int top; /* k of top-k; 1 to classes */
};

/* Collective, blocking. Returns the labels of a file. Ends the job if they are fewer than the
 * classes, or one is empty. The caller may free the array. */
char **cmn_valid_labels(const char *labels, int classes);

/* Collective, blocking. Fills *set from the files, which rank 0 reads, and limits `top` to 1 …
 * classes. Ends the job if a file cannot be read or has fewer labels than classes. The set is never
 * freed. */
void cmn_valid_open(struct cmn_labelled_images *set, const char *list, const char *labels,
                    int classes, int top);

struct cmn_score {
    long images, top1, topk;
    double loss; /* mean per image; 0 if the network has no loss */
};

/* Collective, blocking. The list is cut into chunks of `chunk` images (1 to the network's batch,
 * equal on all ranks), and chunk i goes to rank i mod size. So an image is computed together with
 * the same images, and its prediction has the same bits, on any number of ranks. Only the outputs
 * of the layers of net are changed. Ends the job if an image cannot be read, or matches no label
 * (unless there is only one class). */
void cmn_evaluate(struct cmn_net *net, const struct cmn_labelled_images *set, int chunk,
                  const struct cmn_topology *t, struct cmn_score *score);

#endif
