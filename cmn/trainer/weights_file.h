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

#endif
