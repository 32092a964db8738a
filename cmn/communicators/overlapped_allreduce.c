#include "communicators/overlapped_allreduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "communicators/buckets.h"
#include "base/log.h"
#include "base/reduce.h"
#include "base/timeline.h"
#include "mpi/shm_barrier.h"
#include "mpi/regions.h"
#include "transports/transport.h"
#include "mpi/shared_window.h"
#include "base/status.h"

/* Seconds between looks at MPI while nothing is under way. */
static const double NUDGES = 200e-6;

struct cmn_overlap {
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    struct cmn_group intra;
    MPI_Comm inter; /* the owners' of this intra_rank; MPI_COMM_NULL on ranks that are none */
    int owners, owner;
    struct cmn_regions parts;
    struct cmn_window *filled, *summed; /* for barriers alone */

    const struct cmn_compressor *compressor;
    void *coder;
    struct cmn_compressor_plan plan;
    struct cmn_shards shards;
    struct cmn_exchange bound; /* what the shards were cut for */
    float *sums;               /* the block of intra rank 0 */

    struct cmn_bucket *bucket; /* of the exchange that is under way */
    int room, begun, started, ended, taken;
    long shards_begun;
    double nudged;
};

const char cmn_overlap_on_gpu[] =
    "gradients on a GPU do not pass through the processor's memory: use "
    "pure_nccl or non_cuda_aware";

const char *cmn_overlap_refuses(const struct cmn_topology *t, const struct cmn_options *o)
{
    static _Thread_local char why[512];

    if (!cmn_compressor_wanted(o)) {
        snprintf(why, sizeof why, "%s", cmn_reason());
        return why;
    }
    if (t->device >= 0) {
        return cmn_overlap_on_gpu;
    }
    return NULL;
}

const char *cmn_overlap_refuses_on(const struct cmn_topology *t, const struct cmn_options *o)
{
    const char *why = cmn_overlap_refuses(t, o);

    if (!why && t->inter_size == 1 && cmn_compressor_wanted(o) != cmn_compressor_at(0)) {
        return "all ranks are on one node, and nothing is sent that a compressor could make "
               "smaller: "
               "leave it away, or use flat, which sends all the same";
    }
    if (!why && t->inter_size == 1 && o->double_buffering) {
        return "all ranks are on one node, and there is no link whose time could be hidden: leave "
               "cmn_double_buffering away, or use flat, which sends all the same";
    }
    return why;
}

const char cmn_overlap_one_node[] =
    "all ranks are on one node: there is no link whose time could be "
    "hidden";

static int idle(void *self);

int cmn_overlap_open(struct cmn_overlap **out, const struct cmn_topology *t,
                     const struct cmn_options *o, int owners)
{
    struct cmn_overlap *f = calloc(1, sizeof *f);

    if (!f) {
        return cmn_fail("out of memory");
    }
    *out = f;
    f->topology = t;
    f->options = o;
    f->intra = (struct cmn_group){t->intra, "intra", t, o, 0};
    f->inter = MPI_COMM_NULL;
    f->owners = owners;
    f->owner = t->intra_rank < owners;
    f->compressor = cmn_compressor_wanted(o);
    if (!f->compressor || cmn_regions_open(&f->parts, &f->intra)) {
        return -1;
    }
    if (f->owner && cmn_mpi_check(MPI_Comm_dup(t->inter, &f->inter), "MPI_Comm_dup")) {
        return -1;
    }
    if (t->intra_size == 1) {
        return 0;
    }
    if (cmn_window_open(&f->filled, &f->intra, 0, 0) ||
        cmn_window_open(&f->summed, &f->intra, 0, 0)) {
        return -1;
    }
    /* Other nodes may wait for what this rank sends: it does not sleep. */
    for (int i = 0; i < 2 && f->owner; i++) {
        struct cmn_shm_barrier *m = cmn_window_barrier_of(i ? f->summed : f->filled);
        m->idle = idle;
        m->idler = f;
    }
    return 0;
}

static void unbind(struct cmn_overlap *f)
{
    if (f->coder) {
        f->compressor->close(f->coder);
        f->coder = NULL;
    }
    cmn_shards_close(&f->shards);
    memset(&f->bound, 0, sizeof f->bound);
    f->shards_begun = 0;
}

