/* hierarchical: one rank of each node exchanges for it.
 *
 * Steps, for the whole block and the metrics:
 *   1. reduce within the node to its first rank (intra rank 0)
 *   2. allreduce over the nodes' first ranks; on GPUs as cmn_compress says
 *   3. broadcast within the node
 * Several nodes whose ranks share memory do this in the background: overlapped_allreduce.h with
 * one owner. With powersgd on GPUs: compressed_allreduce.h. Else, on GPUs, NCCL does the steps part
 * by part, in the background; the parts are those of pure_nccl.
 * Bytes, n floats, k ranks on a node, M nodes: over a node's link 2(M-1)/M * 4n each way (4n for
 * two nodes), all of it by its first rank. Within the node by mpi, sent per rank: 4n in step 1;
 * in step 3 what MPI_Bcast takes, (k-1) * 4n in all. By shm nothing is sent: see
 * transports/shm.c.
 * Nodes may hold different numbers of ranks.
 * Source: the communicator of the same name of ChainerMN (Akiba, Fukuda, Suzuki, "ChainerMN:
 * Scalable Distributed Deep Learning Framework", 2017), there with NCCL in steps 1 and 3. */
#include "communicators/communicator.h"

#include "communicators/node_groups.h"

static int open_hierarchical(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    return cmn_node_groups_open(self, sizeof(struct cmn_node_groups), cmn_transport_intra(t, o), t,
                                o, 1);
}

static void allreduce_hierarchical(void *self, const struct cmn_exchange *x)
{
    struct cmn_node_groups *g = self;
    float *data = x->block.data;
    size_t n = x->block.n + x->metrics.n;

    if (cmn_node_groups_allreduce(g, x)) {
        return;
    }
    g->within->reduce(g->intra_self, data, n);
    cmn_node_groups_allreduce_inter(g, data, n);
    g->within->bcast(g->intra_self, data, n);
}

const struct cmn_communicator cmn_communicator_hierarchical = {
    .name = "hierarchical",
    .cpu = "yes",
    .gpu = "with NCCL, or CUDA-aware MPI (untried)",
    .use = "several nodes whose link one rank can fill",
    .sums = 1,
    .can = {CMN_CAN_ALL, CMN_CAN_ALL},
    .in_order = CMN_IN_ORDER_BY_FIRST,
    .refuses = cmn_node_groups_refuse,
    .open = open_hierarchical,
    .memory = cmn_node_groups_memory,
    .allreduce = allreduce_hierarchical,
    .begin = cmn_node_groups_begin,
    .poll = cmn_node_groups_poll,
    .order = cmn_node_groups_order,
    .no_begin = cmn_node_groups_no_begin,
    .state = cmn_node_groups_state,
    .close = cmn_node_groups_close,
};
