#include "transports/sum_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/reduce.h"
#include "mpi/call.h"

/* Floats that are added together: sums of subtrees stay in the first-level cache until they are
 * used. */
enum { BLOCK = 1024 };

/* A tree over any int's number of micro-batches has fewer levels. */
enum { LEVELS = 33 };

/* ---- whose micro-batches ---- */

int cmn_sum_tree_first(int micro_batches, int rank, int ranks)
{
    int busy = ranks < micro_batches ? ranks : micro_batches;

    return rank < busy ? (int)((long)micro_batches * rank / busy) : micro_batches;
}

/* Finds the subtrees of a rank that has accumulated the micro-batches [first, end), in order: each
 * is as large as its begin and the end allow. Writes them to *list, unless it is NULL, and returns
 * their number. */
static int subtrees_of(struct cmn_subtree *list, int first, int end)
{
    int subtrees = 0;

    for (int n; first < end; first += n, subtrees++) {
        for (n = 1; first % (2 * n) == 0 && first + 2 * n <= end; n *= 2) {
        }
        if (list) {
            list[subtrees] = (struct cmn_subtree){.first = first, .n = n};
        }
    }
    return subtrees;
}

int cmn_sum_tree_most(int first, int end)
{
    int most = 0;

    for (int at = first + 1; at < end; at++) {
        int subtrees = subtrees_of(NULL, first, at);
        most = subtrees > most ? subtrees : most;
    }
    return most;
}

/* Returns the length of the left child of a subtree of n micro-batches: the largest power of two
 * below n. */
static int left_of(int n)
{
    int power = 1;

    while (2 * power < n) {
        power *= 2;
    }
    return power;
}

static int have_one_holder(const int *holder, int first, int end)
{
    int same = first + 1;

    while (same < end && holder[same] == holder[first]) {
        same++;
    }
    return same == end;
}

/* Micro-batch i belongs to holder[i]. Writes to *list the largest subtrees of [first, end), in
 * order, that have one holder each, and returns their number. */
static int subtrees_of_holders(struct cmn_subtree *list, const int *holder, int first, int end)
{
    int middle = first + left_of(end - first), left;

    if (have_one_holder(holder, first, end)) {
        *list = (struct cmn_subtree){.first = first, .n = end - first, .holder = holder[first]};
        return 1;
    }
    left = subtrees_of_holders(list, holder, first, middle);
    return left + subtrees_of_holders(list + left, holder, middle, end);
}

struct cmn_sum_tree *cmn_sum_tree_open(const struct cmn_topology *t)
{
    struct cmn_sum_tree *tree = cmn_calloc(1, sizeof *tree);

    tree->topology = t;
    tree->node_of = cmn_calloc((size_t)t->size, sizeof *tree->node_of);
    tree->within = cmn_calloc((size_t)t->size, sizeof *tree->within);
    tree->deal = cmn_calloc((size_t)t->size + 1, sizeof *tree->deal);
    tree->scratch = cmn_alloc_floats((size_t)2 * LEVELS * BLOCK);
    MPI_CALL(MPI_Allgather(&t->inter_rank, 1, MPI_INT, tree->node_of, 1, MPI_INT, t->world));
    MPI_CALL(MPI_Allgather(&t->intra_rank, 1, MPI_INT, tree->within, 1, MPI_INT, t->world));
    return tree;
}

void cmn_sum_tree_close(struct cmn_sum_tree *tree)
{
    if (tree) {
        free(tree->node_of);
        free(tree->within);
        free(tree->deal);
        free(tree->own);
        free(tree->of_nodes);
        free(tree->begins);
        free(tree->scratch);
    }
    free(tree);
}

/* Appends to tree->own the addends of a rank of this node that has these micro-batches: the
 * subtrees before the last micro-batch, and the last micro-batch. */
static void list_own(struct cmn_sum_tree *tree, int rank, int first, int end)
{
    struct cmn_subtree *list = tree->own + tree->owns;
    int n;

    if (first == end) {
        return;
    }
    n = subtrees_of(list, first, end - 1);
    list[n++] = (struct cmn_subtree){.first = end - 1, .n = 1, .last = 1};
    for (int i = 0; i < n; i++) {
        list[i].holder = tree->within[rank];
        list[i].number = i;
    }
    tree->owns += n;
}

