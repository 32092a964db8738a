/* pure_nccl: NCCL allreduces over all ranks, regardless of nodes.
 *
 * Steps: the block is cut into at most 16 parts of at least 1 MiB, and each part is one NCCL
 * allreduce over all ranks, in place; the metrics are sent with the last part. With
 * cmn_compress=fp16 or bf16 a part is divided by the step's images, cast to 16 bits into a second
 * buffer, summed there, and multiplied by the images on its way back; the metrics always use 32
 * bits.
 * If exchanges overlap, a part is given to NCCL as soon as Darknet has queued the backward that
 * computes it, and waits for that on the GPU. The parts depend only on the block, so overlap
 * changes no bit of the sums.
 * Bytes: 2(N-1)/N * 4n sent per rank for a block of n floats by NCCL's ring, half of that with 16
 * bits. Over a node's link the same, once for each ring that NCCL builds over the nodes. NCCL
 * chooses the algorithm.
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
