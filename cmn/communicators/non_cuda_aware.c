/* non_cuda_aware: hierarchical under the name that users of ChainerMN know.
 *
 * Steps and bytes: those of hierarchical, which sums GPUs' gradients through the host's memory.
 * Source: ChainerMN's communicator of this name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017), for an MPI that cannot read the GPU's memory. */
#include "communicators/node_groups.h"

const struct cmn_communicator cmn_communicator_non_cuda_aware = {
    .name = "non_cuda_aware",
    .cpu = "yes",
    .gpu = "yes",
    .use = "as hierarchical, under ChainerMN's name for sums through the host's memory",
    .sums = 1,
    .can = {CMN_CAN_ALL, CMN_CAN_ALL},
    .recipe = CMN_FIRST_OF_NODE,
    CMN_NODE_GROUPS_CALLS,
};
