/* The exchange of several nodes, in the background: the ranks of a node sum in shared memory, and some of them send the
 * sums to the other nodes through a compressor.
 *
 * Steps, for each part of the block (bucket) as soon as all ranks of the node have it: each of the first `owners` ranks of the node
 * sums its shards (shards.h) of all ranks' blocks into that of intra rank 0, in the order of the ranks, and
 * hands them to the compressor, which sums them over the nodes. Nothing waits until somebody asks for a sum.
 * It moves when it is asked to: between layers and products of matrices (cmn_progress), and while somebody waits. A thread
 * of its own would take a core's time from the computation; Open MPI makes no progress by itself.
 */
#ifndef CMN_FLOW_H
#define CMN_FLOW_H

#include <mpi.h>
#include <stddef.h>

#include "compression/compressor.h"
#include "communicators/communicator.h"

struct cmn_overlap;

/* Local, the same on all ranks. Why the options' compressor cannot be used between nodes here, or NULL. Valid until the
 * thread's next call. */
const char *cmn_overlap_refuses(const struct cmn_topology *t, const struct cmn_options *o);

/* The same for communicators that send nothing on one node: there they refuse any compressor. */
const char *cmn_overlap_refuses_on(const struct cmn_topology *t, const struct cmn_options *o);

/* Why nothing is exchanged in the background on one node, and on GPUs. */
extern const char cmn_overlap_one_node[], cmn_overlap_on_gpu[];

/* Collective, blocking. t and o must outlive the overlap. 1 <= owners <= t->least_intra. 0, or -1 with a reason;
 * what a failed open leaves must not be closed. */
int cmn_overlap_open(struct cmn_overlap **f, const struct cmn_topology *t,
                     const struct cmn_options *o, int owners);

/* As struct cmn_communicator.memory. */
int cmn_overlap_memory(struct cmn_overlap *f, size_t floats, float **memory);

/* Local. Whether to exchange x this way: block and metrics lie in memory that cmn_overlap_memory() gave, or there is no
 * other way. */
int cmn_overlap_holds(struct cmn_overlap *f, const struct cmn_exchange *x);

/* As begin and poll of struct cmn_communicator; with `upto` beyond the block, the metrics, too. */
int cmn_overlap_begin(struct cmn_overlap *f, const struct cmn_exchange *x, size_t upto);
int cmn_overlap_poll(struct cmn_overlap *f);

/* Collective over the node, blocking. Waits for the bucket begun next: the sums over all ranks of the floats [*from, *to)
 * of block and metrics are then at *sums (the memory of intra rank 0). 1 when there was one, 0 when all have been waited
 * for, -1 with a reason. */
int cmn_overlap_next(struct cmn_overlap *f, const float **sums, size_t *from, size_t *to);

/* Collective over the node, blocking. Nobody needs the sums any more: the blocks may be written again. */
int cmn_overlap_end(struct cmn_overlap *f);

/* As struct cmn_communicator.allreduce: begins what is left, waits for all, and gives each rank the sums. */
int cmn_overlap_allreduce(struct cmn_overlap *f, const struct cmn_exchange *x);

/* As struct cmn_communicator.state. */
int cmn_overlap_state(struct cmn_overlap *f, int i, struct cmn_state *state);

/* Collective. NULL is allowed. */
void cmn_overlap_close(struct cmn_overlap *f);

#endif
