/* naive: one allreduce for each tensor, without packing. It is the reference for the others.
 *
 * Steps: for every tensor of n floats, an MPI_Allreduce over all ranks; on GPUs through the host
 * (through_host.h).
 * Bytes: those of the algorithm that Open MPI chooses for each tensor; its ring sends 2(N-1)/N * 4n
 * per rank. One latency per tensor makes it slow for networks with many small tensors.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017). */
#include "communicators/communicator.h"

#include "base/memory.h"
#include "communicators/node_groups.h"
#include "mpi/call.h"

static int open_naive(void **self, const struct cmn_communicator *c, const struct cmn_topology *t,
                      const struct cmn_options *o)
{
    struct cmn_node_groups *g;

    if (t->device >= 0) {
        return cmn_node_groups_through_host(self, c, t, o);
    }
    *self = g = cmn_calloc(1, sizeof *g);
    g->topology = *t;
    return 0;
}

static void allreduce_naive(void *self, const struct cmn_exchange *x)
{
    const struct cmn_node_groups *g = self;

    if (g->host) {
        cmn_through_host_allreduce(g->host, x);
        return;
    }
    for (int i = 0; i < x->tensors; i++) {
        cmn_mpi_allreduce(x->tensor[i].data, x->tensor[i].n, CMN_MPI_CHUNK, g->topology.world);
    }
    cmn_mpi_allreduce(x->metrics.data, x->metrics.n, CMN_MPI_CHUNK, g->topology.world);
}

const struct cmn_communicator cmn_communicator_naive = {
    .name = "naive",
    .cpu = "yes",
    .gpu = "yes",
    .use = "reference for tests; simple and slow",
    .sums = 1,
    .open = open_naive,
    .allreduce = allreduce_naive,
    .close = cmn_node_groups_close,
};
