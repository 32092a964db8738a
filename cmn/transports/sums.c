/* The one loop that executes a schedule (schedule.h).
 *
 * A job is one sum. It is cut into segments, several of which are in flight: while one is added,
 * others travel, so a link is busy in both directions. A segment has one block for each rank, the
 * owner of the block. It goes through the rounds of its schedule (reduce-scatter) and then through
 * the same rounds backwards (allgather).
 *
 * A stage is what begins together: one round, or, if the rounds are independent (pairwise), all
 * rounds of a half. When all messages of a stage have arrived, what they brought is added in the
 * order of the ranks, and the next stage begins. Along a tree (cmn_exact) the exchange is pairwise,
 * and in the first half the ranks send each of their addends.
 *
 * Bytes sent per rank of M, n floats: (M-1)/M * 4n in each half, with 16 bits (M-1)/M * 2n; along a
 * tree the first half sends that for each of the rank's addends. Buffers are kept from job to
 * job. */
#include "transports/sums.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/float16.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "base/status.h"
#include "mpi/call.h"
#include "mpi/group.h"

/* MESSAGE is the longest message in floats. Its 60 KiB are below Open MPI's eager limit over TCP:
 * such messages are sent without an answer from the receiver, while both ranks compute. Pairwise
 * sends each block as a message of its own. With many ranks its blocks are shorter, down to
 * BLOCK_LEAST floats, so that a segment receives no more than about RECEIVED_MOST floats. */
enum { MESSAGE = 15 * 1024, BLOCK_LEAST = 4 * 1024, RECEIVED_MOST = 512 * 1024, ALIGN = 16 };

/* Segments in flight. Pairwise has about MESSAGES messages in flight in total. A segment of halving
 * has the length of HALVED messages, half of which its first round sends. A segment of the ring has
 * one message for each rank, and each round sends one. */
enum { SEGMENTS_MOST = 64, SEGMENTS_LEAST = 4, MESSAGES = 256, HALVED = 16 };

enum { FIRST_TAG = 1 };

struct job {
    struct cmn_sum is;
    const struct cmn_schedule *by;
    size_t segments;
};

/* Segments are numbered from open on. Segment i uses segment[i % SEGMENTS_MOST], whose index
 * determines the tag of its messages. */
struct segment {
    struct job job;
    size_t number; /* of the segment within the job */
    int stage, end;
    MPI_Request *request; /* receives first, then sends */
    int *sender;          /* rank from which a request receives, or to which it sends */
    int requests, receives, room_requests;
    /* Floats received in this stage, to be added; with 16 bits also the floats that are encoded to
     * send. The 16-bit buffers hold what is received and sent. */
    float *received;
    uint16_t *in, *out;
    size_t room, room_16;
};

struct cmn_sums {
    MPI_Comm comm;
    int rank, ranks;
    long timeout;                /* seconds; 0: no limit */
    enum cmn_exchange_by by;     /* as in CMN_DEBUG_EXCHANGE */
    size_t block;                /* floats of a block of pairwise */
    int window;                  /* segments in flight with pairwise */
    float **addend;              /* for one addition: each rank's floats */
    struct cmn_subtree *subtree; /* for one addition along a tree: the addends of all ranks */
    int subtrees;                /* room in `subtree` */
    struct segment segment[SEGMENTS_MOST];
    long begun, over; /* segments, since open */
    size_t next;      /* next segment to begin, of job number `started` */
    /* Jobs are numbered from open on. `job` is a ring of `room` entries with the jobs from `ended`
     * up to `jobs`. All segments of the jobs before `started` have begun. */
    struct job *job;
    long room, jobs, started, ended;
    unsigned long long sent; /* bytes */
};

static int clamped(int n, int least, int most)
{
    return n < least ? least : n > most ? most : n;
}

struct cmn_sums *cmn_sums_open(MPI_Comm comm, const struct cmn_options *o, int waits)
{
    struct cmn_sums *s = cmn_calloc(1, sizeof *s);
    int others;

