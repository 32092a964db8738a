/* Ranks recompute each other's micro-batches (cmn_verify with cmn_exact), and name the one whose
 * arithmetic is wrong: a bit that flips in a processor or its memory reaches the weights of all ranks.
 *
 * Every cmn_verify iterations each rank keeps input and labels of one of its micro-batches, which a
 * stream draws that is equal on all ranks, and a hash of its gradient and loss. Before the update
 * the next rank computes the same with weights of its own. With cmn_exact the bits must be equal;
 * where they are not, a third rank computes it, too, and who differs from the two others is wrong. */
#ifndef CMN_RECOMPUTE_H
#define CMN_RECOMPUTE_H

#include <stdint.h>

#include "trainer/feed.h"
#include "trainer/model.h"

struct cmn_recompute {
    const struct cmn_feed *feed;
    struct cmn_model *model;
    long iteration; /* this step */
    size_t seen;    /* images, before it */
    int due;        /* in this step */
    int runs;       /* now: what Darknet computes belongs to no step */
    int drawn;      /* of this rank's micro-batches of the step; -1: it has none */
    float *batch;   /* input, labels and recurrent state of that one, until the end of the step */
    uint64_t hash;  /* of its gradient and loss */
};

/* Local. A step begins, before which all ranks have seen so many images. */
void cmn_recompute_begin_step(struct cmn_recompute *r, long iteration, size_t seen);

/* Local. This rank's micro-batch i of the step begins, and has ended: its gradient alone lies in
 * the flat buffer. */
void cmn_recompute_before_micro_batch(struct cmn_recompute *r, int i);
void cmn_recompute_after_micro_batch(struct cmn_recompute *r, int i);

/* Collective, blocking, before the update; nothing happens unless it is due. The flat buffer is
 * zeros, before and after. Layers' outputs and rolling statistics change. 0, or -1 with a reason,
 * the same on every rank, that names who computes other bits. */
int cmn_recompute_compare(struct cmn_recompute *r);

void cmn_recompute_close(struct cmn_recompute *r);

#endif
