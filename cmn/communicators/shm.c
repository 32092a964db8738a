/* shm: gradients lie in memory that the ranks of a node share. They are summed, and the weights
 * updated, in place.
 *
 * Steps on one node: a barrier; each rank sums its slice of all ranks' gradients, and writes the
 * sum to all of them (allreduce), or updates the weights of that slice, which the ranks of a node
 * have in common (step); a barrier. If the update depends on the norms of the sums (struct cmn_sgd,
 * look), each rank sums and squares its slice; a barrier; and each rank updates its slice.
 * Steps on several nodes: those of overlapped_allreduce.h with k owners, k the smallest number of
 * ranks of any node; then each rank copies the sums (allreduce), or updates its slice of the
 * weights (step), bucket by bucket as they arrive. So it is two_dimensional with the update in the
 * same pass over memory.
 * Bytes, n floats: none copied within a node. Over a node's link, each way, 2(M-1)/M * 4n for M
 * nodes (4n for two), or those of the compressor.
 * The order of additions is that of the ranks, then that of the nodes.
 * Source: the slices are those of the reduce-scatter in Rabenseifner, "Optimization of Collective
 * Reduction Operations", 2004, without its messages. */
#include "communicators/communicator.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "communicators/node_groups.h"
#include "transports/shm.h"

/* With fewer floats than SMALL, ordinary stores are faster. */
enum { METRICS_MOST = 64, SMALL = 16384 };

/* Floats of a tensor whose squares are summed together, whichever rank does it. So the sums of
 * squares do not depend on the ranks of a node. A chunk is squared while it is in a cache. */
enum { CHUNK = 4096 };

struct shm {
    struct cmn_node_groups groups;
    struct cmn_stores stores; /* chooses the kind of store for updates on one node */
    /* Common to the node: the sum of squares of each chunk of the gradient sums, then of the
     * weights. NULL until it is needed. */
    double *squares;
    int chunks;
};

static const char *refuses_shm(const struct cmn_communicator *c, const struct cmn_topology *t,
                               const struct cmn_options *o)
{
    (void)c;
    if (t->device >= 0) {
        return "gradients on a GPU lie in its own memory: use pure_nccl or hierarchical";
    }
    return cmn_overlap_refuses_nodes(t, o);
}

static int open_shm(void **self, const struct cmn_communicator *c, const struct cmn_topology *t,
                    const struct cmn_options *o)
{
    (void)c;
    return cmn_node_groups_make(self, sizeof(struct shm), t, o, t->least_intra);
}

/* Adds advice to the reason of a failure. */
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

    *first = s->groups.topology.intra_rank == 0;
    return with_advice(cmn_shm_common(s->groups.shm, floats, memory));
}

/* An update in progress. */
struct update {
    const struct cmn_exchange *x;
    const struct cmn_sgd *sgd;
    /* The sums of the block over all ranks. NULL: the sums over the node's ranks are still to be
     * computed. */
    float *sums;
    /* The tree along which they are computed; NULL: in the order of the ranks. */
    const struct cmn_sum_tree *tree;
    int non_temporal;
};

/* Returns where the ranks of the node have the n floats of the block from `first` on. */
static float *const *node_blocks(const struct shm *s, const struct update *u, size_t first,
                                 size_t n)
{
    return cmn_shm_counterparts(s->groups.shm, u->x->block.data + first, n);
}

/* Sums n floats of all ranks of the node into this rank's block, and sets the others' to 0. */
static void sum_part(const struct shm *s, const struct update *u, size_t first, size_t n)
{
    const struct cmn_topology *t = &s->groups.topology;
    float *const *block = node_blocks(s, u, first, n);

    if (!u->tree) {
        cmn_reduce_take(block, t->intra_size, t->intra_rank, u->non_temporal, n);
        return;
    }
    cmn_sum_tree_add(u->tree, first, n, u->x->block.data + first);
    for (int i = 0; i < t->intra_size; i++) {
        if (i != t->intra_rank) {
            memset(block[i], 0, n * sizeof *block[i]);
        }
    }
}

