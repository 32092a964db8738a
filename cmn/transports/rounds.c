#include "transports/rounds.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "mpi/call.h"
#include "mpi/group.h"

/* Floats of a message (see pairwise.c). Segments: by halving the first round sends half of
 * HALVED chunks; by the ring each round sends one chunk. */
enum { CHUNK = 15 * 1024, HALVED = 16, SEGMENTS = 4, FIRST_TAG = 16 };

/* A segment of a job, under way. Segments are numbered since open; segment i uses
 * segment[i % SEGMENTS], and its messages have that one's tag. */
struct segment {
    const struct cmn_schedule *by;
    struct cmn_pairwise_job job; /* of this segment alone */
    int last;                    /* of its job */
    int round, rounds;           /* of both halves; round < rounds while it is under way */
    MPI_Request *request;        /* first those that receive */
    int requests, receives;
    size_t room_requests;
    /* What was received in this round and waits to be added or cast; with 16 bits also what is
     * sent. */
    float *received;
    size_t room;
    uint16_t *in, *out;
    size_t room_16;
};

struct entry {
    struct cmn_pairwise_job job;
    enum cmn_exchange_by by;
};

struct cmn_rounds {
    MPI_Comm comm;
    int rank, ranks;
    struct segment segment[SEGMENTS];
    long begun, ended; /* segments */
    size_t at;         /* floats of the job `started` that segments have */
    /* Jobs are numbered since open. A ring of `room`: from `completed` to `jobs`; the segments of
     * those before `started` have all begun. */
    struct entry *entry;
    long room, jobs, started, completed;
    unsigned long long sent; /* bytes */
};

struct cmn_rounds *cmn_rounds_open(MPI_Comm comm)
{
    struct cmn_rounds *r = cmn_calloc(1, sizeof *r);

    r->comm = comm;
    MPI_Comm_rank(comm, &r->rank);
    MPI_Comm_size(comm, &r->ranks);
    r->room = 16;
    r->entry = cmn_calloc((size_t)r->room, sizeof *r->entry);
    return r;
}

void cmn_rounds_close(struct cmn_rounds *r)
{
    for (int i = 0; r && i < SEGMENTS; i++) {
        free(r->segment[i].request);
        free(r->segment[i].received);
        free(r->segment[i].in);
        free(r->segment[i].out);
    }
    if (r) {
        free(r->entry);
    }
    free(r);
}

unsigned long long cmn_rounds_sent(const struct cmn_rounds *r)
{
    return r->sent;
}

/* ---- blocks and messages of a round ---- */

/* What a segment sends to `to` and gets from `from` in its round: so many blocks, the first of
 * which is this one. */
struct turn {
    int to, from, send, receive, blocks;
    int adds; /* reduce-scatter; else allgather */
};

static struct turn turn_of(const struct cmn_rounds *r, const struct segment *s)
{
    int half = s->rounds / 2, adds = s->round < half;
    struct cmn_round is = s->by->round(r->ranks, adds ? s->round : s->rounds - 1 - s->round);
    int up = (r->rank + is.distance) % r->ranks,
        down = (r->rank - is.distance + r->ranks) % r->ranks, far = (r->rank + is.first) % r->ranks,
        near = (r->rank + is.first - is.distance + r->ranks) % r->ranks;

    return adds ? (struct turn){up, down, far, near, is.blocks, 1}
                : (struct turn){down, up, near, far, is.blocks, 0};
}

/* Blocks from `first` on lie in one or two ranges of floats: part 0, and, past the last block,
 * part 1. */
static size_t range_of(const struct cmn_rounds *r, const struct segment *s, int first, int blocks,
                       int part, size_t *at)
{
    int from = part ? 0 : first, end = first + blocks - (part ? r->ranks : 0);
    size_t begin, count;

    end = end > r->ranks ? r->ranks : end;
    if (end <= from) {
        return 0;
    }
    cmn_slice(s->job.n, r->ranks, from, at, &count);
    cmn_slice(s->job.n, r->ranks, end - 1, &begin, &count);
    return begin + count - *at;
}

