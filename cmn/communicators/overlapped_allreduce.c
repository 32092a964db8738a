#include "communicators/overlapped_allreduce.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "base/status.h"
#include "base/timeline.h"
#include "config/pairs.h"
#include "mpi/call.h"
#include "mpi/regions.h"
#include "mpi/shared_window.h"
#include "mpi/shm_barrier.h"

/* Seconds between calls of MPI while no exchange is in flight. */
static const double IDLE_PROBE = 200e-6;

/* A part of the block that is exchanged together: consecutive whole shards. Each bucket begins
 * where the previous one ends. */
struct bucket {
    size_t from, to;         /* offsets in the block, in floats */
    int shards;              /* shards from the block's begin to the bucket's end */
    uint32_t filled, summed; /* numbers of its two barriers within the node */
    long until;              /* the compressor's count of ended shards when the bucket has ended */
    double began;            /* seconds (cmn_clock); only with a timeline */
};

struct cmn_overlap {
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    struct cmn_group intra;
    MPI_Comm inter; /* the owners with this intra_rank; MPI_COMM_NULL: this rank is none */
    int owners, owner;
    struct cmn_regions regions;
    struct cmn_window *filled, *summed; /* windows of barriers; NULL if this node has one rank */

    const struct cmn_compressor *compressor;
    void *compressor_self;
    struct cmn_compressor_plan plan;
    struct cmn_shards shards;
    struct cmn_exchange bound; /* the exchange that the shards were cut for */
    float *sums;               /* the block of intra rank 0 */
    struct cmn_sum_tree *tree; /* only with cmn_exact */

    struct bucket *bucket;                  /* the buckets of this exchange */
    int room, begun, started, ended, taken; /* counts of buckets */
    long shards_begun;
    double probed; /* time of the last probe(), in seconds (cmn_clock) */
};

const char *cmn_overlap_refuses_nodes(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->inter_size == 1 && cmn_pairs_check_trait(o, CMN_SENDS_NOTHING, "ranks on one node")
               ? cmn_reason()
               : NULL;
}

static void idle(void *self);

int cmn_overlap_open(struct cmn_overlap **overlap, const struct cmn_topology *t,
                     const struct cmn_options *o, int owners)
{
    struct cmn_overlap *v = cmn_calloc(1, sizeof *v);

    *overlap = v;
    v->topology = t;
    v->options = o;
    v->intra = (struct cmn_group){t->intra, "intra", t, o};
    v->inter = MPI_COMM_NULL;
    v->owners = owners;
    v->owner = t->intra_rank < owners;
    v->compressor = cmn_compressor_wanted(o);
    cmn_regions_open(&v->regions, &v->intra);
    if (v->owner) {
        MPI_CALL(MPI_Comm_dup(t->inter, &v->inter));
    }
    if (o->exact) {
        v->tree = cmn_sum_tree_open(t);
    }
    if (t->intra_size == 1) {
        return 0;
    }
    if (cmn_window_open(&v->filled, &v->intra, 0, 0) ||
        cmn_window_open(&v->summed, &v->intra, 0, 0)) {
        return -1;
    }
    /* Other nodes may wait for an owner's messages, so an owner does not sleep. */
    for (int i = 0; i < 2 && v->owner; i++) {
        struct cmn_shm_barrier *b = cmn_window_barrier_of(i ? v->summed : v->filled);
        b->idle = idle;
        b->idle_self = v;
    }
    return 0;
}

static void unbind(struct cmn_overlap *v)
{
    if (v->compressor_self) {
        v->compressor->close(v->compressor_self);
        v->compressor_self = NULL;
    }
    cmn_shards_close(&v->shards);
    memset(&v->bound, 0, sizeof v->bound);
    v->shards_begun = 0;
}

void cmn_overlap_close(struct cmn_overlap *v)
{
    if (!v) {
        return;
    }
    unbind(v);
    if (v->inter != MPI_COMM_NULL) {
        MPI_Comm_free(&v->inter);
    }
    cmn_window_close(v->filled);
    cmn_window_close(v->summed);
    cmn_regions_close(&v->regions);
    cmn_sum_tree_close(v->tree);
    free(v->bucket);
    free(v);
}

int cmn_overlap_memory(struct cmn_overlap *v, size_t floats, float **memory)
{
    return cmn_regions_memory(&v->regions, floats, memory);
}

/* Returns where each rank of the node has the n floats that lie at `mine` on this rank. */
static float *const *counterparts(void *self, const float *mine, size_t n)
{
    struct cmn_overlap *v = self;
    float *const *all = cmn_regions_counterparts(&v->regions, mine, n);

    if (!all) {
        cmn_fatal("overlapped allreduce: the gradients do not lie in the shared memory");
    }
    return all;
}

