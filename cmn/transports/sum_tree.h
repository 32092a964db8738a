/* Sums along a binary tree over the numbers of a step's micro-batches (cmn_exact). The tree fixes
 * the order of additions, so the sum has the same bits whichever ranks have computed the
 * micro-batches.
 *
 * A subtree over the micro-batches [a, b) is the sum of its two children. The left child ends at a
 * plus the largest power of two below b - a. For 6 micro-batches:
 *
 *     ((0 + 1) + (2 + 3)) + (4 + 5)
 *
 * A rank has consecutive micro-batches and accumulates them as far as they form whole subtrees
 * (optimizers/accumulation.h). These subtrees are the rank's addends. The ranks of a node add them
 * up in place, to the largest subtrees of which the node has all micro-batches. Those are the
 * node's addends, which the nodes send each other (transports/sums.h). Each calculation writes only
 * the place of its sum, so ranks that share memory may read the same addends at the same time. */
#ifndef CMN_SUM_TREE_H
#define CMN_SUM_TREE_H

#include <stddef.h>

#include "mpi/topology.h"

/* An addend: the sum of the micro-batches [first, first + n), which form a subtree. */
struct cmn_subtree {
    int first, n;
    int holder; /* the rank within the node, or the node, that has it */
    int number; /* its index among the holder's addends */
    int last;   /* 1: it is the holder's last addend */
    float *at;  /* its floats */
};

struct cmn_sum_tree {
    const struct cmn_topology *topology;
    int *node_of, *within;   /* for each rank of the world: its node, its rank within the node */
    int *deal;               /* each rank's first micro-batch; deal[size] is their number */
    int micro_batches;       /* in a step; 0: no deal is known yet */
    struct cmn_subtree *own; /* addends of this node's ranks, in the order of micro-batches */
    int owns;
    struct cmn_subtree *of_nodes; /* addends of all nodes, in the order of micro-batches */
    int nodes_addends;
    /* If this node holds of_nodes[i]: begins[i] is the index of the first of `own` in it. */
    int *begins;
    float *scratch; /* intermediate sums of subtrees */
};

/* Local. Returns the first micro-batch of rank `rank` of `ranks` if they are dealt out evenly; the
 * end is the first one of the next rank. Ranks without a micro-batch come last. */
int cmn_sum_tree_first(int micro_batches, int rank, int ranks);

/* Local. Returns the largest number of subtrees that a rank holds at any time before the last of
 * its micro-batches [first, end). The last micro-batch is an addend of its own. */
int cmn_sum_tree_most(int first, int end);

/* Collective over t->world, blocking. t must outlive the tree. */
struct cmn_sum_tree *cmn_sum_tree_open(const struct cmn_topology *t);

/* Local. Sets the deal: rank r has the micro-batches [deal[r], deal[r + 1]) from now on. Returns 0
 * if the deal is unchanged. Returns 1 if it is new; then the caller must set where this node's
 * addends lie (own[i].at). */
int cmn_sum_tree_deal(struct cmn_sum_tree *tree, const int *deal);

/* Local; this node must have all micro-batches. Writes to `into` the sum of all addends, for the n
 * floats from offset `at` of each. `into` may be one of these places. */
void cmn_sum_tree_add(const struct cmn_sum_tree *tree, size_t at, size_t n, float *into);

/* Local. Does the same for of_nodes[i], one of this node's addends, and writes the sum to the place
 * of the first rank's addend in it. It does nothing if that one is all of it. */
void cmn_sum_tree_add_within(const struct cmn_sum_tree *tree, int i, size_t at, size_t n);

/* Local. Writes to `into` the sum of n floats of all nodes' addends. addend[i].at says where the
 * floats of of_nodes[i] lie; `into` may be one of these places. */
void cmn_sum_tree_add_nodes(const struct cmn_sum_tree *tree, const struct cmn_subtree *addend,
                            size_t n, float *into);

/* Local. NULL is allowed. */
void cmn_sum_tree_close(struct cmn_sum_tree *tree);

#endif