    s->comm = comm;
    MPI_Comm_rank(comm, &s->rank);
    MPI_Comm_size(comm, &s->ranks);
    s->timeout = waits ? 0 : o->timeout;
    s->by = (enum cmn_exchange_by)o->exchange;
    others = s->ranks > 1 ? s->ranks - 1 : 1;
    s->block = (size_t)clamped(RECEIVED_MOST / others, BLOCK_LEAST, MESSAGE) / ALIGN * ALIGN;
    s->window = clamped(MESSAGES / others, SEGMENTS_LEAST, SEGMENTS_MOST);
    s->room = 16;
    s->job = cmn_calloc((size_t)s->room, sizeof *s->job);
    s->addend = cmn_calloc((size_t)s->ranks + 1, sizeof *s->addend);
    return s;
}

void cmn_sums_close(struct cmn_sums *s)
{
    for (int i = 0; s && i < SEGMENTS_MOST; i++) {
        free(s->segment[i].request);
        free(s->segment[i].sender);
        free(s->segment[i].received);
        free(s->segment[i].in);
        free(s->segment[i].out);
    }
    if (s) {
        free(s->job);
        free(s->addend);
        free(s->subtree);
    }
    free(s);
}

unsigned long long cmn_sums_sent(const struct cmn_sums *s)
{
    return s->sent;
}

/* ---- segments and blocks ---- */

/* Returns the floats of a segment of halving or the ring; the last one of a job is shorter. */
static size_t segment_floats(const struct cmn_sums *s, const struct job *job)
{
    return (size_t)MESSAGE * (size_t)(job->by->to_next ? s->ranks : HALVED);
}

/* Returns the number of segments of a job. Halving and the ring cut a job into consecutive segments
 * and each segment into blocks. Pairwise cuts a job into the ranks' slices, and a segment takes one
 * block of each slice; so rank i owns slice i of the job. */
static size_t segments_of(const struct cmn_sums *s, const struct job *job)
{
    size_t at, count, n = job->is.n, most = segment_floats(s, job);

    if (job->by->at_once) {
        n = 0;
        most = s->block;
        for (int i = 0; i < s->ranks; i++) {
            cmn_slice(job->is.n, s->ranks, i, &at, &count);
            n = count > n ? count : n;
        }
    }
    return n ? (n + most - 1) / most : 1;
}

/* Returns the number of floats of block b; *at is their offset in the job. */
static size_t block_of(const struct cmn_sums *s, const struct segment *g, int b, size_t *at)
{
    size_t n = g->job.is.n, from, count;

    if (g->job.by->at_once) {
        from = g->number * s->block;
        cmn_slice(n, s->ranks, b, at, &count);
        count = count > from ? count - from : 0;
        count = count < s->block ? count : s->block;
    } else {
        size_t most = segment_floats(s, &g->job);
        from = g->number * most;
        cmn_slice(n - from < most ? n - from : most, s->ranks, b, at, &count);
    }
    *at += from;
    return count;
}

/* Blocks from `first` on lie in one or two ranges of floats: part 0, and, past the last block, part
 * 1. Returns the number of floats of a part; *at is their offset in the job. */
static size_t range_of(const struct cmn_sums *s, const struct segment *g, int first, int blocks,
                       int part, size_t *at)
{
    int from = part ? 0 : first, end = first + blocks - (part ? s->ranks : 0);
    size_t begin, count;

    end = end > s->ranks ? s->ranks : end;
    if (end <= from) {
        return 0;
    }
    count = block_of(s, g, end - 1, &begin);
    block_of(s, g, from, at);
    return begin + count - *at;
}

/* ---- stages ---- */

/* One round of this rank: it sends `blocks` blocks to rank `to`, from block `send` on, and receives
 * as many from rank `from`, from block `receive` on. */
struct turn {
    int to, from, send, receive, blocks;
};