void cmn_addends_place(struct cmn_sum_tree *tree, const struct cmn_exchange *x,
                       float *const *(*places)(void *self, const float *mine, size_t n), void *self)
{
    if (!cmn_sum_tree_deal(tree, x->addends->deal)) {
        return;
    }
    for (int i = 0; i < tree->owns; i++) {
        struct cmn_subtree *s = &tree->own[i];
        const float *mine = s->last ? x->block.data : x->addends->sum[s->number];
        s->at = places(self, mine, x->block.n + x->metrics.n)[s->holder];
    }
    for (int i = 0; i < tree->nodes_addends; i++) {
        struct cmn_subtree *s = &tree->of_nodes[i];
        if (s->holder == tree->topology->inter_rank) {
            s->at = tree->own[tree->begins[i]].at;
        }
    }
}

/* Cuts the tensors into shards, and opens the compressor, when they are exchanged for the first
 * time. */
static void bind(struct cmn_overlap *v, const struct cmn_exchange *x)
{
    const struct cmn_exchange *b = &v->bound;

    if (v->begun == 0 && x->addends) {
        cmn_addends_place(v->tree, x, counterparts, v);
    }
    if (b->block.data == x->block.data && b->block.n == x->block.n && b->tensor == x->tensor &&
        b->tensors == x->tensors && b->metrics.n == x->metrics.n && !b->addends == !x->addends) {
        return;
    }
    unbind(v);
    v->bound = *x;
    v->sums = counterparts(v, x->block.data, x->block.n + x->metrics.n)[0];
    cmn_shards_open(&v->shards, x->tensor, x->tensors, &x->block, x->metrics.n, v->owners,
                    v->compressor->whole_tensors);
    v->plan = (struct cmn_compressor_plan){
        .comm = v->inter,
        .topology = v->topology,
        .options = v->options,
        .shard = v->shards.shard,
        .shards = v->shards.shards,
        .owner = v->topology->intra_rank,
        .tree = x->addends ? v->tree : NULL,
        .block = v->sums,
    };
    if (v->owner) {
        v->compressor_self = v->compressor->open(&v->plan);
    }
}

/* Returns a new bucket, which begins where the previous one ends and ends with the last shard that
 * ends at `upto` or below it. It may be empty: small tensors of two layers may share a shard. */
static struct bucket *next_bucket(struct cmn_overlap *v, size_t upto)
{
    const struct bucket *last;
    struct bucket *b;

    if (v->begun == v->room) {
        v->room = v->room ? 2 * v->room : 64;
        v->bucket = cmn_realloc(v->bucket, (size_t)v->room, sizeof *v->bucket);
    }
    last = v->begun ? &v->bucket[v->begun - 1] : NULL;
    b = &v->bucket[v->begun];
    *b = (struct bucket){.from = last ? last->to : 0, .shards = last ? last->shards : 0};
    b->to = b->from;
    while (b->shards < v->shards.shards) {
        const struct cmn_shard *shard = &v->shards.shard[b->shards];
        if (shard->at + shard->n > upto) {
            break;
        }
        b->to = shard->at + shard->n;
        b->shards++;
    }
    return b;
}

void cmn_overlap_begin(struct cmn_overlap *v, const struct cmn_exchange *x, size_t upto)
{
    struct bucket *b;

    bind(v, x);
    b = next_bucket(v, upto);
    if (b->to == b->from) {
        return;
    }
    cmn_status_bucket(v->begun);
    v->begun++;
    b->began = cmn_timeline_on ? cmn_clock() : 0;
    if (v->filled) {
        b->filled = cmn_shm_barrier_arrive(cmn_window_barrier_of(v->filled));
        if (!v->owner) {
            b->summed = cmn_shm_barrier_arrive(cmn_window_barrier_of(v->summed));
            v->started++;
            v->ended++;
        }
    }
    cmn_overlap_poll(v);
}

/* Adds the addends of the node's ranks for a shard, as far as that precedes the sum over the
 * nodes. */
static void add_within(struct cmn_overlap *v, const struct cmn_shard *shard)
{
    const struct cmn_sum_tree *tree = v->plan.tree;
    int ranks = v->topology->intra_size;

    if (!tree && ranks > 1) {
        cmn_reduce(v->sums + shard->at, counterparts(v, v->bound.block.data + shard->at, shard->n),
                   ranks, 0, shard->n);
    }
    for (int i = 0; tree && i < tree->nodes_addends; i++) {
        if (tree->of_nodes[i].holder == v->topology->inter_rank) {
            cmn_sum_tree_add_within(tree, i, shard->at, shard->n);
        }
    }
}

/* All ranks of the node have filled the bucket: gives this rank's shards of it to the
 * compressor. */
