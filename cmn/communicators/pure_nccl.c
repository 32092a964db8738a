/* pure_nccl: everything by NCCL allreduces over all ranks, wherever they are.
 *
 * Steps: the block is cut into at most 16 parts of at least 1 MiB, and each is one NCCL allreduce
 * over all ranks, in place; the metrics go with the last. With cmn_compress=fp16 or bf16
 * a part is divided by the step's images, cast to 16 bits into a second buffer, summed there, and
 * multiplied by them on its way back; the metrics always travel as 32 bits.
 * When exchanges overlap, a part is given to NCCL as soon as all of it is final, and waits on the
 * GPU for the backward that makes it. The parts depend on the block alone, so overlap
 * changes no bit of the sums.
 * Bytes: 2(N-1)/N * 4n sent per rank for a block of n floats by NCCL's ring, half of that with 16
 * bits. Over a node's link the same, once for each ring that NCCL lays over the nodes. NCCL picks
 * the algorithm.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017). */
#include "communicators/node_groups.h"

const struct cmn_communicator cmn_communicator_pure_nccl = {
    .name = "pure_nccl",
    .cpu = "no",
    .gpu = "with NCCL",
    .use = "GPUs, on one node or several: the first choice there",
    .sums = 1,
    .can = {0, CMN_CASTS | CMN_DELAYS},
    .recipe = CMN_ONE_GROUP,
    CMN_NODE_GROUPS_CALLS,
};
