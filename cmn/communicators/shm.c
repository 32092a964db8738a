/* shm: gradients lie in a window shared by the ranks of a node, and are summed where they lie.
 *
 * Steps on one node: all meet; each rank sums its slice of all ranks' gradients, and writes it to all of them
 * (allreduce), or updates the weights of that slice, which the ranks of a node have in common (step); all meet.
 * Steps on several nodes: as overlap.h says, with k owners, k the smallest number of ranks of any node; then each rank
 * copies the sums (allreduce), or updates its slice of the weights (step), as they come in.
 * Gradients outside the window go as two_dimensional, piped through slots in shared memory.
 * Bytes, n floats: none copied within a node. Over a node's link, each way, 2(M-1)/M * 4n for M nodes (4n for two), or what the
 * compressor makes of it.
 * The order of additions is that of the ranks, then that of the nodes.
 * Source: the slices are those of the reduce-scatter in Rabenseifner, "Optimization of Collective Reduction
 * Operations", 2004, without its messages. */
#include "communicators/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "communicators/overlapped_allreduce.h"
#include "base/log.h"
#include "base/reduce.h"
#include "mpi/regions.h"
#include "transports/transport.h"
#include "mpi/shared_window.h"

enum { TALLY_MOST = 64, SMALL = 16384 };

struct shm {
    struct cmn_group intra, inter;
    void *between;               /* transport of inter, on the ranks that use it, for the same */
    void *pipe;                  /* transport of intra, for gradients that lie elsewhere */
    struct cmn_overlap *overlap; /* several nodes */
    struct cmn_window *barrier;
    struct cmn_regions parts;
    struct cmn_stores stores;
};

static const char *refuses_shm(const struct cmn_topology *t, const struct cmn_options *o)
{
    if (t->device >= 0) {
        return "gradients on a GPU lie in its own memory: use pure_nccl or hierarchical";
    }
    return cmn_overlap_refuses_on(t, o);
}

static int open_shm(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct shm *s = calloc(1, sizeof *s);

    if (!s) {
        return cmn_fail("out of memory");
    }
    *self = s;
    s->intra = (struct cmn_group){t->intra, "intra", t, o, 0};
    s->inter = (struct cmn_group){t->inter, "inter", t, o, 0};
    if (cmn_regions_open(&s->parts, &s->intra)) {
        return -1;
    }
    if (t->inter_size > 1 && t->intra_rank < t->least_intra &&
        cmn_mpi.open(&s->between, &s->inter)) {
        return -1;
    }
    if (t->inter_size > 1 && cmn_overlap_open(&s->overlap, t, o, t->least_intra)) {
        return -1;
    }
    return cmn_shm.open(&s->pipe, &s->intra) || cmn_window_open(&s->barrier, &s->intra, 0, 0) ? -1
                                                                                              : 0;
}

