/* The binary tree over the micro-batches of a step along which cmn_exact adds up (ordered_sum.h), and
 * sums of subtrees of it. All calls are local. */
#ifndef CMN_ORDERED_TREE_H
#define CMN_ORDERED_TREE_H

#include <stddef.h>

/* The sum of the micro-batches [first, first + n), which are those of a node of the tree. */
struct cmn_subtree {
    int first, n;
    int holder; /* the rank, or the node of ranks, that has it */
    float *at;  /* where it lies */
};

/* The subtrees of a rank that has added up [first, end), in order, each as large as its begin and the
 * end allow: a power of two. Writes them to *list, unless that is NULL, and returns how many. */
int cmn_subtrees_of_rank(struct cmn_subtree *list, int rank, int first, int end);

/* Most of them that such a rank has at once, perhaps before its last micro-batch. */
int cmn_subtrees_most(int first, int end);

/* Micro-batch i is holder[i]'s. The largest subtrees of the node [first, end), in order, that have one
 * holder each: written to *list; returns how many, at most as many as micro-batches. */
int cmn_subtrees_of_holders(struct cmn_subtree *list, const int *holder, int first, int end);

/* A sum over subtrees that follow each other, from `next` on; afterwards that is the one behind them. Of
 * each the n floats behind `at` are added by add(), which may be given one of both as `into`. */
struct cmn_subtree_sum {
    const struct cmn_subtree *next;
    size_t at, n;
    void (*add)(float *into, float *const *both, size_t n);
};

/* The sum of the node [first, end) of the tree comes to `into` or, where that is NULL, to where its first
 * subtree lies. But a sum of one subtree stays where it lies. Returns where it is. */
float *cmn_subtrees_add_up(struct cmn_subtree_sum *s, int first, int end, float *into);

#endif
