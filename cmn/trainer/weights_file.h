/* Weights files that replace older ones only once they are complete. */
#ifndef CMN_WEIGHTS_FILE_H
#define CMN_WEIGHTS_FILE_H

#include <stdio.h>

#include "trainer/model.h"

/* Local, blocking. Atomically replaces `file` by what writes(what, out) writes, and syncs it to the
 * disk. Returns 0, or an errno; then the old file is unchanged. */
typedef void cmn_weights_writer(void *what, FILE *out);
int cmn_weights_file_replace(const char *file, cmn_weights_writer *writes, void *what);

/* Local, blocking. Does the same with the weights of the network. Returns 0, or -1 with errno. */
int cmn_weights_file_write(struct cmn_model *m, const char *file);

/* Local. Returns how many images the weights in a file have seen, read as Darknet reads it; 0 if
 * there are no such weights. */
size_t cmn_weights_file_seen(const char *name);

/* Local, rank 0. If the weights in `file` have seen more images than `seen`, they belong to another
 * training: renames them to FILE.1, or the next number that is free, and prints a line about it. */
void cmn_weights_file_keep_newer(const char *file, size_t seen);

#endif
