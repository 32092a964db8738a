/* Weights files that replace older ones when they are whole. */
#ifndef CMN_WEIGHTS_FILE_H
#define CMN_WEIGHTS_FILE_H

#include <stdio.h>

#include "trainer/model.h"

/* Local, blocking. Replaces `file` atomically by what writes(what, out) writes, on the disk then. 0,
 * or errno: then the old file is as it was. */
typedef void cmn_weights_writer(void *what, FILE *out);
int cmn_weights_file_replace(const char *file, cmn_weights_writer *writes, void *what);

/* Local, blocking. The same with the network's weights. 0, or -1 with errno. */
int cmn_weights_file_write(struct cmn_model *m, const char *file);

/* Local. Images that the weights in a file have seen, as Darknet's parser reads it; 0 where there are
 * none. */
size_t cmn_weights_file_seen(const char *name);

/* Local, rank 0. Weights in `file` that have seen more images than `seen` are those of another
 * training: they become FILE.1, which a line says. */
void cmn_weights_file_keep_newer(const char *file, size_t seen);

#endif
