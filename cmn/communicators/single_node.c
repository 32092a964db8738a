/* single_node: the ranks of one node, and no other step.
 *
 * Steps: allreduce within the node, the whole block and the metrics at once, in shared memory
 * (transports/shm.h); on GPUs by NCCL in the parts of pure_nccl, in the background, or, without
 * NCCL, as on the CPU (through_host.h).
 * Bytes: nothing is sent on the CPU.
 * Source: the communicator of the same name of ChainerMN (Akiba, Fukuda, Suzuki, "ChainerMN:
 * Scalable Distributed Deep Learning Framework", 2017). */
#include "communicators/communicator.h"

#include "communicators/node_groups.h"

static const char *refuses_single_node(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->inter_size > 1 ? "the ranks are on several nodes: use two_dimensional or hierarchical"
                             : cmn_node_groups_refuse_within(t, o);
}

extern const struct cmn_communicator cmn_communicator_single_node;

static int open_single_node(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    return cmn_node_groups_open_either(self, &cmn_communicator_single_node, t, o, 0);
}

const struct cmn_communicator cmn_communicator_single_node = {
    .name = "single_node",
    .cpu = "yes",
    .gpu = "yes",
    .use = "one node, where the update is to stay Darknet's own",
    .sums = 1,
    .can = {CMN_ORDERS, CMN_CASTS | CMN_DELAYS},
    .refuses = refuses_single_node,
    .open = open_single_node,
    CMN_NODE_GROUPS_CALLS,
};
