/* The image cache: decoded images in a memory file that the ranks of a node share, so that they
 * decode each image of a small data set once.
 *
 * The memory file (memfd) has an index, which all ranks map, and behind it the images, which they
 * read and write with pread() and pwrite(): a lack of memory or a failure of the disk is an error
 * and not a signal. A rank that has decoded an image takes room for it, writes it, and then
 * publishes it by one atomic word of the index. So no rank waits for another, and an image that a
 * killed rank has half written is never found. If two ranks decode the same image at the same time,
 * it may take room twice.
 *
 * The index has levels, each with twice as many lines as the one before. A line has eight words.
 * The hash of an image's name selects one line in each level; its word is in the first of these
 * lines that had room. Words are never removed, so a search ends at the first line with an empty
 * word. Unused pages of the index take no memory.
 *
 * The process has one cache, because Darknet's loaders pass no network. */
#ifndef CMN_IMAGE_CACHE_H
#define CMN_IMAGE_CACHE_H

#include <stddef.h>

#include "mpi/topology.h"

/* Collective over the node, blocking. Limits the cache of the node to `bytes` bytes of pixels and
 * names in memory (the value of the node's first rank counts), and then half of the free space of
 * `folder`, in a file without a name, unless `folder` is empty. 0 bytes and no folder turn the
 * cache off. If the ranks cannot share memory, or work in different folders, each has a cache of
 * its own with its part of the limit. t may be NULL: a process without MPI. Ends the job if the
 * folder cannot be used. */
void cmn_image_cache_open(const struct cmn_topology *t, size_t bytes, const char *folder);

/* Local, thread-safe. Returns a malloc'ed copy of the *w * *h * *c bytes that were kept for this
 * file and this number of requested channels, or NULL. The caller frees it. */
unsigned char *cmn_image_cache_find(const char *file, int channels, int *w, int *h, int *c);

/* Local, thread-safe. Keeps a copy of w * h * c bytes if the limit allows it. */
void cmn_image_cache_keep(const char *file, int channels, int w, int h, int c,
                          const unsigned char *pixels);

/* Local. Returns a quarter of the memory that the node has available now, in bytes. */
size_t cmn_image_cache_default_limit(void);

/* Local, thread-safe. Closes this process's cache. Other ranks keep what they share. */
void cmn_image_cache_close(void);

#endif