void cmn_overlap_close(struct cmn_overlap *f)
{
    if (!f) {
        return;
    }
    unbind(f);
    if (f->inter != MPI_COMM_NULL) {
        MPI_Comm_free(&f->inter);
    }
    cmn_window_close(f->filled);
    cmn_window_close(f->summed);
    cmn_regions_close(&f->parts);
    free(f->bucket);
    free(f);
}

int cmn_overlap_memory(struct cmn_overlap *f, size_t floats, float **memory)
{
    return cmn_regions_memory(&f->parts, floats, memory);
}

static int holds(struct cmn_overlap *f, const struct cmn_exchange *x)
{
    return x->metrics.data == x->block.data + x->block.n &&
           cmn_regions_find(&f->parts, x->block.data, x->block.n + x->metrics.n);
}

/* With a compressor there is no other way: bind() then says what is wrong. */
int cmn_overlap_holds(struct cmn_overlap *f, const struct cmn_exchange *x)
{
    return f->compressor != cmn_compressor_at(0) || holds(f, x);
}

/* The first exchange of these tensors: cuts them. */
static int bind(struct cmn_overlap *f, const struct cmn_exchange *x)
{
    const struct cmn_exchange *b = &f->bound;

    if (b->block.data == x->block.data && b->block.n == x->block.n && b->tensor == x->tensor &&
        b->tensors == x->tensors && b->metrics.n == x->metrics.n) {
        return 0;
    }
    if (!holds(f, x)) {
        return cmn_fail("the gradients do not lie in the memory that is shared");
    }
    unbind(f);
    if (cmn_shards_open(&f->shards, x->tensor, x->tensors, &x->block, x->metrics.n, f->owners,
                        f->compressor->whole_tensors)) {
        return -1;
    }
    f->bound = *x;
    f->sums = f->parts.part[0];
    f->plan = (struct cmn_compressor_plan){
        .comm = f->inter,
        .group = "inter",
        .topology = f->topology,
        .options = f->options,
        .shard = f->shards.shard,
        .shards = f->shards.shards,
        .owner = f->topology->intra_rank,
        .block = f->sums,
    };
    return f->owner ? f->compressor->open(&f->coder, &f->plan) : 0;
}

int cmn_overlap_begin(struct cmn_overlap *f, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_bucket *b;

    if (bind(f, x) || !(b = cmn_bucket_next(&f->bucket, &f->room, f->begun, &f->shards, upto))) {
        return -1;
    }
    if (b->to == b->from) {
        return 0;
    }
    cmn_status_bucket(f->begun);
    f->begun++;
    b->began = cmn_timeline_on ? cmn_clock() : 0;
    if (f->filled) {
        b->filled = cmn_shm_barrier_arrive(cmn_window_barrier_of(f->filled));
        if (!f->owner) {
            b->summed = cmn_shm_barrier_arrive(cmn_window_barrier_of(f->summed));
            f->started++;
            f->ended++;
        }
    }
    return cmn_overlap_poll(f);
}

/* All of the node have filled it: what this rank owns of it goes to the compressor. */
static int start(struct cmn_overlap *f, struct cmn_bucket *b)
{
    int ranks = f->topology->intra_size;
    int i = b == f->bucket ? 0 : (b - 1)->shard;

    for (; i < b->shard; i++) {
        const struct cmn_shard *p = &f->shards.shard[i];
        double began = cmn_timeline_on ? cmn_clock() : 0;
        if (p->owner != f->topology->intra_rank) {
            continue;
        }
        if (ranks > 1) {
            cmn_regions_find(&f->parts, f->bound.block.data, f->bound.block.n + f->bound.metrics.n);
            cmn_reduce(f->sums + p->at, cmn_regions_at(&f->parts, p->at), ranks, 0, p->n);
        }
        if (f->compressor->begin(f->coder, i)) {
            return -1;
        }
        f->shards_begun++;
        if (cmn_timeline_on) {
            cmn_timeline_span(CMN_SPAN_ENCODE, i, began, cmn_clock());
        }
    }
    b->until = f->shards_begun;
    f->started++;
    return 0;
}

