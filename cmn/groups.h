/* What most communicators' files share, so that they hold little but their recipe: the ranks of a node, the ranks
 * that exchange between nodes, and a transport for each. */
#ifndef CMN_GROUPS_H
#define CMN_GROUPS_H

#include <stddef.h>

#include "communicator.h"
#include "flow.h"
#include "options.h"
#include "topology.h"
#include "transports/transport.h"

struct cmn_kept;

struct cmn_groups {
    struct cmn_group intra, inter;
    const struct cmn_transport *within,
        *between;          /* between: NULL on ranks that stay within their node */
    void *near, *far;      /* self of within, of between */
    struct cmn_flow *flow; /* several nodes, with shared memory within them */
    struct cmn_kept *kept; /* memory that within does not give */
};

/* For struct cmn_communicator.refuses. Valid until the thread's next call. */
const char *cmn_groups_refuse(const struct cmn_topology *t, const struct cmn_options *o);

/* For struct cmn_communicator.open. The first `across` ranks of every node exchange between nodes, where there are
 * several; 0 <= across <= t->least_intra. *self becomes a struct cmn_groups. */
int cmn_groups_open(void **self, const struct cmn_topology *t, const struct cmn_options *o,
                    int across);

/* For struct cmn_communicator.memory: what the transport within a node gives, else memory of its own. */
int cmn_groups_memory(void *self, size_t floats, float **memory);

/* For struct cmn_communicator.begin, poll, no_begin, state. */
int cmn_groups_begin(void *self, const struct cmn_exchange *x, size_t upto);
int cmn_groups_poll(void *self);
const char *cmn_groups_no_begin(void *self);
int cmn_groups_state(void *self, int i, struct cmn_state *state);

/* Local. Whether x is to be exchanged by cmn_flow_allreduce(g->flow, x). */
int cmn_groups_flows(const struct cmn_groups *g, const struct cmn_exchange *x);

/* Local. Zeroed memory for so many floats, aligned to 64 bytes, which joins the list until it is dropped. 0, or -1
 * with a reason. */
int cmn_groups_keep(struct cmn_kept **list, size_t floats, float **memory);
void cmn_groups_drop(struct cmn_kept *list);

/* For struct cmn_communicator.close. */
void cmn_groups_close(void *self);

/* Collective over the nodes, on ranks that exchange between them; nothing on the others. Sum over the nodes, as
 * struct cmn_transport.allreduce. */
int cmn_groups_sum_between(struct cmn_groups *g, float *data, size_t n);

#endif