/* rounds_of() returns the rounds of a half, half_of() the stages of a half. */
static int rounds_of(const struct cmn_sums *s, const struct segment *g)
{
    return g->job.by->rounds(s->ranks);
}

static int half_of(const struct cmn_sums *s, const struct segment *g)
{
    return g->job.by->at_once ? 1 : rounds_of(s, g);
}

static int adds(const struct cmn_sums *s, const struct segment *g)
{
    return g->stage < half_of(s, g);
}

static int turns_of(const struct cmn_sums *s, const struct segment *g)
{
    return g->job.by->at_once ? rounds_of(s, g) : 1;
}

static struct turn turn_of(const struct cmn_sums *s, const struct segment *g, int i)
{
    int half = half_of(s, g), scatters = adds(s, g),
        stage = scatters ? g->stage : 2 * half - 1 - g->stage;
    struct cmn_round is = g->job.by->round(s->ranks, g->job.by->at_once ? i : stage);
    int up = (s->rank + is.distance) % s->ranks,
        down = (s->rank - is.distance + s->ranks) % s->ranks, far = (s->rank + is.first) % s->ranks,
        near = (s->rank + is.first - is.distance + s->ranks) % s->ranks;

    return scatters ? (struct turn){up, down, far, near, is.blocks}
                    : (struct turn){down, up, near, far, is.blocks};
}

/* Returns how many addends `rank` sends in this stage. */
static int addends_of(const struct cmn_sums *s, const struct segment *g, int rank)
{
    const struct cmn_sum_tree *tree = g->job.is.tree;
    int addends = 0;

    if (!tree || !adds(s, g)) {
        return 1;
    }
    for (int i = 0; i < tree->nodes_addends; i++) {
        addends += tree->of_nodes[i].holder == rank;
    }
    return addends;
}

static void make_room(struct segment *g, size_t floats, int requests)
{
    if (requests > g->room_requests) {
        g->request = cmn_realloc(g->request, (size_t)requests, sizeof *g->request);
        g->sender = cmn_realloc(g->sender, (size_t)requests, sizeof *g->sender);
        g->room_requests = requests;
    }
    if (floats > g->room) {
        free(g->received);
        g->received = cmn_malloc(floats, sizeof *g->received);
        g->room = floats;
    }
    if (g->job.is.dtype != CMN_FP32 && floats > g->room_16) {
        free(g->in);
        free(g->out);
        g->in = cmn_malloc(floats, sizeof *g->in);
        g->out = cmn_malloc(floats, sizeof *g->out);
        g->room_16 = floats;
    }
}

/* Makes room for everything that a stage sends and receives. */
static void make_room_for_stage(const struct cmn_sums *s, struct segment *g)
{
    size_t in = 0, out = 0, at;
    int requests = 0;

    for (int i = 0; i < turns_of(s, g); i++) {
        struct turn t = turn_of(s, g, i);
        for (int part = 0; part < 2; part++) {
            size_t arrives = range_of(s, g, t.receive, t.blocks, part, &at),
                   leaves = range_of(s, g, t.send, t.blocks, part, &at);
            int from = addends_of(s, g, t.from), own = addends_of(s, g, s->rank);
            in += arrives * (size_t)from;
            out += leaves;
            requests += (int)(arrives / MESSAGE + 1) * from + (int)(leaves / MESSAGE + 1) * own;
        }
    }
    make_room(g, in > out ? in : out, requests);
}

/* Begins to send n values at `data` (of 32 or 16 bits) to `peer`, or to receive them from it. */
static void begin_messages(struct cmn_sums *s, struct segment *g, void *data, size_t n, int peer,
                           int sends)
{
    int is_32 = g->job.is.dtype == CMN_FP32, tag = FIRST_TAG + (int)(g - s->segment);
    size_t each = is_32 ? sizeof(float) : sizeof(uint16_t);
    MPI_Datatype type = is_32 ? MPI_FLOAT : MPI_UINT16_T;

    for (size_t at = 0; at < n; at += MESSAGE) {
        int count = (int)(n - at < MESSAGE ? n - at : MESSAGE);
        char *message = (char *)data + at * each;
        MPI_Request *request = &g->request[g->requests];
        g->sender[g->requests++] = peer;
        if (sends) {
            MPI_CALL(MPI_Isend(message, count, type, peer, tag, s->comm, request));
            s->sent += (unsigned long long)count * each;
        } else {
            MPI_CALL(MPI_Irecv(message, count, type, peer, tag, s->comm, request));
        }
    }
}

