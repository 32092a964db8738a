/* Allreduce over several nodes in the background, during backward: the ranks of a node sum in
 * shared memory, and some of them, the owners, send the sums to the other nodes through a
 * compressor.
 *
 * Steps, for each bucket (part of the block) as soon as all ranks of the node have filled it: each
 * of the first `owners` ranks of the node sums its shards (shards.h) of all ranks' blocks into the
 * block of intra rank 0, in the order of the ranks, and gives them to the compressor, which sums
 * them over the nodes. With cmn_exact an owner adds its ranks' addends along the tree
 * (transports/sum_tree.h) as far as the node has all of a subtree, and the nodes exchange the
 * results.
 *
 * Nothing blocks until somebody asks for a sum. The exchange advances when it is polled: between
 * layers and matrix products (cmn_progress), and while a rank waits. A thread of its own would take
 * a core's time from the computation, and Open MPI makes no progress by itself. */
#ifndef CMN_OVERLAPPED_ALLREDUCE_H
#define CMN_OVERLAPPED_ALLREDUCE_H

#include <mpi.h>
#include <stddef.h>

#include "communicators/communicator.h"
#include "compression/compressor.h"

struct cmn_overlap;

/* Local. Fills in where the addends of x lie: those of all ranks of this node, and those of the
 * node. Does nothing if the deal is unchanged. places(self, mine, n) returns where each rank of the
 * node has the n floats that lie at `mine` on this rank. */
void cmn_addends_place(struct cmn_sum_tree *tree, const struct cmn_exchange *x,
                       float *const *(*places)(void *self, const float *mine, size_t n),
                       void *self);

/* Local, the same on all ranks. Returns why compressors and double buffering are refused on one
 * node, where these communicators send nothing, or NULL. The text is static. */
const char *cmn_overlap_refuses_nodes(const struct cmn_topology *t, const struct cmn_options *o);

/* Collective, blocking. t and o must outlive the overlap. 1 <= owners <= t->least_intra. Returns 0,
 * or -1 with a reason; after a failure *overlap must not be closed. */
int cmn_overlap_open(struct cmn_overlap **overlap, const struct cmn_topology *t,
                     const struct cmn_options *o, int owners);

/* Does the same as cmn_communicator.memory: the blocks and metrics to exchange must lie in it. */
int cmn_overlap_memory(struct cmn_overlap *v, size_t floats, float **memory);

/* Do the same as begin and poll of struct cmn_communicator. With `upto` beyond the block, the
 * metrics are begun, too. */
void cmn_overlap_begin(struct cmn_overlap *v, const struct cmn_exchange *x, size_t upto);
void cmn_overlap_poll(struct cmn_overlap *v);

/* Collective over the node, blocking. Waits for the next bucket, in the order of begin. The sums
 * over all ranks of the floats [*from, *to) of block and metrics are then at *sums, the block of
 * intra rank 0. Returns 1, or 0 if there is no other bucket. */
int cmn_overlap_next(struct cmn_overlap *v, float **sums, size_t *from, size_t *to);

/* Collective over the node, blocking, after the last bucket: waits until all ranks of the node have
 * called it. Messages for other nodes are sent while it waits. */
void cmn_overlap_wait(struct cmn_overlap *v);

/* Collective over the node, blocking. Ends the exchange: no rank needs the sums any more, and the
 * blocks may be written again. */
void cmn_overlap_end(struct cmn_overlap *v);

/* Does the same as cmn_communicator.allreduce: begins what is left, waits for all buckets, and
 * copies the sums to each rank. */
void cmn_overlap_allreduce(struct cmn_overlap *v, const struct cmn_exchange *x);

/* Does the same as cmn_communicator.state. */
int cmn_overlap_state(struct cmn_overlap *v, int i, struct cmn_state *state);

/* Collective. NULL is allowed. */
void cmn_overlap_close(struct cmn_overlap *v);

#endif
