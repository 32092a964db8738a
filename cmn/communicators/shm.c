/* shm: gradients lie in memory shared by the ranks of a node. They are summed, and the weights
 * updated, where they lie.
 *
 * Steps on one node: all ranks wait for each other; each sums its slice of all ranks' gradients,
 * and writes it to all of them (allreduce), or updates the weights of that slice, which the ranks
 * of a node have in common (step); all wait again.
 * Steps on several nodes: overlapped_allreduce.h with k owners, k the smallest number of ranks of
 * any node; then each rank copies the sums (allreduce), or updates its slice of the weights
 * (step), bucket by bucket as they arrive.
 * So it is two_dimensional with the update in the same pass over memory.
 * Bytes, n floats: none copied within a node. Over a node's link, each way, 2(M-1)/M * 4n for M
 * nodes (4n for two), or what the compressor makes of it.
 * The order of additions is that of the ranks, then that of the nodes.
 * Source: the slices are those of the reduce-scatter in Rabenseifner, "Optimization of Collective
 * Reduction Operations", 2004, without its messages. */
#include "communicators/communicator.h"

#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/reduce.h"
#include "communicators/node_groups.h"
#include "transports/shm.h"

/* With fewer floats than SMALL the caches serve best. */
enum { METRICS_MOST = 64, SMALL = 16384 };

struct shm {
    struct cmn_node_groups groups;
    struct cmn_stores stores; /* of updates on one node */
};

static const char *refuses_shm(const struct cmn_topology *t, const struct cmn_options *o)
{
    if (t->device >= 0) {
        return "gradients on a GPU lie in its own memory: use pure_nccl or hierarchical";
    }
    return cmn_overlap_refuses_nodes(t, o);
}

static int open_shm(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    return cmn_node_groups_open(self, sizeof(struct shm), &cmn_shm, t, o, t->least_intra);
}

/* Adds what to do to the reason of a failure. */
static int with_advice(int result)
{
    if (result) {
        char why[512];
        snprintf(why, sizeof why, "%s", cmn_reason());
        cmn_fail("%s; `-cmn_communicator flat` does without", why);
    }
    return result;
}

static int memory_shm(void *self, size_t floats, float **memory)
{
    return with_advice(cmn_node_groups_memory(self, floats, memory));
}

static int common_shm(void *self, size_t floats, float **memory, int *first)
{
    struct shm *s = self;

    *first = s->groups.intra.topology->intra_rank == 0;
    return with_advice(cmn_shm_common(s->groups.intra_self, floats, memory));
}

static void allreduce_shm(void *self, const struct cmn_exchange *x)
{
    struct shm *s = self;

    if (s->groups.overlap) {
        cmn_overlap_allreduce(s->groups.overlap, x);
    } else if (x->squares && s->groups.intra.topology->intra_size > 1) {
        cmn_shm_allreduce_squares(s->groups.intra_self, x->block.data, x->block.n + x->metrics.n,
                                  x->block.n, x->squares);
    } else {
        cmn_shm.allreduce(s->groups.intra_self, x->block.data, x->block.n + x->metrics.n);
    }
}

/* Updates the weights of the floats [from, to) of the block, tensor by tensor: with `sums`, the
 * sums of the block over all ranks, or, where that is NULL, with the blocks of the node's ranks. */
static void step_slice(const struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd,
                       float *sums, int non_temporal, size_t from, size_t to)
{
    const struct cmn_topology *t = s->groups.intra.topology;

    for (int i = 0; i < x->tensors; i++) {
        size_t first = (size_t)(x->tensor[i].data - x->block.data);
        size_t end = first + x->tensor[i].n;
        struct cmn_sgd_slice how = {.rate = sgd->rate[i],
                                    .decay = sgd->decay[i],
                                    .momentum = sgd->momentum / (float)t->inter_size,
                                    .non_temporal = non_temporal};
        first = first > from ? first : from;
        end = end < to ? end : to;
        how.average = x->average ? x->average + first : NULL;
        how.part = x->part;
        if (first < end && sums) {
            float *part = sums + first;
            cmn_reduce_sgd(x->weights + first, &part, 1, 0, &how, end - first);
        } else if (first < end) {
            cmn_reduce_sgd(
                x->weights + first,
                cmn_shm_counterparts(s->groups.intra_self, x->block.data + first, end - first),
                t->intra_size, t->intra_rank, &how, end - first);
        }
    }
}

