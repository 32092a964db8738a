/* non_cuda_aware: hierarchical, only on GPUs, for an MPI that cannot read the GPU's memory.
 *
 * Steps: those of hierarchical on the CPU, through the host (through_host.h).
 * Bytes: those of hierarchical, and 4n each way between a GPU and its host.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017), which uses NCCL within a node. */
#include "communicators/node_groups.h"

const struct cmn_communicator cmn_communicator_non_cuda_aware = {
    .name = "non_cuda_aware",
    .cpu = "no",
    .gpu = "yes",
    .use = "GPUs without NCCL: as hierarchical, through the host's memory",
    .sums = 1,
    .can = {0, CMN_CAN_ALL},
    .recipe = CMN_THROUGH_HOST,
    CMN_NODE_GROUPS_CALLS,
};