int cmn_sum_tree_deal(struct cmn_sum_tree *tree, const int *deal)
{
    const struct cmn_topology *t = tree->topology;
    size_t bytes = ((size_t)t->size + 1) * sizeof *deal, most;
    int *holder;

    if (tree->micro_batches && !memcmp(tree->deal, deal, bytes)) {
        return 0;
    }
    memcpy(tree->deal, deal, bytes);
    tree->micro_batches = deal[t->size];
    most = (size_t)tree->micro_batches;
    holder = cmn_calloc(most, sizeof *holder);
    tree->own = cmn_realloc(tree->own, most, sizeof *tree->own);
    tree->of_nodes = cmn_realloc(tree->of_nodes, most, sizeof *tree->of_nodes);
    tree->begins = cmn_realloc(tree->begins, most, sizeof *tree->begins);
    tree->owns = 0;
    for (int rank = 0; rank < t->size; rank++) {
        for (int i = deal[rank]; i < deal[rank + 1]; i++) {
            holder[i] = tree->node_of[rank];
        }
        if (tree->node_of[rank] == t->inter_rank) {
            list_own(tree, rank, deal[rank], deal[rank + 1]);
        }
    }
    tree->nodes_addends = subtrees_of_holders(tree->of_nodes, holder, 0, tree->micro_batches);
    free(holder);
    for (int i = 0, j = 0; i < tree->nodes_addends; i++) {
        const struct cmn_subtree *s = &tree->of_nodes[i];
        if (s->holder == t->inter_rank) {
            tree->begins[i] = j;
            for (; j < tree->owns && tree->own[j].first < s->first + s->n; j++) {
            }
        }
    }
    return 1;
}

/* ---- sums ---- */

/* A sum in progress over n floats from offset `at`, of consecutive addends from `next` on. */
struct sum {
    const struct cmn_subtree *next;
    size_t at, n;
    float *scratch;
};

/* Sums the micro-batches [first, end), a subtree at this level, and advances s->next past their
 * addends. Returns where the sum is: in `into`, or where an addend lies that is the whole
 * subtree. */
static float *add_up(struct sum *s, int first, int end, int level, float *into)
{
    int middle = first + left_of(end - first);
    float *left = s->scratch + (size_t)2 * (size_t)level * BLOCK, *right = left + BLOCK;
    float *both[2];

    if (s->next->first == first && s->next->first + s->next->n == end) {
        return s->next++->at + s->at;
    }
    both[0] = add_up(s, first, middle, level + 1, left);
    both[1] = add_up(s, middle, end, level + 1, right);
    cmn_reduce(into, both, 2, 0, s->n);
    return into;
}

/* Sums the micro-batches [first, end) to `into`, BLOCK floats at a time. */
static void add_blocks(const struct cmn_sum_tree *tree, const struct cmn_subtree *addend, int first,
                       int end, size_t at, size_t n, float *into)
{
    for (size_t done = 0; done < n; done += BLOCK) {
        struct sum s = {addend, at + done, n - done < BLOCK ? n - done : BLOCK, tree->scratch};
        float *sum = add_up(&s, first, end, 0, into + done);
        if (sum != into + done) {
            memcpy(into + done, sum, s.n * sizeof *into);
        }
    }
}

void cmn_sum_tree_add(const struct cmn_sum_tree *tree, size_t at, size_t n, float *into)
{
    add_blocks(tree, tree->own, 0, tree->micro_batches, at, n, into);
}

void cmn_sum_tree_add_within(const struct cmn_sum_tree *tree, int i, size_t at, size_t n)
{
    const struct cmn_subtree *s = &tree->of_nodes[i], *first = &tree->own[tree->begins[i]];

    if (first->n < s->n) {
        add_blocks(tree, first, s->first, s->first + s->n, at, n, first->at + at);
    }
}

void cmn_sum_tree_add_nodes(const struct cmn_sum_tree *tree, const struct cmn_subtree *addend,
                            size_t n, float *into)
{
    add_blocks(tree, addend, 0, tree->micro_batches, 0, n, into);
}