static void make_room(struct segment *s, size_t floats)
{
    size_t requests = 2 * (floats / CHUNK + 4);

    if (requests > s->room_requests) {
        s->request = cmn_realloc(s->request, requests, sizeof(MPI_Request));
        s->room_requests = requests;
    }
    if (floats > s->room) {
        free(s->received);
        s->received = cmn_malloc(floats, sizeof *s->received);
        s->room = floats;
    }
    if (s->job.dtype != CMN_FP32 && floats > s->room_16) {
        free(s->in);
        free(s->out);
        s->in = cmn_malloc(floats, sizeof *s->in);
        s->out = cmn_malloc(floats, sizeof *s->out);
        s->room_16 = floats;
    }
}

/* Begins messages for n floats at `data` (32 or 16 bits): to `peer`, or from it. */
static void begin_messages(struct cmn_rounds *r, struct segment *s, void *data, size_t n, int peer,
                           int sends)
{
    int is_32 = s->job.dtype == CMN_FP32, tag = FIRST_TAG + (int)(s - r->segment);
    size_t each = is_32 ? sizeof(float) : sizeof(uint16_t);
    MPI_Datatype type = is_32 ? MPI_FLOAT : MPI_UINT16_T;

    for (size_t at = 0; at < n; at += CHUNK) {
        int count = (int)(n - at < CHUNK ? n - at : CHUNK);
        char *chunk = (char *)data + at * each;
        MPI_Request *request = &s->request[s->requests++];
        if (sends) {
            MPI_CALL(MPI_Isend(chunk, count, type, peer, tag, r->comm, request));
            r->sent += (unsigned long long)count * each;
        } else {
            MPI_CALL(MPI_Irecv(chunk, count, type, peer, tag, r->comm, request));
        }
    }
}

/* The owner's own block is complete: as 16 bits hold it. */
static void round_own_block(const struct cmn_rounds *r, struct segment *s)
{
    size_t at, n;

    cmn_slice(s->job.n, r->ranks, r->rank, &at, &n);
    make_room(s, n);
    cmn_float16_feedback(s->job.dtype, s->out, s->received, s->job.data + at,
                         s->job.error ? s->job.error + at : NULL, n);
    memcpy(s->job.data + at, s->received, n * sizeof *s->received);
}

static void begin_round(struct cmn_rounds *r, struct segment *s)
{
    struct turn t = turn_of(r, s);
    struct cmn_pairwise_job *job = &s->job;
    int is_32 = job->dtype == CMN_FP32;
    size_t at[2] = {0, 0}, n[2], done = 0;

    s->requests = 0;
    for (int part = 0; part < 2; part++) {
        n[part] = range_of(r, s, t.receive, t.blocks, part, &at[part]);
    }
    for (int part = 0; part < 2; part++) {
        size_t from, leaves = range_of(r, s, t.send, t.blocks, part, &from);
        done += leaves;
    }
    make_room(s, n[0] + n[1] > done ? n[0] + n[1] : done);
    done = 0;
    for (int part = 0; part < 2; part++) {
        void *to = !is_32   ? (void *)(s->in + done)
                   : t.adds ? s->received + done
                            : job->data + at[part];
        begin_messages(r, s, to, n[part], t.from, 0);
        done += n[part];
    }
    s->receives = s->requests;
    done = 0;
    for (int part = 0; part < 2; part++) {
        size_t from = 0, leaves = range_of(r, s, t.send, t.blocks, part, &from);
        void *what = is_32 ? (void *)(job->data + from) : s->out + done;
        if (!is_32 && t.adds) {
            cmn_float16_feedback(job->dtype, s->out + done, s->received + done, job->data + from,
                                 job->error ? job->error + from : NULL, leaves);
        } else if (!is_32) {
            cmn_float16_encode(job->dtype, s->out + done, job->data + from, leaves);
        }
        begin_messages(r, s, what, leaves, t.to, 1);
        done += leaves;
    }
}

