/* What a loader thread is loading: its samples' images and their random numbers. */
#ifndef CMN_LOADER_H
#define CMN_LOADER_H

#include <stddef.h>

struct cmn_sampler;

/* All thread-safe: they speak of the calling thread alone. */

/* The thread is going to load the samples from number `first` on. */
void cmn_loader_begin(size_t first);

/* The paths of its next n samples. The caller frees the array, not the names. NULL with a reason
 * when memory is short. */
char **cmn_sample_paths(struct cmn_sampler *scatter, char **paths, int n);

/* It loads the next image: its random numbers become those of that sample. Nothing happens in a
 * thread that has no samples to load. */
void cmn_loader_next_image(void);

#endif