static void start(struct cmn_overlap *v, struct bucket *b)
{
    int i = b == v->bucket ? 0 : (b - 1)->shards;

    for (; i < b->shards; i++) {
        const struct cmn_shard *shard = &v->shards.shard[i];
        double began = cmn_timeline_on ? cmn_clock() : 0;
        if (shard->owner != v->topology->intra_rank) {
            continue;
        }
        add_within(v, shard);
        v->compressor->begin(v->compressor_self, i);
        v->shards_begun++;
        if (cmn_timeline_on) {
            cmn_timeline_span(CMN_SPAN_ENCODE, i, began, cmn_clock());
        }
    }
    b->until = v->shards_begun;
    v->started++;
}

/* Advances without waiting. */
static void advance(struct cmn_overlap *v)
{
    long over;

    while (v->started < v->begun &&
           (!v->filled || cmn_shm_barrier_complete(cmn_window_barrier_of(v->filled),
                                                   v->bucket[v->started].filled))) {
        start(v, &v->bucket[v->started]);
    }
    if (!v->owner || v->ended == v->started) {
        return;
    }
    over = v->compressor->progress(v->compressor_self, 0);
    while (v->ended < v->started && over >= v->bucket[v->ended].until) {
        struct bucket *b = &v->bucket[v->ended];
        if (v->summed) {
            b->summed = cmn_shm_barrier_arrive(cmn_window_barrier_of(v->summed));
        }
        if (cmn_timeline_on) {
            cmn_timeline_span(CMN_SPAN_EXCHANGE, v->ended, b->began, cmn_clock());
        }
        v->ended++;
    }
}

/* A message that counts as sent may still wait inside MPI for buffer space on the way. The other
 * node waits until some call of MPI moves it. */
static void probe(const struct cmn_overlap *v)
{
    int flag;

    if (v->inter != MPI_COMM_NULL) {
        MPI_CALL(MPI_Iprobe(MPI_ANY_SOURCE, 0, v->inter, &flag, MPI_STATUS_IGNORE));
    }
}

void cmn_overlap_poll(struct cmn_overlap *v)
{
    double now;

    if (v->ended < v->begun) {
        advance(v);
        return;
    }
    now = cmn_clock();
    if (now - v->probed >= IDLE_PROBE) {
        v->probed = now;
        probe(v);
    }
}

/* Called again and again while this rank waits for others of its node. */
static void idle(void *self)
{
    struct cmn_overlap *v = self;

    if (v->ended < v->begun) {
        advance(v);
    } else {
        probe(v);
    }
}

/* Waits until this rank has ended its shards of the bucket; all earlier buckets have ended. Later
 * buckets advance meanwhile, because the node's other ranks fill them without waiting for this
 * one. */
static void end_own_shards(struct cmn_overlap *v, int bucket)
{
    while (v->ended <= bucket) {
        advance(v);
        if (v->ended > bucket) {
            return;
        }
        if (v->started < v->begun) {
            cmn_shm_barrier_await(cmn_window_barrier_of(v->filled), v->bucket[v->started].filled);
        } else {
            v->compressor->progress(v->compressor_self, v->bucket[bucket].until);
        }
    }
}

int cmn_overlap_next(struct cmn_overlap *v, float **sums, size_t *from, size_t *to)
{
    double began = cmn_timeline_on ? cmn_clock() : 0;
    const struct bucket *b;

    if (v->taken == v->begun) {
        return 0;
    }
    b = &v->bucket[v->taken];
    end_own_shards(v, v->taken);
    if (v->summed) {
        cmn_shm_barrier_await(cmn_window_barrier_of(v->summed), b->summed);
    }
    if (cmn_timeline_on) {
        cmn_timeline_span(CMN_SPAN_WAIT, v->taken, began, cmn_clock());
    }
    v->taken++;
    *sums = v->sums;
    *from = b->from;
    *to = b->to;
    return 1;
}

void cmn_overlap_wait(struct cmn_overlap *v)
{
    if (v->filled) {
        cmn_window_barrier(v->filled);
    }
}

void cmn_overlap_end(struct cmn_overlap *v)
{
    v->begun = v->started = v->ended = v->taken = 0;
    cmn_overlap_wait(v);
}

void cmn_overlap_allreduce(struct cmn_overlap *v, const struct cmn_exchange *x)
{
    float *sums;
    size_t from, to;

    cmn_overlap_begin(v, x, x->block.n + x->metrics.n);
    while (cmn_overlap_next(v, &sums, &from, &to)) {
        if (sums != x->block.data) {
            memcpy(x->block.data + from, sums + from, (to - from) * sizeof *sums);
        }
    }
    cmn_overlap_end(v);
}

int cmn_overlap_state(struct cmn_overlap *v, int i, struct cmn_state *state)
{
    return v->compressor_self ? v->compressor->state(v->compressor_self, i, state) : 0;
}
