#include "communicators/node_groups.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"

const char *cmn_node_groups_refuse(const struct cmn_topology *t, const struct cmn_options *o)
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
        return t->device < 0 ? cmn_overlap_refuses_nodes(t, o) : NULL;
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    return why;
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

void cmn_node_groups_allreduce_inter(struct cmn_node_groups *g, float *data, size_t n)
{
    if (g->between) {
        g->between->allreduce(g->inter_self, data, n);
    }
}

void cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_node_groups *g = self;

    cmn_overlap_begin(g->overlap, x, upto);
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

    return g->overlap ? cmn_overlap_state(g->overlap, i, state) : 0;
}

void cmn_node_groups_close(void *self)
{
    struct cmn_node_groups *g = self;

    cmn_overlap_close(g->overlap);
    if (g->between) {
        g->between->close(g->inter_self);
    }
    if (g->within) {
        g->within->close(g->intra_self);
    }
    free(g);
}
