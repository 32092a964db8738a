/* naive: one allreduce for each tensor, nothing packed. The reference that others are held against.
 *
 * Steps: for every tensor of n floats, MPI_Allreduce over all ranks.
 * Bytes: whatever Open MPI picks for each tensor; 2(N-1)/N * 4n sent per rank by its ring, and one
 * latency per tensor, which is what makes it slow for nets of many small tensors.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017). */
#include "communicator.h"
#include "transports/transport.h"

static int open_naive(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return cmn_mpi.open(self, t->world);
}

static int allreduce_naive(void *self, const struct cmn_exchange *x)
{
    for (int i = 0; i < x->tensors; i++) {
        if (cmn_mpi.allreduce(self, x->tensor[i].data, x->tensor[i].n, 0)) {
            return -1;
        }
    }
    return cmn_mpi.allreduce(self, x->tally.data, x->tally.n, 0);
}

static void close_naive(void *self)
{
    cmn_mpi.close(self);
}

const struct cmn_communicator cmn_communicator_naive = {
    .name = "naive",
    .cpu = "yes",
    .gpu = "not yet",
    .use = "reference for tests; simple and slow",
    .sums = 1,
    .open = open_naive,
    .allreduce = allreduce_naive,
    .close = close_naive,
};
