#include "communicators/node_groups.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "transports/nccl.h"

const char cmn_mpi_on_gpu[] =
    "MPI sums a GPU's memory in calls that block, and makes no progress by "
    "itself: use NCCL, or non_cuda_aware";

/* On GPUs. MPI has no type of 16-bit floats. */
static const char *refuses_16_bits(const struct cmn_topology *t, const struct cmn_options *o,
                                   const struct cmn_transport *within)
{
    const struct cmn_transport *sums = t->inter_size > 1 ? cmn_transport_inter(t, o) : within;

    return cmn_wire_type(o) != CMN_FP32 && sums != &cmn_nccl
               ? "MPI adds no floats of 16 bits on a GPU: use NCCL, or non_cuda_aware"
               : NULL;
}

const char *cmn_node_groups_refuse_within(const struct cmn_topology *t, const struct cmn_options *o)
{
    static _Thread_local char why[512];
    const struct cmn_transport *within = cmn_transport_intra(t, o);

    if (within && within != &cmn_shm && t->device < 0) {
        if (o->compress != CMN_COMPRESS_OFF) {
            return "compressors need the ranks of a node in shared memory: unset CMN_DEBUG_INTRA";
        }
        if (o->double_buffering) {
            return "double buffering needs the ranks of a node in shared memory: unset "
                   "CMN_DEBUG_INTRA";
        }
    }
    if (within && t->device >= 0 && o->double_buffering && within != &cmn_nccl) {
        return cmn_mpi_on_gpu;
    }
    if (within) {
        return t->device < 0 ? cmn_overlap_refuses_nodes(t, o) : refuses_16_bits(t, o, within);
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    return why;
}

const char *cmn_node_groups_refuse(const struct cmn_topology *t, const struct cmn_options *o)
{
    const char *why = cmn_node_groups_refuse_within(t, o);

    if (why || t->device < 0) {
        return why;
    }
    if (t->inter_size == 1 && cmn_wire_type(o) != CMN_FP32) {
        return "all ranks are on one node, and what is sent between nodes alone has 16 bits: use "
               "pure_nccl or single_node";
    }
    if (t->inter_size == 1 && cmn_compressed_wanted(t, o)) {
        return "all ranks are on one node, and nothing is sent that a compressor could make "
               "smaller: leave it away, or use flat, which sends all the same";
    }
    if (cmn_compressed_wanted(t, o) && cmn_transport_intra(t, o) != &cmn_nccl) {
        return "compressors on GPUs need NCCL within a node: use flat";
    }
    return NULL;
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

int cmn_node_groups_open(void **self, size_t bytes, const struct cmn_transport *within,
                         const struct cmn_topology *t, const struct cmn_options *o, int across)
{
    struct cmn_node_groups *g = cmn_calloc(1, bytes);

    *self = g;
    g->intra = (struct cmn_group){t->intra, "intra", t, o};
    g->inter = (struct cmn_group){t->inter, "inter", t, o};
    g->within = within;
    g->across = across;
    g->by_nccl = within == &cmn_nccl && !(t->inter_size > 1 && cmn_compressed_wanted(t, o)) &&
                 (t->inter_size == 1 || cmn_transport_inter(t, o) == &cmn_nccl);
    if (!within || within->open(&g->intra_self, &g->intra)) {
        return -1;
    }
    if (t->inter_size > 1 && cmn_compressed_wanted(t, o)) {
        g->compressed = cmn_compressed_open(t, o, across, t->intra_size > 1 ? g->intra_self : NULL);
        return 0;
    }
    if (t->inter_size > 1 && g->within == &cmn_shm) {
        return cmn_overlap_open(&g->overlap, t, o, across);
    }
    if (t->inter_size > 1 && t->intra_rank < across) {
        g->between = cmn_transport_inter(t, o);
        return g->between ? g->between->open(&g->inter_self, &g->inter) : -1;
    }
    return 0;
}

int cmn_node_groups_memory(void *self, size_t floats, float **memory)
{
    struct cmn_node_groups *g = self;

    *memory = NULL;
    if (g->overlap) {
        return cmn_overlap_memory(g->overlap, floats, memory);
    }
    if (g->within == &cmn_nccl) {
        return cmn_nccl_memory(g->intra_self, g->between == &cmn_nccl ? g->inter_self : NULL,
                               floats, memory);
    }
    return g->within && g->within->memory ? g->within->memory(g->intra_self, floats, memory) : 0;
}

/* ---- on GPUs, by NCCL ----
 *
 * All of it lies on one stream of each rank, part by part: what two ranks have in common comes in the
 * same order on both, so that none waits for another one crosswise. */

static enum cmn_dtype type_of(const struct cmn_node_groups *g)
{
    return cmn_wire_type(g->intra.options);
}

/* The recipes of single_node, hierarchical (one slice) and two_dimensional, for a part. */
static void begin_part(void *self, const struct cmn_exchange *x, float *data, size_t n,
                       enum cmn_dtype type)
{
    struct cmn_node_groups *g = self;
    const struct cmn_topology *t = g->intra.topology;
    float images = x->images > 0 ? x->images : (float)t->size;
    size_t at, count;

    if (!g->across) {
        cmn_nccl_begin(g->intra_self, data, n, type, images);
        return;
    }
    if (t->intra_size > 1) {
        cmn_nccl_begin_slices(g->intra_self, data, n, g->across, 1);
    }
    if (g->between) {
        cmn_slice(n, g->across, t->intra_rank, &at, &count);
        cmn_nccl_begin_over(g->intra_self, g->inter_self, data + at, count, type, images);
    }
    if (t->intra_size > 1) {
        cmn_nccl_begin_slices(g->intra_self, data, n, g->across, 0);
    }
}

/* Before the first part of a step: later a cast would come to the GPU while a sum runs. */
static void make_room(struct cmn_node_groups *g, const struct cmn_exchange *x)
{
    size_t each = cmn_nccl_chunk(x->block.n);

    if (!g->parts.begun && !g->parts.all && (g->between || !g->across)) {
        cmn_nccl_room(g->intra_self, each < x->block.n ? each : x->block.n, type_of(g));
    }
}

static void allreduce_by_nccl(struct cmn_node_groups *g, const struct cmn_exchange *x)
{
    make_room(g, x);
    cmn_parts_begin_rest(&g->parts, x, type_of(g), begin_part, g);
    g->parts = (struct cmn_parts){0};
    cmn_nccl_end(g->intra_self);
}

/* ---- on either ---- */

int cmn_node_groups_allreduce(struct cmn_node_groups *g, const struct cmn_exchange *x)
{
    if (g->compressed) {
        cmn_compressed_allreduce(g->compressed, x);
    } else if (g->overlap) {
        cmn_overlap_allreduce(g->overlap, x);
    } else if (g->by_nccl) {
        allreduce_by_nccl(g, x);
    }
    return g->compressed || g->overlap || g->by_nccl;
}

void cmn_node_groups_allreduce_inter(struct cmn_node_groups *g, float *data, size_t n)
{
    if (g->between) {
        g->between->allreduce(g->inter_self, data, n);
    }
}

void cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_node_groups *g = self;

    if (g->compressed) {
        cmn_compressed_begin(g->compressed, x, upto);
    } else if (g->by_nccl) {
        make_room(g, x);
        cmn_parts_begin(&g->parts, x, upto, type_of(g), begin_part, g);
        cmn_nccl_poll(g->intra_self);
    } else {
        cmn_overlap_begin(g->overlap, x, upto);
    }
}

void cmn_node_groups_poll(void *self)
{
    struct cmn_node_groups *g = self;

    if (g->compressed) {
        cmn_compressed_poll(g->compressed);
    } else if (g->overlap) {
        cmn_overlap_poll(g->overlap);
    } else if (g->by_nccl) {
        cmn_nccl_poll(g->intra_self);
    }
}

int cmn_node_groups_order(void *self)
{
    const struct cmn_node_groups *g = self;

    if (g->by_nccl) {
        cmn_nccl_order(g->intra_self);
    }
    return g->by_nccl;
}

const char *cmn_node_groups_no_begin(void *self)
{
    const struct cmn_node_groups *g = self;

    if (g->overlap || g->by_nccl || g->compressed) {
        return NULL;
    }
    if (g->intra.topology->device >= 0) {
        return cmn_mpi_on_gpu;
    }
    return g->intra.topology->inter_size == 1
               ? "all ranks are on one node: there is no link whose time could be hidden"
               : "it needs the ranks of a node in shared memory: unset CMN_DEBUG_INTRA";
}

int cmn_node_groups_state(void *self, int i, struct cmn_state *state)
{
    struct cmn_node_groups *g = self;

    if (g->compressed) {
        return cmn_compressed_state(g->compressed, i, state);
    }
    if (g->overlap) {
        return cmn_overlap_state(g->overlap, i, state);
    }
    return 0;
}

void cmn_node_groups_close(void *self)
{
    struct cmn_node_groups *g = self;

    cmn_overlap_close(g->overlap);
    cmn_compressed_close(g->compressed);
    if (g->between) {
        g->between->close(g->inter_self);
    }
    if (g->within) {
        g->within->close(g->intra_self);
    }
    free(g);
}
