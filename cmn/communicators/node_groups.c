#include "communicators/node_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* A block of memory, behind this header of one cache line. */
struct cmn_kept {
    _Alignas(64) struct cmn_kept *next;
};

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
        return t->device < 0 ? cmn_overlap_refuses_on(t, o) : NULL;
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    return why;
}

int cmn_node_groups_open(void **self, const struct cmn_topology *t, const struct cmn_options *o,
                         int across)
{
    struct cmn_node_groups *g = calloc(1, sizeof *g);

    *self = g;
    if (!g) {
        return cmn_fail("out of memory");
    }
    g->intra = (struct cmn_group){t->intra, "intra", t, o, 0};
    g->inter = (struct cmn_group){t->inter, "inter", t, o, 0};
    g->within = cmn_transport_intra(t, o);
    if (!g->within || g->within->open(&g->near, &g->intra)) {
        return -1;
    }
    if (t->inter_size > 1 && g->within == &cmn_shm && cmn_overlap_open(&g->overlap, t, o, across)) {
        return -1;
    }
    if (t->inter_size > 1 && t->intra_rank < across) {
        g->between = cmn_transport_inter(t, o);
        return g->between ? g->between->open(&g->far, &g->inter) : -1;
    }
    return 0;
}

int cmn_node_groups_memory(void *self, size_t floats, float **memory)
{
    struct cmn_node_groups *g = self;

    if (g->overlap) {
        return cmn_overlap_memory(g->overlap, floats, memory);
    }
    if (g->within->memory) {
        return g->within->memory(g->near, floats, memory);
    }
    *memory = NULL;
    if (g->intra.topology->device >= 0) {
        return cmn_fail("%s gives no memory on a GPU", g->within->name);
    }
    return cmn_buffers_new(&g->kept, floats, memory);
}

int cmn_buffers_new(struct cmn_kept **list, size_t floats, float **memory)
{
    struct cmn_kept *kept;
    size_t lines = (floats * sizeof **memory + sizeof *kept - 1) / sizeof *kept;

    *memory = NULL;
    kept = aligned_alloc(sizeof *kept, (lines + 1) * sizeof *kept);
    if (!kept) {
        return cmn_fail("out of memory: %zu MiB for the gradients",
                        (floats * sizeof **memory) >> 20);
    }
    memset(kept, 0, (lines + 1) * sizeof *kept);
    kept->next = *list;
    *list = kept;
    *memory = (float *)(kept + 1);
    return 0;
}

void cmn_buffers_free(struct cmn_kept *list)
{
    while (list) {
        struct cmn_kept *next = list->next;
        free(list);
        list = next;
    }
}

int cmn_node_groups_allreduce_inter(struct cmn_node_groups *g, float *data, size_t n)
{
    return g->between ? g->between->allreduce(g->far, data, n) : 0;
}

int cmn_node_groups_begin(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_node_groups *g = self;

    return cmn_overlap_begin(g->overlap, x, upto);
}

int cmn_node_groups_poll(void *self)
{
    struct cmn_node_groups *g = self;

    return g->overlap ? cmn_overlap_poll(g->overlap) : 0;
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
               ? cmn_overlap_one_node
               : "it needs the ranks of a node in shared memory: leave cmn_intra away";
}

int cmn_node_groups_state(void *self, int i, struct cmn_state *state)
{
    struct cmn_node_groups *g = self;

    return g->overlap ? cmn_overlap_state(g->overlap, i, state) : 0;
}

int cmn_node_groups_overlaps(const struct cmn_node_groups *g, const struct cmn_exchange *x)
{
    return g->overlap && cmn_overlap_holds(g->overlap, x);
}

void cmn_node_groups_close(void *self)
{
    struct cmn_node_groups *g = self;

    cmn_buffers_free(g->kept);
    cmn_overlap_close(g->overlap);
    if (g->between) {
        g->between->close(g->far);
    }
    if (g->within) {
        g->within->close(g->near);
    }
    free(g);
}
