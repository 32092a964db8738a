/* What programs of people's own do with all ranks, besides what topology.h has. */
#ifndef CMN_WORLD_H
#define CMN_WORLD_H

#include "config/options.h"
#include "mpi/topology.h"

/* Collective, blocking. Each of the n floats at `data` becomes its mean over all ranks; the same bits on
 * all of them. t and o must be the same in every call, and outlive cmn_allreduce_mean_close. 0, or -1 with a reason. */
int cmn_allreduce_mean(const struct cmn_topology *t, const struct cmn_options *o, float *data,
                       size_t n);

/* Collective. */
void cmn_allreduce_mean_close(void);

#endif
