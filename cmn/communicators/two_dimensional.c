/* two_dimensional: every rank of a node exchanges a slice.
 *
 * Steps, for the whole block and the metrics, cut into k slices, k the smallest number of ranks of
 * any node:
 *   1. reduce-scatter within the node: rank i of the node gets the sum of slice i
 *   2. the ranks number i of all nodes allreduce slice i, all i at the same time, compressed as
 *      cmn_compress says
 *   3. allgather within the node
 * On the CPU all steps run in the background (overlapped_allreduce.h with k owners); on one node
 * the ranks sum in shared memory (transports/shm.h). GPUs do the same through the host
 * (through_host.h).
 * Bytes, n floats, M nodes of k ranks: over a node's link 2(M-1)/M * 4n each way (4n for two
 * nodes), a k-th of it by each rank. Within the node nothing is sent on the CPU.
 * On nodes with more than k ranks, the ranks from number k on own no slice.
 * Source: the communicator of the same name of ChainerMN (Akiba, Fukuda, Suzuki, "ChainerMN:
 * Scalable Distributed Deep Learning Framework", 2017). */
#include "communicators/node_groups.h"

const struct cmn_communicator cmn_communicator_two_dimensional = {
    .name = "two_dimensional",
    .cpu = "yes",
    .gpu = "yes",
    .use = "several nodes whose link one rank cannot fill",
    .sums = 1,
    .can = {CMN_CAN_ALL, CMN_CAN_ALL},
    .recipe = CMN_SLICES_OF_NODE,
    CMN_NODE_GROUPS_CALLS,
};