static void receive(struct cmn_sums *s, struct segment *g, const struct turn *t, size_t *done)
{
    const struct cmn_sum *sum = &g->job.is;

    for (int part = 0; part < 2; part++) {
        size_t at = 0, n = range_of(s, g, t->receive, t->blocks, part, &at);
        for (int i = addends_of(s, g, t->from); i > 0; i--, *done += n) {
            void *to = sum->dtype != CMN_FP32 ? (void *)(g->in + *done)
                       : adds(s, g)           ? g->received + *done
                                              : sum->data + at;
            begin_messages(s, g, to, n, t->from, 0);
        }
    }
}

/* Sends each of this rank's addends. */
static void send_addends(struct cmn_sums *s, struct segment *g, const struct turn *t)
{
    const struct cmn_sum *sum = &g->job.is;

    for (int part = 0; part < 2; part++) {
        size_t at = 0, n = range_of(s, g, t->send, t->blocks, part, &at);
        for (int i = 0; i < sum->tree->nodes_addends; i++) {
            const struct cmn_subtree *addend = &sum->tree->of_nodes[i];
            if (addend->holder == s->rank) {
                begin_messages(s, g, addend->at + sum->at + at, n, t->to, 1);
            }
        }
    }
}

/* The cast in the allgather loses no bit: the values are sums that were rounded to 16 bits
 * before. */
static void send(struct cmn_sums *s, struct segment *g, const struct turn *t, size_t *done)
{
    const struct cmn_sum *sum = &g->job.is;

    for (int part = 0; part < 2; part++) {
        size_t at = 0, n = range_of(s, g, t->send, t->blocks, part, &at);
        void *what = sum->data + at;
        if (sum->dtype != CMN_FP32) {
            what = g->out + *done;
            if (adds(s, g)) {
                cmn_float16_feedback(sum->dtype, what, g->received + *done, sum->data + at,
                                     sum->error ? sum->error + at : NULL, n);
            } else {
                cmn_float16_encode(sum->dtype, what, sum->data + at, n);
            }
        }
        begin_messages(s, g, what, n, t->to, 1);
        *done += n;
    }
}

static void begin_stage(struct cmn_sums *s, struct segment *g)
{
    size_t done = 0;

    g->requests = 0;
    make_room_for_stage(s, g);
    for (int i = 0; i < turns_of(s, g); i++) {
        struct turn t = turn_of(s, g, i);
        receive(s, g, &t, &done);
    }
    g->receives = g->requests;
    done = 0;
    for (int i = 0; i < turns_of(s, g); i++) {
        struct turn t = turn_of(s, g, i);
        if (g->job.is.tree && adds(s, g)) {
            send_addends(s, g, &t);
        } else {
            send(s, g, &t, &done);
        }
    }
}

/* This rank's own block is complete: rounds it to what 16 bits hold, so that all ranks get the same
 * bits. */
static void round_own_block(const struct cmn_sums *s, struct segment *g)
{
    const struct cmn_sum *sum = &g->job.is;
    size_t at, n = block_of(s, g, s->rank, &at);

    make_room(g, n, 0);
    cmn_float16_feedback(sum->dtype, g->out, g->received, sum->data + at,
                         sum->error ? sum->error + at : NULL, n);
    memcpy(sum->data + at, g->received, n * sizeof *g->received);
}

/* Adds up this rank's block along the tree. The messages of a rank bring its addends in their
 * order. */
