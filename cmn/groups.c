#include "groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

/* A block of memory, behind this header of one cache line. */
struct cmn_kept {
    _Alignas(64) struct cmn_kept *next;
};

const char *cmn_groups_refuse(const struct cmn_topology *t, const struct cmn_options *o)
{
    static _Thread_local char why[512];
    const struct cmn_transport *within = cmn_transport_intra(t, o);

    if (within && within != &cmn_shm && t->device < 0) {
        if (cmn_codec_wanted(o) != cmn_codec_at(0)) {
            return "codecs need the ranks of a node in shared memory: leave cmn_intra away";
        }
        if (o->double_buffering) {
            return "double buffering needs the ranks of a node in shared memory: leave cmn_intra "
                   "away";
        }
    }
    if (within) {
        return t->device < 0 ? cmn_flow_refuses_on(t, o) : NULL;
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    return why;
}

int cmn_groups_open(void **self, const struct cmn_topology *t, const struct cmn_options *o,
                    int across)
{
    struct cmn_groups *g = calloc(1, sizeof *g);

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
    if (t->inter_size > 1 && g->within == &cmn_shm && cmn_flow_open(&g->flow, t, o, across)) {
        return -1;
    }
    if (t->inter_size > 1 && t->intra_rank < across) {
        g->between = cmn_transport_inter(t, o);
        return g->between ? g->between->open(&g->far, &g->inter) : -1;
    }
    return 0;
}

int cmn_groups_memory(void *self, size_t floats, float **memory)
{
    struct cmn_groups *g = self;

    if (g->flow) {
        return cmn_flow_memory(g->flow, floats, memory);
    }
    if (g->within->memory) {
        return g->within->memory(g->near, floats, memory);
    }
    *memory = NULL;
    if (g->intra.topology->device >= 0) {
        return cmn_fail("%s gives no memory on a GPU", g->within->name);
    }
    return cmn_groups_keep(&g->kept, floats, memory);
}

int cmn_groups_keep(struct cmn_kept **list, size_t floats, float **memory)
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

void cmn_groups_drop(struct cmn_kept *list)
{
    while (list) {
        struct cmn_kept *next = list->next;
        free(list);
        list = next;
    }
}

int cmn_groups_sum_between(struct cmn_groups *g, float *data, size_t n)
{
    return g->between ? g->between->allreduce(g->far, data, n) : 0;
}

int cmn_groups_begin(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_groups *g = self;

    return cmn_flow_begin(g->flow, x, upto);
}

int cmn_groups_poll(void *self)
{
    struct cmn_groups *g = self;

    return g->flow ? cmn_flow_poll(g->flow) : 0;
}

const char *cmn_groups_no_begin(void *self)
{
    const struct cmn_groups *g = self;

    if (g->flow) {
        return NULL;
    }
    if (g->intra.topology->device >= 0) {
        return cmn_flow_on_gpu;
    }
    return g->intra.topology->inter_size == 1
               ? cmn_flow_one_node
               : "it needs the ranks of a node in shared memory: leave cmn_intra away";
}

int cmn_groups_state(void *self, int i, struct cmn_state *state)
{
    struct cmn_groups *g = self;

    return g->flow ? cmn_flow_state(g->flow, i, state) : 0;
}

int cmn_groups_flows(const struct cmn_groups *g, const struct cmn_exchange *x)
{
    return g->flow && cmn_flow_holds(g->flow, x);
}

void cmn_groups_close(void *self)
{
    struct cmn_groups *g = self;

    cmn_groups_drop(g->kept);
    cmn_flow_close(g->flow);
    if (g->between) {
        g->between->close(g->far);
    }
    if (g->within) {
        g->within->close(g->near);
    }
    free(g);
}
