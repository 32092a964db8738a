/* What most communicators' files share, so that they hold little but their recipe: the ranks of a node, the ranks
 * that exchange between nodes, and a transport for each. */
#ifndef CMN_GROUPS_H
#define CMN_GROUPS_H

#include <stddef.h>

#include "communicators/communicator.h"
#include "communicators/overlapped_allreduce.h"
#include "config/options.h"
#include "mpi/topology.h"
#include "transports/transport.h"

struct cmn_kept;

struct cmn_node_groups {
    struct cmn_group intra, inter;
    const struct cmn_transport *within,
        *between;                /* between: NULL on ranks that stay within their node */
    void *near, *far;            /* self of within, of between */
    struct cmn_overlap *overlap; /* several nodes, with shared memory within them */
    struct cmn_kept *kept;       /* memory that within does not give */
};

/* For struct cmn_communicator.refuses. Valid until the thread's next call. */
const char *cmn_node_groups_refuse(const struct cmn_topology *t, const struct cmn_options *o);

/* For struct cmn_communicator.open. The first `across` ranks of every node exchange between nodes, where there are
 * several; 0 <= across <= t->least_intra. *self becomes a struct cmn_node_groups. */
int cmn_node_groups_open(void **self, const struct cmn_topology *t, const struct cmn_options *o,
                         int across);

/* For struct cmn_communicator.memory: what the transport within a node gives, else memory of its own. */
int cmn_node_groups_memory(void *self, size_t floats, float **memory);

/* For struct cmn_communicator.begin, poll, no_begin, state. */
int cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto);
int cmn_node_groups_poll(void *self);
const char *cmn_node_groups_no_begin(void *self);
int cmn_node_groups_state(void *self, int i, struct cmn_state *state);

/* Local. Whether x is to be exchanged by cmn_overlap_allreduce(g->overlap, x). */
int cmn_node_groups_overlaps(const struct cmn_node_groups *g, const struct cmn_exchange *x);

/* Local. Zeroed memory for so many floats, aligned to 64 bytes, which joins the list until it is dropped. 0, or -1
 * with a reason. */
int cmn_buffers_new(struct cmn_kept **list, size_t floats, float **memory);
void cmn_buffers_free(struct cmn_kept *list);

/* For struct cmn_communicator.close. */
void cmn_node_groups_close(void *self);

/* Collective over the nodes, on ranks that exchange between them; nothing on the others. Sum over the nodes, as
 * struct cmn_transport.allreduce. */
int cmn_node_groups_allreduce_inter(struct cmn_node_groups *g, float *data, size_t n);

#endif
