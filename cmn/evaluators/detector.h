/* Distributed evaluation of a detector: every image of a list is evaluated exactly once. */
#ifndef CMN_DETECTOR_H
#define CMN_DETECTOR_H

#include "evaluators/average_precision.h"
#include "mpi/topology.h"

struct cmn_net;

/* Owned by the caller. The true boxes of an image are in its label file, which is found by
 * Darknet's rules. */
struct cmn_box_set {
    char **paths;
    int images;
    char **names; /* names of the classes, ended by NULL; NULL: there are none */
};

/* Collective, blocking. Fills *set from the files, which rank 0 reads; `names` may be empty. Ends
 * the job if a file cannot be read. The set is never freed. */
void cmn_boxes_open(struct cmn_box_set *set, const char *list, const char *names);

/* Collective, blocking. Ends the job if a file of names has fewer than `classes` names. */
void cmn_boxes_names(const char *names, int classes);

#define CMN_WITHOUT_LABELS \
    "%ld of %ld images have no label file: they count as images without boxes"
#define CMN_NO_TRUE_BOX                                                                        \
    "no image has a true box, so there is no mAP: do the label files lie where Darknet looks " \
    "for them?"

/* Collective, blocking. Checks the labels before a training begins: rank i of t reads the label
 * files of every size-th image from number i on. Ends the job where cmn_evaluate_boxes() would,
 * except for unreadable images, and if no image has a true box. Reports how many images have no
 * label file. */
void cmn_boxes_check(const struct cmn_net *net, const struct cmn_box_set *set,
                     const struct cmn_topology *t);

/* Filled in on rank 0 only, zeroed elsewhere. */
struct cmn_box_score {
    long images;
    long unlabelled; /* images without a label file: they count as images without boxes */
    long nonsense;   /* images for which the network's outputs contain NaN or Inf */
    int classes;
    struct cmn_precision *each; /* one entry for each class; the caller frees it */
    struct cmn_precision all;
};

/* Collective, blocking; with t->size 1 also without MPI. Image i goes to rank i mod size, as the
 * only one in its batch, so its boxes have the same bits on any number of ranks (with equal numbers
 * of BLAS threads; docs/use/evaluation.md). Only the outputs of the layers of net are changed. Ends
 * the job if an image or a label file cannot be read, for a network that finds no boxes
 * (cmn_net_detects), for too few names, and for labels of classes that the network does not
 * have. */
void cmn_evaluate_boxes(struct cmn_net *net, const struct cmn_box_set *set,
                        const struct cmn_precision_plan *plan, const struct cmn_topology *t,
                        struct cmn_box_score *score);

#endif