static void add_along_tree(struct cmn_sums *s, struct segment *g)
{
    const struct cmn_sum *sum = &g->job.is;
    const struct cmn_sum_tree *tree = sum->tree;
    size_t done = 0, at, n = block_of(s, g, s->rank, &at);

    if (tree->nodes_addends > s->subtrees) {
        s->subtrees = tree->nodes_addends;
        s->subtree = cmn_realloc(s->subtree, (size_t)s->subtrees, sizeof *s->subtree);
    }
    memcpy(s->subtree, tree->of_nodes, (size_t)tree->nodes_addends * sizeof *s->subtree);
    /* The last turn takes this rank's own addends. */
    for (int turn = 0; turn <= turns_of(s, g) && n; turn++) {
        int from = turn < turns_of(s, g) ? turn_of(s, g, turn).from : s->rank;
        for (int i = 0; i < tree->nodes_addends; i++) {
            struct cmn_subtree *addend = &s->subtree[i];
            if (addend->holder == from && from == s->rank) {
                addend->at += sum->at + at;
            } else if (addend->holder == from) {
                addend->at = g->received + done;
                done += n;
            }
        }
    }
    cmn_sum_tree_add_nodes(tree, s->subtree, n, sum->data + at);
}

/* Decodes what was received, and in the first half adds it in the order of the ranks. If a stage
 * has several turns (pairwise), each brings an addend of the same block. */
static void take_received(struct cmn_sums *s, struct segment *g)
{
    const struct cmn_sum *sum = &g->job.is;
    int turns = turns_of(s, g), scatters = adds(s, g), all = turns > 1;
    size_t done = 0;

    for (int part = 0; part < 2; part++) {
        size_t at = 0, n = 0;
        for (int i = 0; i < turns; i++) {
            struct turn t = turn_of(s, g, i);
            n = range_of(s, g, t.receive, t.blocks, part, &at);
            if (sum->dtype != CMN_FP32 && n) {
                cmn_float16_decode(sum->dtype, scatters ? g->received + done : sum->data + at,
                                   g->in + done, n);
            }
            s->addend[all ? t.from : 1] = g->received + done;
            done += n;
        }
        s->addend[all ? s->rank : 0] = sum->data + at;
        if (scatters && n) {
            cmn_reduce(sum->data + at, s->addend, all ? turns + 1 : 2, 0, n);
        }
    }
}

/* Ends a stage, of which all messages have arrived. */
static void end_stage(struct cmn_sums *s, struct segment *g)
{
    if (g->job.is.tree && adds(s, g)) {
        add_along_tree(s, g);
    } else {
        take_received(s, g);
    }
    if (++g->stage == half_of(s, g) && g->job.is.dtype != CMN_FP32) {
        round_own_block(s, g);
    }
}

static int complete(struct segment *g)
{
    int all = 1;

    if (g->requests) {
        MPI_CALL(MPI_Testall(g->requests, g->request, &all, MPI_STATUSES_IGNORE));
    }
    g->requests = all ? 0 : g->requests;
    return all;
}

/* ---- jobs ---- */

static struct job *job_of(const struct cmn_sums *s, long i)
{
    return &s->job[i % s->room];
}

static struct segment *segment_of(struct cmn_sums *s, long i)
{
    return &s->segment[i % SEGMENTS_MOST];
}

static void begin_segment(struct cmn_sums *s)
{
    const struct job *job = job_of(s, s->started);
    struct segment *g = segment_of(s, s->begun++);

    g->job = *job;
    g->number = s->next++;
    g->stage = 0;
    g->end = 2 * half_of(s, g);
    if (s->next == job->segments) {
        s->next = 0;
        s->started++;
    }
    if (s->ranks > 1 && job->is.n) {
        begin_stage(s, g);
        return;
    }
    if (job->is.tree) {
        add_along_tree(s, g); /* there is one rank, with several addends */
    }
    g->stage = g->end;
}