/* Updates the weights of n floats of tensor i, from float `first` of the block on. */
static void update_part(struct shm *s, const struct update *u, int i, size_t first, size_t n)
{
    const struct cmn_topology *t = &s->groups.topology;
    const struct cmn_exchange *x = u->x;
    const struct cmn_sgd *sgd = u->sgd;
    struct cmn_sgd_slice how = {
        .rate = sgd->rate[i],
        .decay = sgd->decay[i],
        .momentum = sgd->velocity ? sgd->momentum : sgd->momentum / (float)t->inter_size,
        .scale = sgd->scale[i],
        .non_temporal = u->non_temporal,
        .average = x->average ? x->average + first : NULL,
        .part = x->part,
    };

    if (sgd->velocity) {
        if (!u->sums) {
            sum_part(s, u, first, n);
        }
        cmn_sgd_apart(x->weights + first, sgd->velocity + first,
                      (u->sums ? u->sums : x->block.data) + first, &how, n);
    } else if (u->sums) {
        float *part = u->sums + first;
        cmn_reduce_sgd(x->weights + first, &part, 1, 0, &how, n);
    } else {
        cmn_reduce_sgd(x->weights + first, node_blocks(s, u, first, n), t->intra_size,
                       t->intra_rank, &how, n);
    }
}

/* Updates the weights of the floats [from, to) of the block, tensor by tensor. */
static void update_range(struct shm *s, const struct update *u, size_t from, size_t to)
{
    for (int i = 0; i < u->x->tensors; i++) {
        size_t first = (size_t)(u->x->tensor[i].data - u->x->block.data);
        size_t end = first + u->x->tensor[i].n;
        first = first > from ? first : from;
        end = end < to ? end : to;
        if (first < end) {
            update_part(s, u, i, first, end - first);
        }
    }
}

/* ---- in chunks, with the momentum in sgd->velocity ---- */

static int chunks_of(const struct cmn_span *tensor)
{
    return (int)((tensor->n + CHUNK - 1) / CHUNK);
}

/* Calls `what` for each chunk that begins in this rank's slice of the block. `square` is where the
 * sum of its squares belongs, and s->chunks places later that of its weights. */
static void for_own_chunks(struct shm *s, const struct update *u,
                           void (*what)(struct shm *s, const struct update *u, int tensor,
                                        size_t first, size_t n, double *square))
{
    const struct cmn_topology *t = &s->groups.topology;
    const struct cmn_exchange *x = u->x;
    double *square = s->squares;
    size_t at, count;

    cmn_slice(x->block.n, t->intra_size, t->intra_rank, &at, &count);
    for (int i = 0; i < x->tensors; i++) {
        size_t first = (size_t)(x->tensor[i].data - x->block.data), left = x->tensor[i].n;
        for (; left; first += CHUNK, square++) {
            size_t n = left < CHUNK ? left : CHUNK;
            if (first >= at && first < at + count) {
                what(s, u, i, first, n, square);
            }
            left -= n;
        }
    }
}

static void update_chunk(struct shm *s, const struct update *u, int tensor, size_t first, size_t n,
                         double *square)
{
    (void)square;
    update_part(s, u, tensor, first, n);
}

static void square_chunk(struct shm *s, const struct update *u, int tensor, size_t first, size_t n,
                         double *square)
{
    (void)tensor;
    if (!u->sums) {
        sum_part(s, u, first, n);
    }
    square[0] = cmn_sum_of_squares_near((u->sums ? u->sums : u->x->block.data) + first, n);
    if (u->sgd->looks_at_weights) {
        square[s->chunks] = cmn_sum_of_squares_near(u->x->weights + first, n);
    }
}

/* Collective over the node in the first call. */
static void open_squares(struct shm *s, const struct cmn_exchange *x)
{
    float *memory;

    if (s->squares) {
        return;
    }
    for (int i = 0; i < x->tensors; i++) {
        s->chunks += chunks_of(&x->tensor[i]);
    }
    if (cmn_shm_common(s->groups.shm, (2 * (size_t)s->chunks + 1) * sizeof(double) / sizeof(float),
                       &memory)) {
        cmn_fatal_reason();
    }
    s->squares = (double *)(void *)memory;
}

/* Sums the squares of each tensor's chunks, which all ranks have computed, and calls sgd->look. */
static void look(const struct shm *s, const struct update *u)
{
    int tensors = u->x->tensors, chunk = 0;
    double *sum = cmn_calloc(2 * (size_t)tensors + 1, sizeof *sum);

    for (int i = 0; i < tensors; i++) {
        for (int end = chunk + chunks_of(&u->x->tensor[i]); chunk < end; chunk++) {
            sum[i] += s->squares[chunk];
            sum[tensors + i] += s->squares[s->chunks + chunk];
        }
    }
    u->sgd->look(u->sgd->look_self, sum);
    free(sum);
}