/* One try; *done becomes whether the compressor has nothing under way. */
static int move(struct cmn_overlap *f, int *done)
{
    long over = 0;

    while (f->started < f->begun &&
           (!f->filled || cmn_shm_barrier_complete(cmn_window_barrier_of(f->filled),
                                                   f->bucket[f->started].filled))) {
        if (start(f, &f->bucket[f->started])) {
            return -1;
        }
    }
    if (f->owner && f->ended < f->started && (over = f->compressor->progress(f->coder, 0)) < 0) {
        return -1;
    }
    while (f->owner && f->ended < f->started && over >= f->bucket[f->ended].until) {
        struct cmn_bucket *b = &f->bucket[f->ended];
        if (f->summed) {
            b->summed = cmn_shm_barrier_arrive(cmn_window_barrier_of(f->summed));
        }
        if (cmn_timeline_on) {
            cmn_timeline_span(CMN_SPAN_EXCHANGE, f->ended, b->began, cmn_clock());
        }
        f->ended++;
    }
    *done = f->ended == f->started;
    return 0;
}

/* What this rank has given to MPI may still wait there for room on the way, also when it counts as sent: until some call moves
 * it on, the other node waits. */
static int nudge(struct cmn_overlap *f)
{
    int flag;

    return f->inter == MPI_COMM_NULL
               ? 0
               : cmn_mpi_check(MPI_Iprobe(MPI_ANY_SOURCE, 0, f->inter, &flag, MPI_STATUS_IGNORE),
                               "MPI_Iprobe");
}

int cmn_overlap_poll(struct cmn_overlap *f)
{
    double now;
    int done;

    if (f->ended < f->begun) {
        return move(f, &done);
    }
    now = cmn_clock();
    if (now - f->nudged < NUDGES) {
        return 0;
    }
    f->nudged = now;
    return nudge(f);
}

/* While this rank waits for others of its node. */
static int idle(void *self)
{
    struct cmn_overlap *f = self;
    int done;

    return f->ended < f->begun ? move(f, &done) : nudge(f);
}

/* Waits until this rank has ended its part of the bucket. All before it have ended. Meanwhile later buckets move on, too: the
 * node's other ranks fill them without waiting for this one. */
static int end_own(struct cmn_overlap *f, int bucket)
{
    while (f->ended <= bucket) {
        int done;
        if (move(f, &done)) {
            return -1;
        }
        if (f->ended > bucket) {
            return 0;
        }
        if (f->started < f->begun) {
            if (cmn_shm_barrier_await(cmn_window_barrier_of(f->filled),
                                      f->bucket[f->started].filled)) {
                return -1;
            }
        } else if (f->compressor->progress(f->coder, f->bucket[bucket].until) < 0) {
            return -1;
        }
    }
    return 0;
}

int cmn_overlap_next(struct cmn_overlap *f, const float **sums, size_t *from, size_t *to)
{
    double began = cmn_timeline_on ? cmn_clock() : 0;
    const struct cmn_bucket *b;

    if (f->taken == f->begun) {
        return 0;
    }
    b = &f->bucket[f->taken];
    if (end_own(f, f->taken) ||
        (f->summed && cmn_shm_barrier_await(cmn_window_barrier_of(f->summed), b->summed))) {
        return cmn_fail_in("exchange of %zu floats between nodes", b->to - b->from);
    }
    if (cmn_timeline_on) {
        cmn_timeline_span(CMN_SPAN_WAIT, f->taken, began, cmn_clock());
    }
    f->taken++;
    *sums = f->sums;
    *from = b->from;
    *to = b->to;
    return 1;
}

int cmn_overlap_end(struct cmn_overlap *f)
{
    f->begun = f->started = f->ended = f->taken = 0;
    return f->filled ? cmn_window_barrier(f->filled) : 0;
}

int cmn_overlap_allreduce(struct cmn_overlap *f, const struct cmn_exchange *x)
{
    const float *sums;
    size_t from, to;
    int is;

    if (cmn_overlap_begin(f, x, x->block.n + x->metrics.n)) {
        return -1;
    }
    while ((is = cmn_overlap_next(f, &sums, &from, &to)) > 0) {
        if (sums != x->block.data) {
            memcpy(x->block.data + from, sums + from, (to - from) * sizeof *sums);
        }
    }
    return is < 0 ? -1 : cmn_overlap_end(f);
}

int cmn_overlap_state(struct cmn_overlap *f, int i, struct cmn_state *state)
{
    return f->coder ? f->compressor->state(f->coder, i, state) : 0;
}
