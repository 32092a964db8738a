/* The image cache: decoded images in memory, so that a small data set is read and decoded once. */
#ifndef CMN_IMAGE_CACHE_H
#define CMN_IMAGE_CACHE_H

#include <stddef.h>

/* Local. Allows `bytes` of pixels and names to be kept; 0 keeps nothing. */
void cmn_image_cache_limit(size_t bytes);

/* Local, thread-safe. A malloc'ed copy of the w*h*c bytes kept for this file and this number of
 * channels asked for, or NULL. The caller frees it. */
unsigned char *cmn_image_cache_find(const char *file, int channels, int *w, int *h, int *c);

/* Local, thread-safe. Keeps a copy of w*h*c bytes while the limit allows. */
void cmn_image_cache_keep(const char *file, int channels, int w, int h, int c,
                          const unsigned char *pixels);

/* Local. A quarter of the memory that the node has available now, divided by its ranks; bytes. */
size_t cmn_image_cache_default_limit(int ranks_on_node);

/* Local. Drops everything. */
void cmn_image_cache_close(void);

#endif
