/* flat: all gradients lie in one block, which is exchanged in chunks.
 *
 * Steps: for every chunk of 4 MiB of the block, an MPI_Allreduce over all ranks, in place. With a
 * compressor, double buffering, cmn_exact or CMN_DEBUG_EXCHANGE: those of overlapped_allreduce.h,
 * with each rank as a node of its own. On GPUs always these, through the host (through_host.h).
 * Bytes: about 2(N-1)/N * 4n sent per rank for a block of n floats, by any bandwidth-optimal
 * algorithm; Open MPI chooses one for each chunk size. */
#include "communicators/communicator.h"

#include "base/memory.h"
#include "communicators/node_groups.h"
#include "mpi/call.h"

/* Returns whether MPI_Allreduce is not enough and transports/sums.h must send messages. */
static int needs_messages(const struct cmn_options *o)
{
    return o->compress != CMN_COMPRESS_OFF || o->double_buffering || o->exact ||
           o->exchange != CMN_EXCHANGE_AUTO;
}

static int open_by_messages(void **self, const struct cmn_communicator *c,
                            const struct cmn_topology *t, const struct cmn_options *o)
{
    struct cmn_node_groups *g = cmn_calloc(1, sizeof *g);

    (void)c;
    *self = g;
    g->topology = cmn_node_groups_alone(t);
    return cmn_overlap_open(&g->overlap, &g->topology, o, 1);
}

/* The part of this communicator that GPUs use, through the host. */
static const struct cmn_communicator by_messages = {
    .open = open_by_messages,
    .memory = cmn_node_groups_memory,
    .allreduce = cmn_node_groups_allreduce,
    .begin = cmn_node_groups_begin,
    .poll = cmn_node_groups_poll,
    .state = cmn_node_groups_state,
    .close = cmn_node_groups_close,
};

static int open_flat(void **self, const struct cmn_communicator *c, const struct cmn_topology *t,
                     const struct cmn_options *o)
{
    struct cmn_node_groups *g;

    (void)c;
    if (t->device >= 0) {
        return cmn_node_groups_through_host(self, &by_messages, t, o);
    }
    if (needs_messages(o)) {
        return open_by_messages(self, &by_messages, t, o);
    }
    *self = g = cmn_calloc(1, sizeof *g);
    g->topology = *t;
    return 0;
}

static void allreduce_flat(void *self, const struct cmn_exchange *x)
{
    const struct cmn_node_groups *g = self;

    if (g->host || g->overlap) {
        cmn_node_groups_allreduce(self, x);
    } else {
        cmn_mpi_allreduce(x->block.data, x->block.n + x->metrics.n, CMN_MPI_FLOATS,
                          g->topology.world);
    }
}

static const char *no_begin_flat(void *self)
{
    const struct cmn_node_groups *g = self;

    return g->host || g->overlap
               ? NULL
               : "MPI's allreduce makes no progress by itself: use shm, two_dimensional or "
                 "hierarchical";
}

const struct cmn_communicator cmn_communicator_flat = {
    .name = "flat",
    .cpu = "yes",
    .gpu = "yes",
    .use = "any machine and any number of nodes",
    .sums = 1,
    .can = {CMN_CAN_ALL, CMN_CAN_ALL},
    .open = open_flat,
    .memory = cmn_node_groups_memory,
    .allreduce = allreduce_flat,
    .begin = cmn_node_groups_begin,
    .poll = cmn_node_groups_poll,
    .no_begin = no_begin_flat,
    .state = cmn_node_groups_state,
    .close = cmn_node_groups_close,
};
