/* Sums along a binary tree over the numbers of a step's micro-batches (cmn_exact): whoever has
 * computed them, the sum has the same bits.
 *
 * The subtree of the micro-batches [a, b) is the sum of its two children; the left one ends at a
 * plus the largest power of two below b - a. Of 6 micro-batches:
 *
 *     ((0 + 1) + (2 + 3)) + (4 + 5)
 *
 * A rank has consecutive micro-batches, and accumulates them as far as whole subtrees go
 * (optimizers/accumulation.h). These subtrees are its addends. The ranks of a node add them up,
 * where they lie, to the largest subtrees of which the node has all micro-batches; these are the
 * addends of the node, and what nodes send each other (transports/sums.h). Each calculation reads
 * its addends and changes nothing but the place of the sum, so that ranks that share memory may
 * use the same addends at the same time. */
#ifndef CMN_SUM_TREE_H
#define CMN_SUM_TREE_H

#include <stddef.h>

#include "mpi/topology.h"

/* The sum of the micro-batches [first, first + n), which are a subtree. */
struct cmn_subtree {
    int first, n;
    int holder; /* its rank within the node, or its node */
    int number; /* which of that rank's addends it is */
    int last;   /* the holder has no addend behind it */
    float *at;  /* where it lies */
};

struct cmn_sum_tree {
    const struct cmn_topology *topology;
    int *node_of, *within;   /* of each rank of the world: its node, and its rank there */
    int *deal;               /* each rank's first micro-batch, and the end */
    int micro_batches;       /* 0: no deal is known */
    struct cmn_subtree *own; /* addends of this node's ranks, in order */
    int owns;
    struct cmn_subtree *of_nodes; /* addends of all nodes, in order */
    int nodes_addends;
    int *begins;    /* of of_nodes[i]: the first of `own` in it; of those of this node */
    float *scratch; /* for sums of subtrees */
};

/* Local. The first of so many micro-batches that rank `rank` of `ranks` has where they are dealt
 * out equally; that of the rank behind it is the end. Ranks without one come last. */
int cmn_sum_tree_first(int micro_batches, int rank, int ranks);

/* Local. The subtrees of a rank that has accumulated the micro-batches [first, end), in order:
 * each is as large as its begin and the end allow. Writes them to *list, unless that is NULL, and
 * returns how many. */
int cmn_sum_tree_subtrees(struct cmn_subtree *list, int first, int end);

/* Local. The most of them that a rank has before the last of its micro-batches [first, end), which
 * is an addend of its own. */
int cmn_sum_tree_most(int first, int end);

/* Collective over t->world, blocking. t must outlive the tree. */
struct cmn_sum_tree *cmn_sum_tree_open(const struct cmn_topology *t);

/* Local. Rank r has the micro-batches [deal[r], deal[r + 1]) from now on. Where its addends lie is
 * to be filled in (own[i].at) if it returns 1; 0: it is the deal that it was. */
int cmn_sum_tree_deal(struct cmn_sum_tree *tree, const int *deal);

/* Local. This node has all micro-batches: their sum comes to `into`, of the n floats behind `at`
 * of each addend. `into` may be one of these places. */
void cmn_sum_tree_add(const struct cmn_sum_tree *tree, size_t at, size_t n, float *into);

/* Local. The same of addend i of this node's, a subtree of several ranks' addends: `into` is where
 * the first of them lies. */
void cmn_sum_tree_add_within(const struct cmn_sum_tree *tree, int i, size_t at, size_t n);

/* Local. The sum of all nodes' addends, which lie where addend[i].at says of of_nodes[i]: of n
 * floats, to `into`, which may be one of these places. */
void cmn_sum_tree_add_nodes(const struct cmn_sum_tree *tree, const struct cmn_subtree *addend,
                            size_t n, float *into);

/* Local. NULL is allowed. */
void cmn_sum_tree_close(struct cmn_sum_tree *tree);

#endif
