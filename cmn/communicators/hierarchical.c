/* hierarchical: one rank of each node exchanges for the node.
 *
 * Steps, for the whole block and the metrics:
 *   1. reduce within the node to its first rank (intra rank 0)
 *   2. allreduce over the nodes' first ranks, compressed as cmn_compress says
 *   3. broadcast within the node
 * On the CPU all steps run in the background (overlapped_allreduce.h with one owner); on one node
 * the ranks sum in shared memory (transports/shm.h). GPUs do the same through the host
 * (through_host.h).
 * Bytes, n floats, M nodes: over a node's link 2(M-1)/M * 4n each way (4n for two nodes), all of it
 * by its first rank. Within the node nothing is sent on the CPU.
 * Nodes may have different numbers of ranks.
 * Source: the communicator of the same name of ChainerMN (Akiba, Fukuda, Suzuki, "ChainerMN:
 * Scalable Distributed Deep Learning Framework", 2017), which uses NCCL in steps 1 and 3. */
#include "communicators/node_groups.h"

const struct cmn_communicator cmn_communicator_hierarchical = {
    .name = "hierarchical",
    .cpu = "yes",
    .gpu = "yes",
    .use = "several nodes whose link one rank can fill",
    .sums = 1,
    .can = {CMN_CAN_ALL, CMN_CAN_ALL},
    .recipe = CMN_FIRST_OF_NODE,
    CMN_NODE_GROUPS_CALLS,
};
