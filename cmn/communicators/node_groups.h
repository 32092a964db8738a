/* The groups that most communicators are made of: the ranks of a node, and the ranks that exchange
 * between nodes. The communicators' own files then contain little more than their recipe.
 *
 * On the CPU the ranks of a node sum in shared memory (transports/shm.h), which is all on one node;
 * several nodes exchange through overlapped_allreduce.h. GPUs have two ways: NCCL sums over all of
 * them, part by part (pure_nccl, and single_node where NCCL is there); or the CPU does the same as
 * for gradients of its own, through the host (through_host.h). */
#ifndef CMN_NODE_GROUPS_H
#define CMN_NODE_GROUPS_H

#include <stddef.h>

#include "communicators/communicator.h"
#include "communicators/overlapped_allreduce.h"
#include "communicators/through_host.h"
#include "mpi/group.h"

struct cmn_node_groups {
    struct cmn_topology topology;
    struct cmn_group group; /* whom shm or nccl connects */
    /* On the CPU: */
    void *shm;                   /* the transport within a node */
    struct cmn_overlap *overlap; /* NULL on one node */
    struct cmn_sum_tree *tree;   /* only with cmn_exact on one node */
    /* On GPUs: */
    struct cmn_through_host *host; /* exchanges everything; NULL: NCCL does */
    void *nccl;                    /* the transport of all ranks */
    size_t parts_begun;            /* floats of the block given to NCCL in this exchange */
    int all_begun;                 /* the last part and the metrics are also begun */
};

/* Local. Returns a topology with the same ranks in which each rank is a node of its own; t must
 * outlive it. */
struct cmn_topology cmn_node_groups_alone(const struct cmn_topology *t);

/* Collective, blocking. Opens the `self` of a communicator, with a copy of *t. *self becomes a
 * zeroed struct of `bytes` bytes, which begins with a struct cmn_node_groups. If there are several
 * nodes, the first `across` ranks of every node exchange between nodes; 0 <= across <=
 * t->least_intra. Returns 0, or -1 with a reason. */
int cmn_node_groups_make(void **self, size_t bytes, const struct cmn_topology *t,
                         const struct cmn_options *o, int across);

/* Does the same for a struct cmn_node_groups on GPUs in which `inner`, a communicator of the CPU,
 * exchanges everything through the host. */
int cmn_node_groups_through_host(void **self, const struct cmn_communicator *inner,
                                 const struct cmn_topology *t, const struct cmn_options *o);

/* The calls of a communicator that is made of node groups: they follow from its recipe. `self`
 * begins with a struct cmn_node_groups. */
#define CMN_NODE_GROUPS_CALLS                                                                     \
    .refuses = cmn_node_groups_refuse, .open = cmn_node_groups_open,                              \
    .memory = cmn_node_groups_memory, .allreduce = cmn_node_groups_allreduce,                     \
    .begin = cmn_node_groups_begin, .poll = cmn_node_groups_poll, .order = cmn_node_groups_order, \
    .no_begin = cmn_node_groups_no_begin, .state = cmn_node_groups_state,                         \
    .close = cmn_node_groups_close

const char *cmn_node_groups_refuse(const struct cmn_communicator *c, const struct cmn_topology *t,
                                   const struct cmn_options *o);
int cmn_node_groups_open(void **self, const struct cmn_communicator *c,
                         const struct cmn_topology *t, const struct cmn_options *o);
int cmn_node_groups_memory(void *self, size_t floats, float **memory);
void cmn_node_groups_allreduce(void *self, const struct cmn_exchange *x);
void cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto);
void cmn_node_groups_poll(void *self);
int cmn_node_groups_order(void *self);
const char *cmn_node_groups_no_begin(void *self);
int cmn_node_groups_state(void *self, int i, struct cmn_state *state);
void cmn_node_groups_close(void *self);

/* Local, on one node. Returns the tree along which x is added, with the places of its addends, or
 * NULL. */
const struct cmn_sum_tree *cmn_node_groups_tree(struct cmn_node_groups *g,
                                                const struct cmn_exchange *x);

#endif
