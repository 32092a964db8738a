/* What transport nccl offers beyond struct cmn_transport. */
#ifndef CMN_TRANSPORTS_NCCL_H
#define CMN_TRANSPORTS_NCCL_H

#include <stddef.h>

#include "options.h"

/* As cmn_nccl.allreduce, but every rank's floats travel as `type`. They are divided by the number of
 * ranks before they are rounded, so that the sum of numbers that fit fits too. */
int cmn_nccl_allreduce_as(void *self, float *data, size_t n, enum cmn_dtype type);

#endif