/* Says what else there is. */
static int explained(int result)
{
    char why[512];

    if (!result) {
        return 0;
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    return cmn_fail("%s; `-cmn_communicator flat` does without", why);
}

static int memory_shm(void *self, size_t floats, float **memory)
{
    struct shm *s = self;

    return explained(s->overlap ? cmn_overlap_memory(s->overlap, floats, memory)
                                : cmn_regions_memory(&s->parts, floats, memory));
}

static int common_shm(void *self, size_t floats, float **memory, int *first)
{
    struct shm *s = self;

    *first = s->parts.rank == 0;
    return explained(cmn_regions_common(&s->parts, floats, memory));
}

/* Gradients in memory of the caller's own: as two_dimensional. */
static int allreduce_piped(struct shm *s, float *data, size_t n)
{
    const struct cmn_topology *t = s->intra.topology;
    size_t at, count;

    if (t->inter_size == 1) {
        return cmn_shm.allreduce(s->pipe, data, n);
    }
    if (cmn_shm.reduce_scatter(s->pipe, data, n, t->least_intra)) {
        return -1;
    }
    if (s->between) {
        cmn_slice(n, t->least_intra, t->intra_rank, &at, &count);
        if (cmn_mpi.allreduce(s->between, data + at, count)) {
            return -1;
        }
    }
    return cmn_shm.allgather(s->pipe, data, n, t->least_intra);
}

/* Few floats are best left in the caches. */
static double begin(struct shm *s, size_t n)
{
    if (n < SMALL || s->parts.ranks == 1) {
        s->stores.non_temporal = 0;
    } else {
        cmn_stores_non_temporal(&s->stores);
    }
    return cmn_clock();
}

static void end(struct shm *s, size_t n, double began)
{
    if (n >= SMALL && s->parts.ranks > 1) {
        cmn_stores_took(&s->stores, cmn_clock() - began, n);
    }
}

static int allreduce_shm(void *self, const struct cmn_exchange *x)
{
    struct shm *s = self;
    const struct cmn_topology *t = s->intra.topology;
    size_t n = x->block.n + x->metrics.n, at, count;
    double began;

    if (s->overlap && cmn_overlap_holds(s->overlap, x)) {
        return cmn_overlap_allreduce(s->overlap, x);
    }
    if (s->overlap || !cmn_regions_find(&s->parts, x->block.data, n)) {
        return allreduce_piped(s, x->block.data, n);
    }
    if (cmn_window_barrier(s->barrier)) {
        return -1;
    }
    cmn_slice(n, t->intra_size, t->intra_rank, &at, &count);
    began = begin(s, n);
    cmn_reduce_broadcast(cmn_regions_at(&s->parts, at), t->intra_size, t->intra_rank,
                         s->stores.non_temporal, count);
    end(s, n, began);
    return cmn_window_barrier(s->barrier);
}

/* Updates what lies in [from, to) of the block, tensor by tensor, with the sum of what `part` has of the block. */
static void step_slice(const struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd,
                       float *const *part, int parts, size_t from, size_t to)
{
    const struct cmn_topology *t = s->intra.topology;
    float **at = s->parts.cursor;

    for (int i = 0; i < x->tensors; i++) {
        size_t first = (size_t)(x->tensor[i].data - x->block.data);
        size_t end = first + x->tensor[i].n;
        struct cmn_sgd_slice how = {.rate = sgd->rate[i],
                                    .decay = sgd->decay[i],
                                    .momentum = sgd->momentum / (float)t->inter_size,
                                    .non_temporal = s->stores.non_temporal};
        first = first > from ? first : from;
        end = end < to ? end : to;
        for (int k = 0; k < parts; k++) {
            at[k] = part[k] + first;
        }
        if (first < end) {
            cmn_reduce_sgd(x->weights + first, at, parts, parts > 1 ? t->intra_rank : 0, &how,
                           end - first);
        }
    }
}

/* The momentum stays in the slice of the rank that updates it; all else is 0. So it counts once in the next sum. */
static int step_on_node(struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    const struct cmn_topology *t = s->intra.topology;
    size_t n = x->block.n + x->metrics.n, at, count;
    float metrics[TALLY_MOST];
    double began;

    if (!cmn_regions_find(&s->parts, x->block.data, n)) {
        return cmn_fail("shm: the gradients do not lie in the shared window");
    }
    if (cmn_window_barrier(s->barrier)) {
        return -1;
    }
    cmn_reduce(metrics, cmn_regions_at(&s->parts, x->block.n), t->intra_size, 0, x->metrics.n);
    cmn_slice(x->block.n, t->intra_size, t->intra_rank, &at, &count);
    began = begin(s, n);
    step_slice(s, x, sgd, s->parts.part, t->intra_size, at, at + count);
    end(s, n, began);
    if (cmn_window_barrier(s->barrier)) {
        return -1;
    }
    /* Not before: until they met, the others read what this rank's block had there. */
    memcpy(x->metrics.data, metrics, x->metrics.n * sizeof *metrics);
    return 0;
}

/* Bucket by bucket, as the sums of the nodes come in. The momentum stays in the block of intra rank 0, each node
 * keeping its share of it. */
static int step_over_nodes(struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    const struct cmn_topology *t = s->intra.topology;
    const float *sums;
    float metrics[TALLY_MOST];
    size_t from, to, at, count;
    int is;

    if (cmn_overlap_begin(s->overlap, x, x->block.n + x->metrics.n)) {
        return -1;
    }
    s->stores.non_temporal = 0;
    while ((is = cmn_overlap_next(s->overlap, &sums, &from, &to)) > 0) {
        float *part = (float *)sums;
        size_t end = to < x->block.n ? to : x->block.n;
        if (to > x->block.n) {
            memcpy(metrics, sums + x->block.n, x->metrics.n * sizeof *metrics);
        }
        if (t->intra_rank != 0) {
            memset(x->block.data + from, 0, (end - from) * sizeof *x->block.data);
        }
        cmn_slice(end - from, t->intra_size, t->intra_rank, &at, &count);
        step_slice(s, x, sgd, &part, 1, from + at, from + at + count);
    }
    if (is < 0 || cmn_overlap_end(s->overlap)) {
        return -1;
    }
    memcpy(x->metrics.data, metrics, x->metrics.n * sizeof *metrics);
    return 0;
}

static int step_shm(void *self, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    struct shm *s = self;

    if (x->metrics.n > TALLY_MOST) {
        return cmn_fail("shm: a metrics of %zu floats", x->metrics.n);
    }
    return s->overlap ? step_over_nodes(s, x, sgd) : step_on_node(s, x, sgd);
}

static void momentum_shm(void *self, size_t floats, size_t *first, size_t *n, int *copies)
{
    const struct shm *s = self;
    const struct cmn_topology *t = s->intra.topology;

    *copies = t->inter_size;
    if (s->overlap) {
        *first = 0;
        *n = t->intra_rank ? 0 : floats;
    } else {
        cmn_slice(floats, t->intra_size, t->intra_rank, first, n);
    }
}

static int begin_shm(void *self, const struct cmn_exchange *x, size_t upto)
{
    const struct shm *s = self;

    return cmn_overlap_begin(s->overlap, x, upto);
}

static int poll_shm(void *self)
{
    const struct shm *s = self;

    return s->overlap ? cmn_overlap_poll(s->overlap) : 0;
}

static const char *no_begin_shm(void *self)
{
    const struct shm *s = self;

    return s->overlap ? NULL : cmn_overlap_one_node;
}

static int state_shm(void *self, int i, struct cmn_state *state)
{
    const struct shm *s = self;

    return s->overlap ? cmn_overlap_state(s->overlap, i, state) : 0;
}

static void close_shm(void *self)
{
    struct shm *s = self;

    cmn_overlap_close(s->overlap);
    cmn_regions_close(&s->parts);
    cmn_window_close(s->barrier);
    if (s->between) {
        cmn_mpi.close(s->between);
    }
    cmn_shm.close(s->pipe);
    free(s);
}

const struct cmn_communicator cmn_communicator_shm = {
    .name = "shm",
    .cpu = "yes",
    .gpu = "no: use pure_nccl or hierarchical",
    .use = "ranks on one node, and several nodes: gradients summed, and weights updated, in shared "
           "memory",
    .sums = 1,
    .encodes = 1,
    .always = "shm",
    .refuses = refuses_shm,
    .open = open_shm,
    .memory = memory_shm,
    .common = common_shm,
    .allreduce = allreduce_shm,
    .step = step_shm,
    .momentum = momentum_shm,
    .begin = begin_shm,
    .poll = poll_shm,
    .no_begin = no_begin_shm,
    .state = state_shm,
    .close = close_shm,
};
