/* A weights file that the module writes, and not Darknet. */
#ifndef CMN_WEIGHTS_FILE_H
#define CMN_WEIGHTS_FILE_H

#include "trainer/model.h"

/* Local, blocking. Replaces `file` atomically by the network's weights. The file says that the
 * network has seen so many images, and holds its rolling statistics times the factor. 0, or -1 with
 * errno. */
int cmn_weights_file_write(struct cmn_model *m, const char *file, size_t seen,
                           float statistics_scale);

#endif
