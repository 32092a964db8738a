#include "communicators/node_groups.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"
#include "transports/nccl.h"
#include "transports/shm.h"

/* Returns whether NCCL exchanges for these GPUs; otherwise the CPU does. NCCL knows of nodes itself,
 * so it is one group for all ranks. */
static int by_nccl(const struct cmn_communicator *c, const struct cmn_topology *t,
                   const struct cmn_options *o)
{
    return c->recipe == CMN_ONE_GROUP || (c->recipe == CMN_WITHIN_NODE && t->device >= 0 &&
                                          o->intra != CMN_INTRA_MPI && !cmn_nccl_refuses(t));
}

const char *cmn_node_groups_refuse(const struct cmn_communicator *c, const struct cmn_topology *t,
                                   const struct cmn_options *o)
{
    if (c->recipe == CMN_ONE_GROUP) {
        return cmn_nccl_refuses(t);
    }
    if (c->recipe == CMN_WITHIN_NODE && t->inter_size > 1) {
        return "the ranks are on several nodes: use two_dimensional or hierarchical";
    }
    if (by_nccl(c, t, o)) {
        return NULL;
    }
    return t->device < 0 && o->intra == CMN_INTRA_MPI
               ? "CMN_DEBUG_INTRA=mpi leaves no shared memory: use flat"
               : cmn_overlap_refuses_nodes(t, o);
}

struct cmn_topology cmn_node_groups_alone(const struct cmn_topology *t)
{
    struct cmn_topology alone = *t;

    alone.intra = MPI_COMM_SELF;
    alone.inter = t->world;
    alone.intra_rank = 0;
    alone.intra_size = alone.least_intra = 1;
    alone.inter_rank = t->rank;
    alone.inter_size = t->size;
    return alone;
}

int cmn_node_groups_make(void **self, size_t bytes, const struct cmn_topology *t,
                         const struct cmn_options *o, int across)
{
    struct cmn_node_groups *g = cmn_calloc(1, bytes);
    int several = t->inter_size > 1;

    *self = g;
    g->topology = *t;
    t = &g->topology;
    if (t->device >= 0) {
        g->group = (struct cmn_group){t->world, "world", t, o};
        return cmn_nccl_open(&g->nccl, &g->group);
    }
    g->group = (struct cmn_group){t->intra, several ? "intra" : "world", t, o};
    g->tree = o->exact && !several ? cmn_sum_tree_open(t) : NULL;
    return cmn_shm_open(&g->shm, &g->group) ||
                   (several && cmn_overlap_open(&g->overlap, t, o, across))
               ? -1
               : 0;
}

int cmn_node_groups_through_host(void **self, const struct cmn_communicator *inner,
                                 const struct cmn_topology *t, const struct cmn_options *o)
{
    struct cmn_node_groups *g = cmn_calloc(1, sizeof *g);

    *self = g;
    return cmn_through_host_open(&g->host, inner, t, o);
}

int cmn_node_groups_open(void **self, const struct cmn_communicator *c,
                         const struct cmn_topology *t, const struct cmn_options *o)
{
    int across = c->recipe == CMN_FIRST_OF_NODE    ? 1
                 : c->recipe == CMN_SLICES_OF_NODE ? t->least_intra
                                                   : 0;

    if (t->device >= 0 && !by_nccl(c, t, o)) {
        return cmn_node_groups_through_host(self, c, t, o);
    }
    return cmn_node_groups_make(self, sizeof(struct cmn_node_groups), t, o, across);
}

int cmn_node_groups_memory(void *self, size_t floats, float **memory)
{
    struct cmn_node_groups *g = self;

    *memory = NULL;
    return g->host      ? cmn_through_host_room(g->host, floats)
           : g->overlap ? cmn_overlap_memory(g->overlap, floats, memory)
           : g->shm     ? cmn_shm_memory(g->shm, floats, memory)
                        : 0;
}

/* ---- on GPUs, by NCCL ---- */

static void begin_part(struct cmn_node_groups *g, const struct cmn_exchange *x, float *data,
                       size_t n, enum cmn_dtype type)
{
    cmn_nccl_begin(g->nccl, data, n, type, x->images > 0 ? x->images : (float)g->topology.size);
}

/* Begins all parts that end at `upto` or below it, except the last one. The last part waits until
 * `upto` is beyond the block, because the metrics are sent with it, or directly after it if the
 * gradients have 16 bits: metrics always have 32. The bits of the sums depend on how the block is
 * cut into parts, so the parts depend only on the block (cmn_nccl_chunk). */