/* ---- a step ---- */

/* Updates this rank's slice when the momentum is part of the sums. It stays in the block of the
 * rank that updates a slice, and all other blocks become 0, so it counts once in the next sum. */
static void update_slice(struct shm *s, const struct update *u)
{
    const struct cmn_topology *t = &s->groups.topology;
    size_t at, count;

    cmn_slice(u->x->block.n, t->intra_size, t->intra_rank, &at, &count);
    update_range(s, u, at, at + count);
}

static void step_on_node(struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    const struct cmn_topology *t = &s->groups.topology;
    void *node = s->groups.shm;
    size_t n = x->block.n + x->metrics.n;
    int measures = n >= SMALL && t->intra_size > 1;
    struct update u = {.x = x, .sgd = sgd};
    float metrics[METRICS_MOST];
    double began, before = 0;

    if (sgd->look) {
        open_squares(s, x);
    }
    u.tree = cmn_node_groups_tree(&s->groups, x);
    cmn_shm_wait(node);
    if (u.tree) {
        cmn_sum_tree_add(u.tree, x->block.n, x->metrics.n, metrics);
    } else {
        cmn_reduce(metrics, cmn_shm_counterparts(node, x->metrics.data, x->metrics.n),
                   t->intra_size, 0, x->metrics.n);
    }
    u.non_temporal = measures && cmn_stores_non_temporal(&s->stores);
    began = cmn_clock();
    if (sgd->look) {
        for_own_chunks(s, &u, square_chunk);
        before = cmn_clock() - began;
        cmn_shm_wait(node);
        look(s, &u);
        u.sums = x->block.data;
        began = cmn_clock();
    }
    if (sgd->velocity) {
        for_own_chunks(s, &u, update_chunk);
    } else {
        update_slice(s, &u);
    }
    if (measures) {
        cmn_stores_took(&s->stores, before + cmn_clock() - began, n);
    }
    cmn_shm_wait(node);
    /* Not earlier: until the barrier the other ranks read this rank's metrics. */
    memcpy(x->metrics.data, metrics, x->metrics.n * sizeof *metrics);
}

/* Updates bucket by bucket, as the sums over the nodes arrive, or all at the end if sgd->look must
 * see the norms first. Momentum that is part of the sums stays in the block of intra rank 0; each
 * node keeps an equal part of it. */
static void step_over_nodes(struct shm *s, const struct cmn_exchange *x, const struct cmn_sgd *sgd)
{
    const struct cmn_topology *t = &s->groups.topology;
    struct update u = {.x = x, .sgd = sgd};
    float metrics[METRICS_MOST];
    size_t from, to, at, count;

    if (sgd->look) {
        open_squares(s, x);
    }
    cmn_overlap_begin(s->groups.overlap, x, x->block.n + x->metrics.n);
    while (cmn_overlap_next(s->groups.overlap, &u.sums, &from, &to)) {
        size_t end = to < x->block.n ? to : x->block.n;
        if (to > x->block.n) {
            memcpy(metrics, u.sums + x->block.n, x->metrics.n * sizeof *metrics);
        }
        if (t->intra_rank != 0) {
            memset(x->block.data + from, 0, (end - from) * sizeof *x->block.data);
        }
        cmn_slice(end - from, t->intra_size, t->intra_rank, &at, &count);
        if (!sgd->look) {
            update_range(s, &u, from + at, from + at + count);
        }
    }
    if (sgd->look) {
        for_own_chunks(s, &u, square_chunk);
        cmn_overlap_wait(s->groups.overlap);
        look(s, &u);
        for_own_chunks(s, &u, update_chunk);
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
    const struct cmn_topology *t = &s->groups.topology;

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
    .can = {CMN_CAN_ALL, 0},
    .refuses = refuses_shm,
    .open = open_shm,
    .memory = memory_shm,
    .common = common_shm,
    .allreduce = cmn_node_groups_allreduce,
    .step = step_shm,
    .momentum = momentum_shm,
    .begin = cmn_node_groups_begin,
    .poll = cmn_node_groups_poll,
    .no_begin = cmn_node_groups_no_begin,
    .state = cmn_node_groups_state,
    .close = cmn_node_groups_close,
};
