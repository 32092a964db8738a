/* naive: one allreduce for each tensor, nothing packed. The reference that others are compared
 * with.
 *
 * Steps: for every tensor of n floats, MPI_Allreduce over all ranks.
 * Bytes: whatever Open MPI picks for each tensor; 2(N-1)/N * 4n sent per rank by its ring. One
 * latency per tensor makes it slow for nets of many small tensors.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017). */
#include "communicators/communicator.h"

#include <stdlib.h>

#include "base/memory.h"
#include "mpi/call.h"
#include "mpi/device.h"

static const char *refuses_naive(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return cmn_device_refuses_mpi(t);
}

static int open_naive(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    const struct cmn_topology **kept = cmn_calloc(1, sizeof *kept);

    (void)o;
    *kept = t;
    *self = kept;
    return 0;
}

static void allreduce_naive(void *self, const struct cmn_exchange *x)
{
    const struct cmn_topology *t = *(const struct cmn_topology **)self;

    for (int i = 0; i < x->tensors; i++) {
        cmn_mpi_allreduce(x->tensor[i].data, x->tensor[i].n, CMN_MPI_CHUNK, t->world);
    }
    cmn_mpi_allreduce(x->metrics.data, x->metrics.n, CMN_MPI_CHUNK, t->world);
}

const struct cmn_communicator cmn_communicator_naive = {
    .name = "naive",
    .cpu = "yes",
    .gpu = "with CUDA-aware MPI (untried)",
    .use = "reference for tests; simple and slow",
    .sums = 1,
    .refuses = refuses_naive,
    .open = open_naive,
    .allreduce = allreduce_naive,
    .close = free,
};
