/* Distributed evaluation of a detector: every image of a list is looked at exactly once. */
#ifndef CMN_DETECTOR_H
#define CMN_DETECTOR_H

#include "evaluators/average_precision.h"
#include "mpi/topology.h"

struct cmn_net;

/* Owned by the caller. The true boxes of an image are in its label file, found by Darknet's
 * rules. */
struct cmn_box_set {
    char **paths;
    int images;
    char **names; /* of the classes, ended by NULL; NULL: they have none */
};

/* Collective, blocking. Fills *set from the files, read by rank 0; `names` may be empty. Ends the
 * job when one cannot be read. The set is never freed. */
void cmn_boxes_open(struct cmn_box_set *set, const char *list, const char *names);

/* Collective, blocking. Ends the job where a file of names has fewer than `classes`. */
void cmn_boxes_names(const char *names, int classes);

#define CMN_WITHOUT_LABELS \
    "%ld of %ld images have no label file: they count as images without boxes"
#define CMN_NO_TRUE_BOX                                                                        \
    "no image has a true box, so there is no mAP: do the label files lie where Darknet looks " \
    "for them?"

/* Collective, blocking. Rank i of t reads the labels of every size-th image from number i on: ends the
 * job for what cmn_evaluate_boxes would end it for, but for images, and where no image has a true
 * box, before a training has begun. Says how many images have no label file. */
void cmn_boxes_check(const struct cmn_net *net, const struct cmn_box_set *set,
                     const struct cmn_topology *t);

/* Filled on rank 0 alone, zeroed elsewhere. */
struct cmn_box_score {
    long images;
    long unlabelled; /* images without a label file: they count as images without boxes */
    long nonsense;   /* images for which the network's outputs are no numbers */
    int classes;
    struct cmn_precision *each; /* of each class; the caller frees */
    struct cmn_precision all;
};

/* Collective, blocking; with t->size 1 also without MPI. Image i goes to rank i mod size, alone in
 * its batch, so that what is found in it has the same bits on any number of ranks (with equal
 * numbers of BLAS threads; docs/use/evaluation.md). Leaves net as it was but for the layers'
 * outputs. Ends the job when an image or a label file cannot be read, for a network that finds no
 * boxes (cmn_net_detects), for too few names, and for labels of classes that the network does not
 * know. */
void cmn_evaluate_boxes(struct cmn_net *net, const struct cmn_box_set *set,
                        const struct cmn_precision_plan *plan, const struct cmn_topology *t,
                        struct cmn_box_score *score);

#endif
