#include "communicators/node_groups.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "transports/mpi.h"
#include "transports/nccl.h"

/* On GPUs. MPI has no type of 16-bit floats. */
static const char *refuses_16_bits(const struct cmn_topology *t, const struct cmn_options *o,
                                   const struct cmn_transport *within)
{
    const struct cmn_transport *sums = t->inter_size > 1 ? cmn_transport_inter(t, o) : within;

    return o->dtype != CMN_FP32 && sums != &cmn_nccl
               ? "MPI adds no floats of 16 bits on a GPU: use NCCL, or non_cuda_aware"
               : NULL;
}

const char *cmn_node_groups_refuse_within(const struct cmn_topology *t, const struct cmn_options *o)
{
    static _Thread_local char why[512];
    const struct cmn_transport *within = cmn_transport_intra(t, o);

    if (within && within != &cmn_shm && t->device < 0) {
        if (cmn_compressor_wanted(o) != cmn_compressor_at(0)) {
            return "compressors need the ranks of a node in shared memory: leave cmn_intra away";
        }
        if (o->double_buffering) {
            return "double buffering needs the ranks of a node in shared memory: leave cmn_intra "
                   "away";
        }
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
    if (t->inter_size == 1 && o->dtype != CMN_FP32) {
        return "all ranks are on one node, and what is sent between nodes alone has 16 bits: use "
               "pure_nccl or single_node";
    }
    if (t->inter_size == 1 && cmn_compressed_wanted(t, o)) {
        return "all ranks are on one node, and nothing is sent that a compressor could make "
               "smaller: leave it away, or use flat, which sends all the same";
    }
    if (cmn_compressed_wanted(t, o) && cmn_transport_intra(t, o) != &cmn_nccl) {
        return "compressors on GPUs need NCCL within a node: leave cmn_intra away, or use flat";
    }
    return NULL;
}

int cmn_node_groups_open(void **self, size_t bytes, const struct cmn_transport *within,
                         const struct cmn_topology *t, const struct cmn_options *o, int across)
{
    struct cmn_node_groups *g = cmn_calloc(1, bytes);

    *self = g;
    g->intra = (struct cmn_group){t->intra, "intra", t, o};
    g->inter = (struct cmn_group){t->inter, "inter", t, o};
    g->within = within;
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
    return g->within && g->within->memory ? g->within->memory(g->intra_self, floats, memory) : 0;
}

int cmn_node_groups_allreduce(struct cmn_node_groups *g, const struct cmn_exchange *x)
{
    if (g->compressed) {
        cmn_compressed_allreduce(g->compressed, x);
    } else if (g->overlap) {
        cmn_overlap_allreduce(g->overlap, x);
    }
    return g->compressed || g->overlap;
}

/* 16 bits go by NCCL alone (cmn_node_groups_refuse). */
static void allreduce(const struct cmn_transport *transport, void *self,
                      const struct cmn_group *group, const struct cmn_exchange *x, float *data,
                      size_t n)
{
    enum cmn_dtype type = (enum cmn_dtype)group->options->dtype;
    float images = x->images > 0 ? x->images : (float)group->topology->size;
    size_t gradients;

    if (type == CMN_FP32 || transport != &cmn_nccl) {
        transport->allreduce(self, data, n);
        return;
    }
    gradients = data < x->metrics.data ? (size_t)(x->metrics.data - data) : 0;
    gradients = gradients < n ? gradients : n;
    cmn_nccl_begin(self, data, gradients, type, images);
    cmn_nccl_begin(self, data + gradients, n - gradients, CMN_FP32, 0);
    cmn_nccl_end(self);
}

void cmn_node_groups_allreduce_inter(struct cmn_node_groups *g, const struct cmn_exchange *x,
                                     float *data, size_t n)
{
    if (g->between) {
        allreduce(g->between, g->inter_self, &g->inter, x, data, n);
    }
}

void cmn_node_groups_allreduce_intra(struct cmn_node_groups *g, const struct cmn_exchange *x,
                                     float *data, size_t n)
{
    allreduce(g->within, g->intra_self, &g->intra, x, data, n);
}

void cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_node_groups *g = self;

    if (g->compressed) {
        cmn_compressed_prepare(g->compressed, x); /* and nothing is begun */
    } else {
        cmn_overlap_begin(g->overlap, x, upto);
    }
}

void cmn_node_groups_poll(void *self)
{
    struct cmn_node_groups *g = self;

    if (g->overlap) {
        cmn_overlap_poll(g->overlap);
    }
}

const char *cmn_node_groups_no_begin(void *self)
{
    const struct cmn_node_groups *g = self;

    if (g->overlap) {
        return NULL;
    }
    if (g->intra.topology->device >= 0) {
        return cmn_overlap_on_gpu;
    }
    return g->intra.topology->inter_size == 1
               ? "all ranks are on one node: there is no link whose time could be hidden"
               : "it needs the ranks of a node in shared memory: leave cmn_intra away";
}

int cmn_node_groups_state(void *self, int i, struct cmn_state *state)
{
    struct cmn_node_groups *g = self;

    struct cmn_link *link[2];
    int links = 0;

    if (g->compressed) {
        return cmn_compressed_state(g->compressed, i, state);
    }
    if (g->overlap) {
        return cmn_overlap_state(g->overlap, i, state);
    }
    if (g->within == &cmn_mpi && cmn_mpi_link(g->intra_self)) {
        link[links++] = cmn_mpi_link(g->intra_self);
    }
    if (g->between == &cmn_mpi && cmn_mpi_link(g->inter_self)) {
        link[links++] = cmn_mpi_link(g->inter_self);
    }
    return i < links ? cmn_state_of_link(link[i], "network", state) : 0;
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
