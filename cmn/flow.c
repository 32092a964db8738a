#include "flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buckets.h"
#include "log.h"
#include "sums.h"
#include "timeline.h"
#include "transports/meeting.h"
#include "transports/parts.h"
#include "transports/transport.h"
#include "transports/window.h"
#include "watch.h"

/* Seconds between looks at MPI while nothing is under way. */
static const double NUDGES = 200e-6;

struct cmn_flow {
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    struct cmn_group intra;
    MPI_Comm inter; /* the owners' of this intra_rank; MPI_COMM_NULL on ranks that are none */
    int owners, owner;
    struct cmn_parts parts;
    struct cmn_window *filled, *summed; /* for meetings alone */

    const struct cmn_codec *codec;
    void *coder;
    struct cmn_codec_plan plan;
    struct cmn_pieces pieces;
    struct cmn_exchange bound; /* what the pieces were cut for */
    float *sums;               /* the block of intra rank 0 */

    struct cmn_bucket *bucket; /* of the exchange that is under way */
    int room, begun, started, ended, taken;
    long pieces_begun;
    double nudged;
};

const char cmn_flow_on_gpu[] = "gradients on a GPU do not pass through the processor's memory: use "
                               "pure_nccl or non_cuda_aware";

const char *cmn_flow_refuses(const struct cmn_topology *t, const struct cmn_options *o)
{
    static _Thread_local char why[512];

    if (!cmn_codec_wanted(o)) {
        snprintf(why, sizeof why, "%s", cmn_reason());
        return why;
    }
    if (t->device >= 0) {
        return cmn_flow_on_gpu;
    }
    return NULL;
}

const char *cmn_flow_refuses_on(const struct cmn_topology *t, const struct cmn_options *o)
{
    const char *why = cmn_flow_refuses(t, o);

    if (!why && t->inter_size == 1 && cmn_codec_wanted(o) != cmn_codec_at(0)) {
        return "all ranks are on one node, and nothing is sent that a codec could make smaller: "
               "leave it away, or use flat, which sends all the same";
    }
    if (!why && t->inter_size == 1 && o->double_buffering) {
        return "all ranks are on one node, and there is no link whose time could be hidden: leave "
               "cmn_double_buffering away, or use flat, which sends all the same";
    }
    return why;
}

const char cmn_flow_one_node[] = "all ranks are on one node: there is no link whose time could be "
                                 "hidden";

static int idle(void *self);

int cmn_flow_open(struct cmn_flow **out, const struct cmn_topology *t, const struct cmn_options *o,
                  int owners)
{
    struct cmn_flow *f = calloc(1, sizeof *f);

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
    f->codec = cmn_codec_wanted(o);
    if (!f->codec || cmn_parts_open(&f->parts, &f->intra)) {
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
        struct cmn_meeting *m = cmn_window_meeting(i ? f->summed : f->filled);
        m->idle = idle;
        m->idler = f;
    }
    return 0;
}

static void unbind(struct cmn_flow *f)
{
    if (f->coder) {
        f->codec->close(f->coder);
        f->coder = NULL;
    }
    cmn_pieces_close(&f->pieces);
    memset(&f->bound, 0, sizeof f->bound);
    f->pieces_begun = 0;
}

void cmn_flow_close(struct cmn_flow *f)
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
    cmn_parts_close(&f->parts);
    free(f->bucket);
    free(f);
}

int cmn_flow_memory(struct cmn_flow *f, size_t floats, float **memory)
{
    return cmn_parts_memory(&f->parts, floats, memory);
}

static int holds(struct cmn_flow *f, const struct cmn_exchange *x)
{
    return x->tally.data == x->block.data + x->block.n &&
           cmn_parts_find(&f->parts, x->block.data, x->block.n + x->tally.n);
}

/* With a codec there is no other way: bind() then says what is wrong. */
int cmn_flow_holds(struct cmn_flow *f, const struct cmn_exchange *x)
{
    return f->codec != cmn_codec_at(0) || holds(f, x);
}

/* The first exchange of these tensors: cuts them. */
static int bind(struct cmn_flow *f, const struct cmn_exchange *x)
{
    const struct cmn_exchange *b = &f->bound;

    if (b->block.data == x->block.data && b->block.n == x->block.n && b->tensor == x->tensor &&
        b->tensors == x->tensors && b->tally.n == x->tally.n) {
        return 0;
    }
    if (!holds(f, x)) {
        return cmn_fail("the gradients do not lie in the memory that is shared");
    }
    unbind(f);
    if (cmn_pieces_open(&f->pieces, x->tensor, x->tensors, &x->block, x->tally.n, f->owners,
                        f->codec->whole_tensors)) {
        return -1;
    }
    f->bound = *x;
    f->sums = f->parts.part[0];
    f->plan = (struct cmn_codec_plan){
        .comm = f->inter,
        .group = "inter",
        .topology = f->topology,
        .options = f->options,
        .piece = f->pieces.piece,
        .pieces = f->pieces.pieces,
        .owner = f->topology->intra_rank,
        .block = f->sums,
    };
    return f->owner ? f->codec->open(&f->coder, &f->plan) : 0;
}