/* The momentum stays in the slice of the rank that updates it; all else becomes 0. So it counts
 * once in the next sum. */
static void step_on_node(struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    const struct cmn_topology *t = s->groups.intra.topology;
    void *node = s->groups.intra_self;
    size_t n = x->block.n + x->metrics.n, at, count;
    int measures = n >= SMALL && t->intra_size > 1;
    float metrics[METRICS_MOST];
    double began;

    cmn_shm_wait(node);
    cmn_reduce(metrics, cmn_shm_counterparts(node, x->metrics.data, x->metrics.n), t->intra_size, 0,
               x->metrics.n);
    cmn_slice(x->block.n, t->intra_size, t->intra_rank, &at, &count);
    began = cmn_clock();
    step_slice(s, x, sgd, NULL, measures && cmn_stores_non_temporal(&s->stores), at, at + count);
    if (measures) {
        cmn_stores_took(&s->stores, cmn_clock() - began, n);
    }
    cmn_shm_wait(node);
    /* Not earlier: until now the others read what this rank's metrics were. */
    memcpy(x->metrics.data, metrics, x->metrics.n * sizeof *metrics);
}

/* Bucket by bucket, as the sums of the nodes arrive. The momentum stays in the block of intra
 * rank 0; each node keeps its part of it. */
static void step_over_nodes(struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    const struct cmn_topology *t = s->groups.intra.topology;
    float metrics[METRICS_MOST], *sums;
    size_t from, to, at, count;

    cmn_overlap_begin(s->groups.overlap, x, x->block.n + x->metrics.n);
    while (cmn_overlap_next(s->groups.overlap, &sums, &from, &to)) {
        size_t end = to < x->block.n ? to : x->block.n;
        if (to > x->block.n) {
            memcpy(metrics, sums + x->block.n, x->metrics.n * sizeof *metrics);
        }
        if (t->intra_rank != 0) {
            memset(x->block.data + from, 0, (end - from) * sizeof *x->block.data);
        }
        cmn_slice(end - from, t->intra_size, t->intra_rank, &at, &count);
        step_slice(s, x, sgd, sums, 0, from + at, from + at + count);
    }
    cmn_overlap_end(s->groups.overlap);
    memcpy(x->metrics.data, metrics, x->metrics.n * sizeof *metrics);
}

static void step_shm(void *self, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    struct shm *s = self;

    if (x->metrics.n > METRICS_MOST) {
        cmn_fatal("shm: %zu metrics, at most %d have room", x->metrics.n, METRICS_MOST);
    }
    if (s->groups.overlap) {
        step_over_nodes(s, x, sgd);
    } else {
        step_on_node(s, x, sgd);
    }
}

static void momentum_shm(void *self, size_t floats, size_t *first, size_t *n, int *copies)
{
    const struct shm *s = self;
    const struct cmn_topology *t = s->groups.intra.topology;

    *copies = t->inter_size;
    if (s->groups.overlap) {
        *first = 0;
        *n = t->intra_rank ? 0 : floats;
    } else {
        cmn_slice(floats, t->intra_size, t->intra_rank, first, n);
    }
}

const struct cmn_communicator cmn_communicator_shm = {
    .name = "shm",
    .cpu = "yes",
    .gpu = "no: use pure_nccl or hierarchical",
    .use = "ranks on one node, and several nodes: gradients summed, and weights updated, in shared "
           "memory",
    .sums = 1,
    .compresses = 1,
    .always = "shm",
    .refuses = refuses_shm,
    .open = open_shm,
    .memory = memory_shm,
    .common = common_shm,
    .allreduce = allreduce_shm,
    .step = step_shm,
    .momentum = momentum_shm,
    .begin = cmn_node_groups_begin,
    .poll = cmn_node_groups_poll,
    .no_begin = cmn_node_groups_no_begin,
    .state = cmn_node_groups_state,
    .close = cmn_node_groups_close,
};