static void begin_parts(struct cmn_node_groups *g, const struct cmn_exchange *x, size_t upto)
{
    size_t each = cmn_nccl_chunk(x->block.n), rest;
    enum cmn_dtype type = cmn_wire_type(g->group.options);

    /* Room is made first: later the casts would be loaded onto the GPU while a sum runs. */
    if (!g->parts_begun) {
        cmn_nccl_room(g->nccl, each < x->block.n ? each : x->block.n, type);
    }
    for (; g->parts_begun + each <= upto && g->parts_begun + each < x->block.n;
         g->parts_begun += each) {
        begin_part(g, x, x->block.data + g->parts_begun, each, type);
    }
    if (upto <= x->block.n || g->all_begun) {
        return;
    }
    rest = x->block.n - g->parts_begun + (type == CMN_FP32 ? x->metrics.n : 0);
    begin_part(g, x, x->block.data + g->parts_begun, rest, type);
    if (type != CMN_FP32) {
        begin_part(g, x, x->metrics.data, x->metrics.n, CMN_FP32);
    }
    g->all_begun = 1;
}

static void allreduce_by_nccl(struct cmn_node_groups *g, const struct cmn_exchange *x)
{
    begin_parts(g, x, SIZE_MAX);
    g->parts_begun = 0;
    g->all_begun = 0;
    cmn_nccl_end(g->nccl, NULL, NULL);
}

/* ---- in shared memory ---- */

const struct cmn_sum_tree *cmn_node_groups_tree(struct cmn_node_groups *g,
                                                const struct cmn_exchange *x)
{
    if (!x->addends) {
        return NULL;
    }
    cmn_addends_place(g->tree, x, cmn_shm_counterparts, g->shm);
    return g->tree;
}

static void allreduce_in_memory(struct cmn_node_groups *g, const struct cmn_exchange *x)
{
    const struct cmn_sum_tree *tree = cmn_node_groups_tree(g, x);
    size_t n = x->block.n + x->metrics.n;

    if (tree) {
        cmn_shm_allreduce_tree(g->shm, tree, x->block.data, n);
    } else if (x->squares && g->group.topology->intra_size > 1) {
        cmn_shm_allreduce_squares(g->shm, x->block.data, n, x->block.n, x->squares);
    } else {
        cmn_shm_allreduce(g->shm, x->block.data, n);
    }
}

/* ---- on the CPU and on GPUs ---- */

void cmn_node_groups_allreduce(void *self, const struct cmn_exchange *x)
{
    struct cmn_node_groups *g = self;

    if (g->host) {
        cmn_through_host_allreduce(g->host, x);
    } else if (g->overlap) {
        cmn_overlap_allreduce(g->overlap, x);
    } else if (g->nccl) {
        allreduce_by_nccl(g, x);
    } else {
        allreduce_in_memory(g, x);
    }
}

void cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_node_groups *g = self;

    if (g->host) {
        cmn_through_host_begin(g->host, x, upto);
    } else if (g->nccl) {
        begin_parts(g, x, upto);
    } else {
        cmn_overlap_begin(g->overlap, x, upto);
    }
}

void cmn_node_groups_poll(void *self)
{
    struct cmn_node_groups *g = self;

    if (g->host) {
        cmn_through_host_poll(g->host);
    } else if (g->overlap) {
        cmn_overlap_poll(g->overlap);
    }
}

int cmn_node_groups_order(void *self)
{
    const struct cmn_node_groups *g = self;

    if (g->nccl) {
        cmn_nccl_order(g->nccl);
    }
    return g->nccl != NULL;
}

const char *cmn_node_groups_no_begin(void *self)
{
    const struct cmn_node_groups *g = self;

    return g->overlap || g->nccl || g->host
               ? NULL
               : "all ranks are on one node: there is no link whose time could be hidden";
}

int cmn_node_groups_state(void *self, int i, struct cmn_state *state)
{
    struct cmn_node_groups *g = self;

    return g->host      ? cmn_through_host_state(g->host, i, state)
           : g->overlap ? cmn_overlap_state(g->overlap, i, state)
                        : 0;
}

void cmn_node_groups_close(void *self)
{
    struct cmn_node_groups *g = self;

    cmn_through_host_close(g->host);
    cmn_overlap_close(g->overlap);
    cmn_sum_tree_close(g->tree);
    if (g->shm) {
        cmn_shm_close(g->shm);
    }
    if (g->nccl) {
        cmn_nccl_close(g->nccl);
    }
    free(g);
}
