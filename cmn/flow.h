/* The exchange of several nodes, in the background: the ranks of a node sum in shared memory, and some of them send the
 * sums to the other nodes through a codec.
 *
 * Steps, for each part of the block (bucket) as soon as all ranks of the node have it: each of the first `owners` ranks of the node
 * sums its pieces (pieces.h) of all ranks' blocks into that of intra rank 0, in the order of the ranks, and
 * hands them to the codec, which sums them over the nodes. Nothing waits until somebody asks for a sum.
 * It moves when it is asked to: between layers and products of matrices (cmn_poll), and while somebody waits. A thread
 * of its own would take a core's time from the computation; Open MPI makes no progress by itself.
 */
#ifndef CMN_FLOW_H
#define CMN_FLOW_H

#include <mpi.h>
#include <stddef.h>

#include "codecs/codec.h"
#include "communicator.h"

struct cmn_flow;

/* Local, the same on all ranks. Why the options' codec cannot be used between nodes here, or NULL. Valid until the
 * thread's next call. */
const char *cmn_flow_refuses(const struct cmn_topology *t, const struct cmn_options *o);

/* The same for communicators that send nothing on one node: there they refuse any codec. */
const char *cmn_flow_refuses_on(const struct cmn_topology *t, const struct cmn_options *o);

/* Why nothing is exchanged in the background on one node, and on GPUs. */
extern const char cmn_flow_one_node[], cmn_flow_on_gpu[];

/* Collective, blocking. t and o must outlive the flow. 1 <= owners <= t->least_intra. 0, or -1 with a reason;
 * what a failed open leaves must not be closed. */
int cmn_flow_open(struct cmn_flow **f, const struct cmn_topology *t, const struct cmn_options *o,
                  int owners);

/* As struct cmn_communicator.memory. */
int cmn_flow_memory(struct cmn_flow *f, size_t floats, float **memory);

/* Local. Whether to exchange x this way: block and tally lie in memory that cmn_flow_memory() gave, or there is no
 * other way. */
int cmn_flow_holds(struct cmn_flow *f, const struct cmn_exchange *x);

/* As begin and poll of struct cmn_communicator; with `upto` beyond the block, the tally, too. */
int cmn_flow_begin(struct cmn_flow *f, const struct cmn_exchange *x, size_t upto);
int cmn_flow_poll(struct cmn_flow *f);

/* Collective over the node, blocking. Waits for the bucket begun next: the sums over all ranks of the floats [*from, *to)
 * of block and tally are then at *sums (the memory of intra rank 0). 1 when there was one, 0 when all have been waited
 * for, -1 with a reason. */
int cmn_flow_next(struct cmn_flow *f, const float **sums, size_t *from, size_t *to);

/* Collective over the node, blocking. Nobody needs the sums any more: the blocks may be written again. */
int cmn_flow_end(struct cmn_flow *f);

/* As struct cmn_communicator.allreduce: begins what is left, waits for all, and gives each rank the sums. */
int cmn_flow_allreduce(struct cmn_flow *f, const struct cmn_exchange *x);

/* As struct cmn_communicator.state. */
int cmn_flow_state(struct cmn_flow *f, int i, struct cmn_state *state);

/* Collective. NULL is allowed. */
void cmn_flow_close(struct cmn_flow *f);

#endif