/* Returns whether segment i is worth testing: it is the oldest one, or the one before it is at a
 * later stage. The messages of a segment are mostly behind those of earlier ones, so this saves
 * calls of MPI. */
static int is_due(struct cmn_sums *s, long i)
{
    return i == s->over || segment_of(s, i)->stage < segment_of(s, i - 1)->stage;
}

/* Advances without waiting. Returns how many jobs have ended since open. */
static long advance(struct cmn_sums *s)
{
    for (;;) {
        for (long i = s->over; i < s->begun; i++) {
            struct segment *g = segment_of(s, i);
            while (g->stage < g->end && is_due(s, i) && complete(g)) {
                end_stage(s, g);
                if (g->stage < g->end) {
                    begin_stage(s, g);
                }
            }
        }
        while (s->over < s->begun && segment_of(s, s->over)->stage == segment_of(s, s->over)->end) {
            const struct segment *g = segment_of(s, s->over++);
            s->ended += g->number + 1 == g->job.segments;
        }
        if (s->started == s->jobs ||
            s->begun - s->over >=
                (job_of(s, s->started)->by->at_once ? s->window : SEGMENTS_LEAST)) {
            return s->ended;
        }
        begin_segment(s);
    }
}

static _Noreturn void nothing_from(const struct cmn_sums *s, int from, long seconds)
{
    cmn_fatal_lost("exchange: nothing came from rank %d for %ld s (cmn_timeout)",
                   cmn_world_rank(s->comm, from), seconds);
}

void cmn_sums_stalled(const struct cmn_sums *s, long seconds)
{
    const struct segment *g = &s->segment[s->over % SEGMENTS_MOST];
    int there = 0;

    for (int i = 0; s->over < s->begun && i < g->requests && i < g->receives; i++) {
        if (g->request[i] != MPI_REQUEST_NULL &&
            !MPI_Request_get_status(g->request[i], &there, MPI_STATUS_IGNORE) && !there) {
            nothing_from(s, g->sender[i], seconds);
        }
    }
    cmn_fatal_lost("exchange: no message was sent for %ld s (cmn_timeout)", seconds);
}

long cmn_sums_progress(struct cmn_sums *s, long until)
{
    unsigned long long before = 0;
    double since = 0;

    for (;;) {
        long ended = advance(s);
        unsigned long long now = s->sent + (unsigned long long)s->over + 1;
        if (ended >= until) {
            return ended;
        }
        if (now != before) {
            before = now;
            since = s->timeout ? cmn_clock() : 0;
        } else if (s->timeout && cmn_status_timed_out(cmn_clock() - since, s->timeout)) {
            cmn_sums_stalled(s, s->timeout);
        }
        sched_yield();
    }
}

void cmn_sums_begin(struct cmn_sums *s, const struct cmn_sum *sum)
{
    size_t each = sum->dtype == CMN_FP32 ? sizeof(float) : sizeof(uint16_t);
    enum cmn_exchange_by by = sum->tree ? CMN_EXCHANGE_PAIRWISE
                              : s->by   ? s->by
                                        : cmn_schedule_for(s->ranks, (double)sum->n * (double)each);
    struct job *job;

    if (s->jobs - s->ended == s->room) {
        struct job *more = cmn_calloc(2 * (size_t)s->room, sizeof *more);
        for (long i = s->ended; i < s->jobs; i++) {
            more[i % (2 * s->room)] = *job_of(s, i);
        }
        free(s->job);
        s->job = more;
        s->room *= 2;
    }
    job = job_of(s, s->jobs++);
    *job = (struct job){*sum, cmn_schedule_of(by), 0};
    job->segments = segments_of(s, job);
}

void cmn_sums_run(struct cmn_sums *s, float *data, size_t n)
{
    const struct cmn_sum sum = {.data = data, .n = n, .dtype = CMN_FP32};

    cmn_sums_begin(s, &sum);
    cmn_sums_progress(s, s->jobs);
}
