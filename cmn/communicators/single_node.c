/* single_node: the ranks of one node, and no other step.
 *
 * Steps: allreduce within the node, the whole block and the metrics at once, in shared memory
 * (transports/shm.h); on GPUs by NCCL in the parts of pure_nccl, in the background, or, without
 * NCCL, as on the CPU (through_host.h).
 * Bytes: nothing is sent on the CPU.
 * Source: the communicator of the same name of ChainerMN (Akiba, Fukuda, Suzuki, "ChainerMN:
 * Scalable Distributed Deep Learning Framework", 2017). */
#include "communicators/node_groups.h"

const struct cmn_communicator cmn_communicator_single_node = {
    .name = "single_node",
    .cpu = "yes",
    .gpu = "yes",
    .use = "one node, where the update is to stay Darknet's own",
    .sums = 1,
    .can = {CMN_ORDERS, CMN_CASTS | CMN_DELAYS},
    .recipe = CMN_WITHIN_NODE,
    CMN_NODE_GROUPS_CALLS,
};
