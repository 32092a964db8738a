/* What a loader thread loads: the images of its samples, with their random numbers. */
#ifndef CMN_LOADER_H
#define CMN_LOADER_H

#include <stddef.h>

struct cmn_sampler;

/* All local and thread-safe: they concern the calling thread alone. */

/* The thread begins to load the samples from number `first` on. It gets no stop request. */
void cmn_loader_begin(size_t first);

/* The paths of its next n samples, out of `paths`. The caller frees the array, not the names. */
char **cmn_loader_next_paths(struct cmn_sampler *sampler, char **paths, int n);

/* The thread loads its next image: its random numbers become those of that sample. Nothing happens
 * in a thread that has no samples. */
void cmn_loader_next_image(void);

/* The thread loads the sample with this number by itself: its random numbers are those of that
 * sample from here on. */
void cmn_loader_begin_sample(struct cmn_sampler *sampler, size_t number);

/* The number of its next image, of `images`: the sampler's for the first one, and a random one for
 * each other that is mixed into the sample. */
size_t cmn_loader_draw_image(size_t images);

#endif
