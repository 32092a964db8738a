/* two_dimensional: every rank of a node exchanges a slice.
 *
 * Steps, for the whole block and the metrics cut into k slices, k the smallest number of ranks of
 * any node:
 *   1. reduce-scatter within the node: rank i of the node gets the sum of slice i
 *   2. the ranks number i of all nodes allreduce slice i, all i at the same time; on GPUs as
 *      cmn_compress says
 *   3. allgather within the node
 * Several nodes whose ranks share memory do this in the background: overlapped_allreduce.h with k
 * owners. With cmn_compress on GPUs: compressed_allreduce.h. Else, on GPUs, NCCL does the steps part by
 * part, in the background; the parts are those of pure_nccl.
 * Bytes, n floats, M nodes of k ranks: over a node's link 2(M-1)/M * 4n each way (4n for two
 * nodes), a k-th of it by each rank. Within the node by mpi, sent per rank: (k-1)/k * 4n in step
 * 1 and as much in step 3. By shm nothing is sent: see transports/shm.c.
 * On nodes with more than k ranks those above own no slice.
 * Source: the communicator of the same name of ChainerMN (Akiba, Fukuda, Suzuki, "ChainerMN:
 * Scalable Distributed Deep Learning Framework", 2017). */
#include "communicators/communicator.h"

#include "communicators/node_groups.h"

static int open_two_dimensional(void **self, const struct cmn_topology *t,
                                const struct cmn_options *o)
{
    return cmn_node_groups_open(self, sizeof(struct cmn_node_groups), cmn_transport_intra(t, o), t,
                                o, t->least_intra);
}

static void allreduce_two_dimensional(void *self, const struct cmn_exchange *x)
{
    struct cmn_node_groups *g = self;
    const struct cmn_topology *t = g->intra.topology;
    float *data = x->block.data;
    size_t n = x->block.n + x->metrics.n, at = 0, count = 0;

    if (cmn_node_groups_allreduce(g, x)) {
        return;
    }
    g->within->reduce_scatter(g->intra_self, data, n, t->least_intra);
    if (t->intra_rank < t->least_intra) {
        cmn_slice(n, t->least_intra, t->intra_rank, &at, &count);
    }
    cmn_node_groups_allreduce_inter(g, data + at, count);
    g->within->allgather(g->intra_self, data, n, t->least_intra);
}

const struct cmn_communicator cmn_communicator_two_dimensional = {
    .name = "two_dimensional",
    .cpu = "yes",
    .gpu = "with NCCL, or CUDA-aware MPI (untried)",
    .use = "several nodes whose link one rank alone does not fill",
    .sums = 1,
    .can = {CMN_CAN_ALL, CMN_CAN_ALL},
    .in_order = CMN_IN_ORDER_BY_SLICES,
    .refuses = cmn_node_groups_refuse,
    .open = open_two_dimensional,
    .memory = cmn_node_groups_memory,
    .allreduce = allreduce_two_dimensional,
    .begin = cmn_node_groups_begin,
    .poll = cmn_node_groups_poll,
    .order = cmn_node_groups_order,
    .no_begin = cmn_node_groups_no_begin,
    .state = cmn_node_groups_state,
    .close = cmn_node_groups_close,
};
