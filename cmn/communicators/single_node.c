/* single_node: an allreduce over the ranks of one node, without any other step.
 *
 * Steps: an allreduce within the node of the whole block and the metrics together, in shared memory
 * (transports/shm.h). On GPUs NCCL does it in the background, in the parts of pure_nccl; without
 * NCCL it works as on the CPU (through_host.h).
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
