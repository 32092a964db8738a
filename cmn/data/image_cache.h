/* The image cache: decoded images in one memory file of a node, so that its ranks decode each image
 * of a small data set once.
 *
 * The memory file (memfd) has an index, which all ranks map, and behind it the images, which they
 * read and write with pread() and pwrite(): lack of memory or a disk's fault is an error and no
 * signal. Whoever has decoded an image takes room for it, writes it, and then publishes it by one
 * atomic word of the index, so nobody waits for anybody, and what a rank that is killed has half
 * written is never found. Two who decode the same image at once may take its room twice.
 *
 * The index has levels, each twice as large as the one before. A name's hash chooses one line of
 * eight words in each; it stands in the first line that had room. Words are never taken back, so who
 * looks for it ends at a line with an empty word. What is not used of it takes no memory. */
#ifndef CMN_IMAGE_CACHE_H
#define CMN_IMAGE_CACHE_H

#include <stddef.h>

#include "mpi/topology.h"

/* Collective over the node, blocking. Allows the node's ranks `bytes` of pixels and names in memory
 * (those of the first rank count), and then half of what is free in `folder`, unless that is empty,
 * in a file without a name. 0 and no folder keep nothing. Where ranks cannot share memory, or work in
 * different folders, each has a cache of its own with its part of that. t may be NULL: a process
 * without MPI. Ends the job where the folder cannot be used. */
void cmn_image_cache_open(const struct cmn_topology *t, size_t bytes, const char *folder);

/* Local, thread-safe. A malloc'ed copy of the w*h*c bytes kept for this file and this number of
 * channels asked for, or NULL. The caller frees it. */
unsigned char *cmn_image_cache_find(const char *file, int channels, int *w, int *h, int *c);

/* Local, thread-safe. Keeps a copy of w*h*c bytes while the limit allows. */
void cmn_image_cache_keep(const char *file, int channels, int w, int h, int c,
                          const unsigned char *pixels);

/* Local. A quarter of the memory that the node has available now; bytes. */
size_t cmn_image_cache_default_limit(void);

/* Local, thread-safe. Drops everything; other ranks keep what they share. */
void cmn_image_cache_close(void);

#endif
