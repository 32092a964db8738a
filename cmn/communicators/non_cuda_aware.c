/* non_cuda_aware: hierarchical on GPUs without NCCL, for an MPI that cannot read the GPU's memory.
 *
 * Steps: those of hierarchical on the CPU, through the host (through_host.h).
 * Bytes: those of hierarchical, and 4n each way between a GPU and its host.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017), there with NCCL within a node. */
#include "communicators/communicator.h"

#include "communicators/node_groups.h"
#include "mpi/device.h"

extern const struct cmn_communicator cmn_communicator_hierarchical;

static const char *refuses_non_cuda_aware(const struct cmn_topology *t, const struct cmn_options *o)
{
    if (!cmn_device_built()) {
        return "built without CUDA: make GPU=1";
    }
    return t->device < 0 ? "the gradients are in the CPU's memory: use shm, hierarchical or flat"
                         : cmn_overlap_refuses_nodes(t, o);
}

static int open_non_cuda_aware(void **self, const struct cmn_topology *t,
                               const struct cmn_options *o)
{
    return cmn_node_groups_open_through_host(self, &cmn_communicator_hierarchical, t, o);
}

const struct cmn_communicator cmn_communicator_non_cuda_aware = {
    .name = "non_cuda_aware",
    .cpu = "no",
    .gpu = "yes",
    .use = "GPUs without NCCL: as hierarchical, through the host's memory",
    .sums = 1,
    .can = {0, CMN_CAN_ALL},
    .refuses = refuses_non_cuda_aware,
    .open = open_non_cuda_aware,
    CMN_NODE_GROUPS_CALLS,
};
