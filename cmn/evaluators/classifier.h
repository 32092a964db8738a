/* Distributed evaluation of a classifier: every image of a list is counted exactly once. */
#ifndef CMN_EVALUATOR_H
#define CMN_EVALUATOR_H

#include "mpi/topology.h"

struct network;

/* Owned by the caller. A path belongs to the first label that it contains, as in Darknet. */
struct cmn_labelled_images {
    char **paths;
    int images;
    char **labels;
    int classes;
    int top; /* k of top-k, 1 to classes */
    int stretch; /* an image is stretched to the input, and right with each label that its path contains, as
                    `classifier validcrop` has it; else its middle is cut out */
};

/* Collective, blocking. Fills *set from the files, read by rank 0. Ends the job when one cannot be
 * read. `top` is brought into its range. 0, or -1 with a reason. The set is never freed. */
int cmn_valid_open(struct cmn_labelled_images *set, const char *list, const char *labels,
                   int classes, int top);

struct cmn_score {
    long images, top1, topk;
    double loss; /* mean per image; 0 when the network has no cost */
};

/* Local, the same on all ranks. 0, or -1 with a reason: a recurrent layer takes several images as one sequence, which images that are
 * looked at one by one are not. */
int cmn_evaluator_refuses(const struct network *net);

/* Collective, blocking. The list is cut into chunks of `chunk` images (1 to net->batch, equal on
 * all ranks), chunk i goes to rank i mod size: so an image is computed in the same company, and
 * its prediction has the same bits, on any number of ranks. Ends the job when an image cannot be
 * read; fails when no label matches one (unless there is one class only). Leaves net as it was but for the layers' outputs. 0, or -1 with a reason. */
int cmn_evaluate(struct network *net, const struct cmn_labelled_images *set, int chunk,
                 const struct cmn_topology *t, struct cmn_score *score);

#endif
