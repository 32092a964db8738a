/* What most communicators are made of: the ranks of a node, the ranks that exchange between
 * nodes, and a transport for each. With it their files hold little but their recipe. */
#ifndef CMN_NODE_GROUPS_H
#define CMN_NODE_GROUPS_H

#include <stddef.h>

#include "communicators/communicator.h"
#include "communicators/compressed_allreduce.h"
#include "communicators/overlapped_allreduce.h"
#include "communicators/parts.h"
#include "transports/transport.h"

struct cmn_node_groups {
    struct cmn_group intra, inter;
    const struct cmn_transport *within; /* connects the ranks of a node */
    void *intra_self;                   /* of `within` */
    /* Several nodes whose ranks share memory exchange through this alone; else NULL. */
    struct cmn_overlap *overlap;
    /* Several nodes with GPUs and a compressor exchange through this alone; else NULL. */
    struct cmn_compressed *compressed;
    /* Else these connect the nodes; NULL on one node, and on ranks that stay within their node. */
    const struct cmn_transport *between;
    void *inter_self;
    /* On GPUs NCCL does all of it, in the background, too. */
    int by_nccl;
    int across; /* as cmn_node_groups_open() has it */
    struct cmn_parts parts;
};

/* For struct cmn_communicator.refuses; within: of one that sums within a node alone. Valid until the
 * thread's next call. */
const char *cmn_node_groups_refuse(const struct cmn_topology *t, const struct cmn_options *o);
const char *cmn_node_groups_refuse_within(const struct cmn_topology *t,
                                          const struct cmn_options *o);

/* Local. The same ranks, each a node of its own; t must outlive that. */
struct cmn_topology cmn_node_groups_alone(const struct cmn_topology *t);

/* Why gradients on a GPU are not exchanged in the background by MPI. */
extern const char cmn_mpi_on_gpu[];

/* For struct cmn_communicator.open. *self becomes a zeroed struct of `bytes` bytes, which begins
 * with a struct cmn_node_groups. `within` connects the ranks of a node; NULL, with a reason, is a
 * failure. The first `across` ranks of every node exchange between nodes, where there are
 * several; 0 <= across <= t->least_intra. */
int cmn_node_groups_open(void **self, size_t bytes, const struct cmn_transport *within,
                         const struct cmn_topology *t, const struct cmn_options *o, int across);

/* For the calls of struct cmn_communicator that have these names. `self` begins with a struct
 * cmn_node_groups. */
int cmn_node_groups_memory(void *self, size_t floats, float **memory);
void cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto);
void cmn_node_groups_poll(void *self);
int cmn_node_groups_order(void *self);
const char *cmn_node_groups_no_begin(void *self);
int cmn_node_groups_state(void *self, int i, struct cmn_state *state);
void cmn_node_groups_close(void *self);

/* As struct cmn_communicator.allreduce, where overlap, compressed or NCCL alone does all of it: then 1,
 * else 0. */
int cmn_node_groups_allreduce(struct cmn_node_groups *g, const struct cmn_exchange *x);

/* Collective over the nodes, on ranks that exchange between them; nothing on the others. The sum over
 * the nodes of n floats at `data`, as struct cmn_transport.allreduce. */
void cmn_node_groups_allreduce_inter(struct cmn_node_groups *g, float *data, size_t n);

#endif
