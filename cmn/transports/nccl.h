/* What transport nccl offers beyond struct cmn_transport: sums in the background. */
#ifndef CMN_TRANSPORTS_NCCL_H
#define CMN_TRANSPORTS_NCCL_H

#include <stddef.h>

#include "options.h"

/* All return 0, or -1 with a reason. `self` is that of cmn_nccl; between a begin and the end that follows the
 * transport can do nothing else. */

/* Collective, in the same order everywhere, not blocking. What Darknet has asked of the GPU so far makes n floats at
 * `data` this rank's addend; they are the transport's until the end, and become the sum. They travel as `type`:
 * with 16 bits they are divided by the number of ranks before they are rounded, so that the sum of numbers
 * that fit fits too. */
int cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type);

/* Local, not blocking. Gives NCCL what it can take by now, and notices its errors. */
int cmn_nccl_poll(void *self);

/* Collective, blocking. All that was begun is summed. */
int cmn_nccl_end(void *self);

#endif
