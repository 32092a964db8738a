/* Which images a loader thread loads, and with which random numbers. */
#ifndef CMN_LOADER_H
#define CMN_LOADER_H

#include <stddef.h>

struct cmn_sampler;

/* All calls are local and thread-safe: they affect only the calling thread. */

/* The thread will load the samples from number `first` on. It receives no stop request from now
 * on. */
void cmn_loader_begin(size_t first);

/* Returns the paths of the thread's next n samples: pointers into `paths`. The caller frees the
 * array, but not the names. */
char **cmn_loader_next_paths(struct cmn_sampler *sampler, char **paths, int n);

/* To be called before the thread loads its next image: its random numbers become those of that
 * sample. Does nothing in a thread that has no samples. */
void cmn_loader_next_image(void);

/* The thread begins to load the sample with this number by itself. Its random numbers are those of
 * that sample from here on. */
void cmn_loader_begin_sample(struct cmn_sampler *sampler, size_t number);

/* After cmn_loader_begin_sample(): returns the index of the thread's next image, of `images`. The
 * first call returns the sampler's image; each further call returns a random one, to be mixed into
 * the sample. */
size_t cmn_loader_draw_image(size_t images);

#endif
