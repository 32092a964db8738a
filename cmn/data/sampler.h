/* The distributed sampler: which image every rank sees in every micro-batch (cmn_scatter).
 *
 * A rank's samples are numbered from 0 for the whole training. Sample k depends only on the
 * plan, so any thread may ask for any sample at any time and gets the same answer.
 *
 *   global  The shuffled orders of all epochs form one endless stream. A micro-batch takes the
 *           next `step` places of it, each rank its own slice of them. Every image occurs exactly
 *           once in each epoch's order; a micro-batch may contain the end of one epoch and the
 *           start of the next. N ranks take the same images as one rank that takes N slices.
 *   shard   The list is shuffled once and cut into `size` shards, whose lengths differ by at most
 *           one image. A rank keeps its shard and shuffles it anew for each pass over it.
 *   none    Darknet's own way: any image, with replacement.
 *
 * The order of an epoch is a Fisher-Yates shuffle (Knuth, TAOCP 2, algorithm 3.4.2P). */
#ifndef CMN_SAMPLER_H
#define CMN_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "config/options.h"

struct cmn_sampler_plan {
    enum cmn_scatter_mode mode;
    uint64_t seed;
    int rank, size;
    size_t images; /* in the list */
    size_t step;   /* images of a micro-batch over all ranks */
    size_t offset; /* where this rank's slice of these images starts */
    size_t mine;   /* images in this rank's slice */
    size_t origin; /* images that all ranks together have seen before sample 0 (after a resume) */
};

/* Local. Returns the images that a rank trains with under cmn_scatter=shard: *count indices into
 * the list, which follow from the plan's seed, rank, size and images. The caller frees the
 * array. */
size_t *cmn_sampler_shard(const struct cmn_sampler_plan *plan, size_t *count);

struct cmn_sampler;

/* Local. Ends the job if the list is empty, or has too few images for cmn_scatter=shard. Free with
 * cmn_sampler_close(). */
struct cmn_sampler *cmn_sampler_open(const struct cmn_sampler_plan *plan);

struct cmn_sample {
    size_t image;  /* index into the list */
    uint64_t seed; /* identifies the sample: equal seeds draw equal augmentations */
    size_t pass;   /* number of the pass over the list, or over this rank's shard */
    size_t place;  /* place in that pass */
};

/* Local, thread-safe. Fills sample[0 … n-1] with this rank's samples first … first+n-1. Blocks
 * while another thread is in it. */
void cmn_sampler_next(struct cmn_sampler *s, size_t first, size_t n, struct cmn_sample *sample);

/* Local. NULL is allowed. */
void cmn_sampler_close(struct cmn_sampler *s);

#endif