int cmn_flow_begin(struct cmn_flow *f, const struct cmn_exchange *x, size_t upto)
{
    struct cmn_bucket *b;

    if (bind(f, x) || !(b = cmn_bucket_next(&f->bucket, &f->room, f->begun, &f->pieces, upto))) {
        return -1;
    }
    if (b->to == b->from) {
        return 0;
    }
    cmn_watch_bucket(f->begun);
    f->begun++;
    b->began = cmn_timeline_on ? cmn_clock() : 0;
    if (f->filled) {
        b->filled = cmn_meeting_arrive(cmn_window_meeting(f->filled));
        if (!f->owner) {
            b->summed = cmn_meeting_arrive(cmn_window_meeting(f->summed));
            f->started++;
            f->ended++;
        }
    }
    return cmn_flow_poll(f);
}

/* All of the node have filled it: what this rank owns of it goes to the codec. */
static int start(struct cmn_flow *f, struct cmn_bucket *b)
{
    int ranks = f->topology->intra_size;
    int i = b == f->bucket ? 0 : (b - 1)->piece;

    for (; i < b->piece; i++) {
        const struct cmn_piece *p = &f->pieces.piece[i];
        double began = cmn_timeline_on ? cmn_clock() : 0;
        if (p->owner != f->topology->intra_rank) {
            continue;
        }
        if (ranks > 1) {
            cmn_parts_find(&f->parts, f->bound.block.data, f->bound.block.n + f->bound.tally.n);
            cmn_sum(f->sums + p->at, cmn_parts_at(&f->parts, p->at), ranks, 0, p->n);
        }
        if (f->codec->begin(f->coder, i)) {
            return -1;
        }
        f->pieces_begun++;
        if (cmn_timeline_on) {
            cmn_timeline_span(CMN_SPAN_ENCODE, i, began, cmn_clock());
        }
    }
    b->until = f->pieces_begun;
    f->started++;
    return 0;
}

/* One try; *done becomes whether the codec has nothing under way. */
static int move(struct cmn_flow *f, int *done)
{
    long over = 0;

    while (f->started < f->begun &&
           (!f->filled ||
            cmn_meeting_complete(cmn_window_meeting(f->filled), f->bucket[f->started].filled))) {
        if (start(f, &f->bucket[f->started])) {
            return -1;
        }
    }
    if (f->owner && f->ended < f->started && (over = f->codec->progress(f->coder, 0)) < 0) {
        return -1;
    }
    while (f->owner && f->ended < f->started && over >= f->bucket[f->ended].until) {
        struct cmn_bucket *b = &f->bucket[f->ended];
        if (f->summed) {
            b->summed = cmn_meeting_arrive(cmn_window_meeting(f->summed));
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
static int nudge(struct cmn_flow *f)
{
    int flag;

    return f->inter == MPI_COMM_NULL
               ? 0
               : cmn_mpi_check(MPI_Iprobe(MPI_ANY_SOURCE, 0, f->inter, &flag, MPI_STATUS_IGNORE),
                               "MPI_Iprobe");
}

int cmn_flow_poll(struct cmn_flow *f)
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
    struct cmn_flow *f = self;
    int done;

    return f->ended < f->begun ? move(f, &done) : nudge(f);
}

/* Waits until this rank has ended its part of the bucket. All before it have ended. Meanwhile later buckets move on, too: the
 * node's other ranks fill them without waiting for this one. */
static int end_own(struct cmn_flow *f, int bucket)
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
            if (cmn_meeting_await(cmn_window_meeting(f->filled), f->bucket[f->started].filled)) {
                return -1;
            }
        } else if (f->codec->progress(f->coder, f->bucket[bucket].until) < 0) {
            return -1;
        }
    }
    return 0;
}

int cmn_flow_next(struct cmn_flow *f, const float **sums, size_t *from, size_t *to)
{
    double began = cmn_timeline_on ? cmn_clock() : 0;
    const struct cmn_bucket *b;

    if (f->taken == f->begun) {
        return 0;
    }
    b = &f->bucket[f->taken];
    if (end_own(f, f->taken) ||
        (f->summed && cmn_meeting_await(cmn_window_meeting(f->summed), b->summed))) {
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

int cmn_flow_end(struct cmn_flow *f)
{
    f->begun = f->started = f->ended = f->taken = 0;
    return f->filled ? cmn_window_meet(f->filled) : 0;
}

int cmn_flow_allreduce(struct cmn_flow *f, const struct cmn_exchange *x)
{
    const float *sums;
    size_t from, to;
    int is;

    if (cmn_flow_begin(f, x, x->block.n + x->tally.n)) {
        return -1;
    }
    while ((is = cmn_flow_next(f, &sums, &from, &to)) > 0) {
        if (sums != x->block.data) {
            memcpy(x->block.data + from, sums + from, (to - from) * sizeof *sums);
        }
    }
    return is < 0 ? -1 : cmn_flow_end(f);
}

int cmn_flow_state(struct cmn_flow *f, int i, struct cmn_state *state)
{
    return f->coder ? f->codec->state(f->coder, i, state) : 0;
}
