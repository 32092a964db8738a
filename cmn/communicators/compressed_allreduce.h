/* Allreduce over several nodes through a compressor, with the gradients on GPUs.
 *
 * Steps, for each part of the block (whole shards, shards.h), as long as the parts that NCCL sums
 * (cmn_nccl_chunk) or longer: NCCL reduces each shard within the node to its owner, one of the first
 * `owners` ranks; the compressor sums it over the nodes, on a stream of its own. At the end NCCL
 * broadcasts all of them within the node. Once begun, all but the last travels while Darknet computes.
 * On the CPU overlapped_allreduce.h does the same in shared memory. */
#ifndef CMN_COMPRESSED_ALLREDUCE_H
#define CMN_COMPRESSED_ALLREDUCE_H

#include "communicators/communicator.h"
#include "compression/compressor.h"

struct cmn_compressed;

/* Local, the same on all ranks. Whether t and o ask for it: a compressor that is lossy, and no cast. */
int cmn_compressed_wanted(const struct cmn_topology *t, const struct cmn_options *o);

/* Collective, blocking. t and o must outlive it. 1 <= owners <= t->least_intra. `within` is transport
 * nccl's over the ranks of the node, which must outlive it, too; NULL where each node has one. */
struct cmn_compressed *cmn_compressed_open(const struct cmn_topology *t,
                                           const struct cmn_options *o, int owners, void *within);

/* Collective. x will be exchanged: gets memory for it, which a checkpoint can fill. */
void cmn_compressed_prepare(struct cmn_compressed *c, const struct cmn_exchange *x);

/* As begin, poll, allreduce and state of struct cmn_communicator. */
void cmn_compressed_begin(struct cmn_compressed *c, const struct cmn_exchange *x, size_t upto);
void cmn_compressed_poll(struct cmn_compressed *c);
void cmn_compressed_allreduce(struct cmn_compressed *c, const struct cmn_exchange *x);
int cmn_compressed_state(struct cmn_compressed *c, int i, struct cmn_state *state);

/* Collective. NULL is allowed. */
void cmn_compressed_close(struct cmn_compressed *c);

#endif
