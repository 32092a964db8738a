/* Sums along the tree of cmn_exact (ordered_tree.h) in two levels: within a node where they lie, and
 * between nodes by slices.
 *
 * The sums of a node's ranks lie in memory that they share. They are added as far as subtrees go of
 * which the node has all micro-batches, whichever of its ranks has which: each rank adds what it sends.
 * Node m of M collects the slice m of all nodes' subtrees, adds it up to the root, and sends it to the
 * others. Of that slice rank r of p ranks has the part r, whatever the numbers of ranks of the nodes are:
 * two ranks send each other what both have a part in, straight from and to the shared memory. With
 * `first_alone` p counts as 1: all ranks add first, and it sends.
 * Over a node's link, each way, n floats, k subtrees of the node: (M-1)/M * 4n * (k + 1) bytes. Chunks
 * of 2^20 floats are exchanged one after the other: while one travels the next one is added. On one node
 * nothing is sent.
 * A rank that is alone on its node shares no memory, and copies nothing.
 *
 * With cmn_overlap=on a chunk is begun as soon as all ranks of the node have filled it, while the last backward
 * of the step still computes the rest: each says in the shared memory how far it is. Chunks are an eighth of the
 * block then, or as large as CMN_DEBUG_BUCKET_MB says, at least 64 KiB. */
#ifndef CMN_ORDERED_LEVELS_H
#define CMN_ORDERED_LEVELS_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_ordered_levels;

/* Collective over t->world, blocking, on the CPU. t and o must outlive the levels. Rank r has the
 * micro-batches [first[r], first[r + 1]). 0, or -1 on all ranks with one reason: the shared memory cannot
 * be had. */
int cmn_ordered_levels_open(struct cmn_ordered_levels **levels, const struct cmn_topology *t,
                            const struct cmn_options *o, int first_alone, const int *first,
                            size_t floats);

/* Collective over t->world, blocking where a rank has more sums at once than before. Between two steps:
 * ranks have other micro-batches from now on. 0, or -1 as above: only close may follow. */
int cmn_ordered_levels_divide(struct cmn_ordered_levels *l, const int *first);

/* Local. Shared memory for sum i of this rank; NULL: any memory will do. It is the levels' until the next
 * cmn_ordered_levels_divide(). */
float *cmn_ordered_levels_memory(const struct cmn_ordered_levels *l, int i);

/* Collective over the node, blocking, before this rank writes the first sum of a step. */
void cmn_ordered_levels_wait(struct cmn_ordered_levels *l);

/* Local, the same on all ranks. Why cmn_overlap=on has no effect here, or NULL. */
const char *cmn_ordered_levels_no_overlap(const struct cmn_topology *t, int first_alone);

/* Local, not blocking, with cmn_overlap=on. The floats below `upto` of this rank's sums of the step are final;
 * at[] and `sum` are those of cmn_ordered_levels_complete(). `upto` grows from call to call. */
void cmn_ordered_levels_filled(struct cmn_ordered_levels *l, float *const *at, float *sum,
                               size_t upto);

/* Local, not blocking. Advances what was begun. */
void cmn_ordered_levels_poll(struct cmn_ordered_levels *l);

/* Collective over t->world, blocking. at[i] is where this rank's sum i lies, in the order of
 * cmn_subtrees_of_rank(). `sum` becomes that of all micro-batches; it may be one of at[i] where any memory
 * will do. */
void cmn_ordered_levels_complete(struct cmn_ordered_levels *l, float *const *at, float *sum);

/* Local. How it adds up, for the first line of a training. */
const char *cmn_ordered_levels_how(const struct cmn_ordered_levels *l);

/* Local. NULL is allowed. */
void cmn_ordered_levels_close(struct cmn_ordered_levels *l);

#endif