/* All messages of the round are there. */
static void end_round(struct cmn_rounds *r, struct segment *s)
{
    struct turn t = turn_of(r, s);
    int is_32 = s->job.dtype == CMN_FP32;
    size_t done = 0;

    for (int part = 0; part < 2; part++) {
        size_t at = 0, n = range_of(r, s, t.receive, t.blocks, part, &at);
        float *data = s->job.data + at, *received = s->received + done;
        if (!is_32 && n) {
            cmn_float16_decode(s->job.dtype, t.adds ? received : data, s->in + done, n);
        }
        if (t.adds && n) {
            cmn_reduce(data, (float *const[]){data, received}, 2, 0, n);
        }
        done += n;
    }
    if (++s->round == s->rounds / 2 && !is_32) {
        round_own_block(r, s);
    }
}

static int complete(struct segment *s)
{
    int all = 1;

    if (s->requests) {
        MPI_CALL(MPI_Testall(s->requests, s->request, &all, MPI_STATUSES_IGNORE));
    }
    s->requests = all ? 0 : s->requests;
    return all;
}

/* ---- segments and jobs ---- */

static struct entry *entry_of(const struct cmn_rounds *r, long i)
{
    return &r->entry[i % r->room];
}

static size_t segment_floats(const struct cmn_rounds *r, const struct entry *e)
{
    return (size_t)CHUNK * (size_t)(e->by == CMN_EXCHANGE_RING ? r->ranks : HALVED);
}

/* The next segment of the first job that has some left. */
static void begin_segment(struct cmn_rounds *r)
{
    const struct entry *e = entry_of(r, r->started);
    struct segment *s = &r->segment[r->begun++ % SEGMENTS];
    size_t most = segment_floats(r, e), left = e->job.n - r->at;

    s->by = cmn_schedule_of(e->by);
    s->job = e->job;
    s->job.data += r->at;
    s->job.error = e->job.error ? e->job.error + r->at : NULL;
    s->job.n = left < most ? left : most;
    s->last = left <= most;
    s->round = 0;
    s->rounds = s->job.n ? 2 * s->by->rounds(r->ranks) : 0;
    r->at = s->last ? 0 : r->at + most;
    r->started += s->last;
    if (s->rounds) {
        begin_round(r, s);
    }
}

/* Advances through the rounds whose messages have come. */
static void advance_segment(struct cmn_rounds *r, struct segment *s)
{
    while (s->round < s->rounds && complete(s)) {
        end_round(r, s);
        if (s->round < s->rounds) {
            begin_round(r, s);
        }
    }
}

long cmn_rounds_progress(struct cmn_rounds *r)
{
    for (long i = r->ended; i < r->begun; i++) {
        advance_segment(r, &r->segment[i % SEGMENTS]);
    }
    for (;;) {
        while (r->ended < r->begun &&
               r->segment[r->ended % SEGMENTS].round == r->segment[r->ended % SEGMENTS].rounds) {
            r->completed += r->segment[r->ended++ % SEGMENTS].last;
        }
        if (r->started == r->jobs || r->begun - r->ended == SEGMENTS) {
            return r->completed;
        }
        begin_segment(r);
    }
}

void cmn_rounds_begin(struct cmn_rounds *r, const struct cmn_pairwise_job *job,
                      enum cmn_exchange_by by)
{
    if (r->jobs - r->completed == r->room) {
        struct entry *more = cmn_calloc(2 * (size_t)r->room, sizeof *more);
        for (long i = r->completed; i < r->jobs; i++) {
            more[i % (2 * r->room)] = *entry_of(r, i);
        }
        free(r->entry);
        r->entry = more;
        r->room *= 2;
    }
    *entry_of(r, r->jobs++) = (struct entry){*job, by};
}

int cmn_rounds_missing(const struct cmn_rounds *r)
{
    const struct segment *s = &r->segment[r->ended % SEGMENTS];
    int there = 0;

    for (int i = 0; r->ended < r->begun && i < s->requests && i < s->receives; i++) {
        if (s->request[i] != MPI_REQUEST_NULL &&
            !MPI_Request_get_status(s->request[i], &there, MPI_STATUS_IGNORE) && !there) {
            return turn_of(r, s).from;
        }
    }
    return -1;
}
