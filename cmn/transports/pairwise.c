#include "transports/pairwise.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/float16.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "base/status.h"
#include "mpi/call.h"
#include "mpi/group.h"

/* Floats of a chunk, the length of one message. 60 KiB are below Open MPI's eager limit over TCP:
 * such messages travel without an answer of the receiver while both ranks compute. Among many
 * ranks chunks are shorter, so that the receive buffers of a pipeline step (STEP_MOST floats)
 * stay small. */
enum { CHUNK = 15 * 1024, CHUNK_LEAST = 4 * 1024, STEP_MOST = 512 * 1024, ALIGN = 16 };

/* Pipeline steps in flight: about MESSAGES messages in all. */
enum { STEPS_MOST = 48, STEPS_LEAST = 2, MESSAGES = 192 };

enum { SCATTER_TAG = 1, GATHER_TAG = 2 };

/* Requests in flight of one half (scatter or gather) of a pipeline step. */
struct half {
    MPI_Request *request;
    int *sender; /* rank whose message a request receives; -1: the request sends */
    int requests;
};

/* A pipeline step: one chunk of each owner's slice on its way to the owner and back. Steps are
 * numbered since open; step i uses step[i % steps]. */
struct step {
    struct half scatter, gather;
    float *received; /* a chunk of every other rank */
    /* For 16 bits, allocated when first needed: chunks sent to and received from every other
     * rank; this rank's sum and the sums received from the others. */
    uint16_t *to_owners, *from_ranks, *own_sum, *sums;
};

struct entry {
    struct cmn_pairwise_job is;
    long first, steps; /* numbers of its pipeline steps since open */
};

struct cmn_pairwise {
    MPI_Comm comm;
    int rank, ranks;
    size_t chunk; /* floats */
    long timeout; /* seconds; 0: no limit */
    struct step step[STEPS_MOST];
    int steps;      /* of step[], in use */
    float **addend; /* of each rank, for one addition */

    /* Jobs are numbered since open. A ring of `room`: those from `ended` to `begun` are in
     * flight. */
    struct entry *job;
    long room, ended, begun;
    long known;                       /* pipeline steps of all jobs begun */
    long scattered, summed, gathered; /* pipeline steps that have come so far */
    unsigned long long sent;          /* bytes */
};

static struct entry *entry_of(const struct cmn_pairwise *p, long i)
{
    return &p->job[i % p->room];
}

/* ---- memory ---- */

static void open_half(struct half *h, size_t others)
{
    h->request = cmn_calloc(2 * others, sizeof *h->request);
    h->sender = cmn_calloc(2 * others, sizeof *h->sender);
}

struct cmn_pairwise *cmn_pairwise_open(MPI_Comm comm, long timeout)
{
    struct cmn_pairwise *p = cmn_calloc(1, sizeof *p);
    size_t others;

    p->comm = comm;
    p->timeout = timeout;
    MPI_Comm_rank(comm, &p->rank);
    MPI_Comm_size(comm, &p->ranks);
    others = p->ranks > 1 ? (size_t)p->ranks - 1 : 1;
    p->steps = MESSAGES / (int)others;
    p->steps = p->steps > STEPS_MOST ? STEPS_MOST : p->steps < STEPS_LEAST ? STEPS_LEAST : p->steps;
    p->chunk = STEP_MOST / others;
    p->chunk = p->chunk > CHUNK ? CHUNK : p->chunk < CHUNK_LEAST ? CHUNK_LEAST : p->chunk;
    p->chunk -= p->chunk % ALIGN;
    p->room = 16;
    p->job = cmn_calloc((size_t)p->room, sizeof *p->job);
    p->addend = cmn_calloc((size_t)p->ranks, sizeof *p->addend);
    for (int i = 0; i < p->steps; i++) {
        open_half(&p->step[i].scatter, others);
        open_half(&p->step[i].gather, others);
        p->step[i].received = cmn_malloc(others * p->chunk, sizeof *p->step[i].received);
    }
    return p;
}

static void open_16_bits(struct cmn_pairwise *p)
{
    size_t others = (size_t)p->ranks - 1;

    for (int i = 0; i < p->steps && !p->step[i].to_owners; i++) {
        struct step *s = &p->step[i];
        s->to_owners = cmn_malloc(others * p->chunk, sizeof *s->to_owners);
        s->from_ranks = cmn_malloc(others * p->chunk, sizeof *s->from_ranks);
        s->own_sum = cmn_malloc(p->chunk, sizeof *s->own_sum);
        s->sums = cmn_malloc(others * p->chunk, sizeof *s->sums);
    }
}

static void close_half(struct half *h)
{
    free(h->request);
    free(h->sender);
}

void cmn_pairwise_close(struct cmn_pairwise *p)
{
    for (int i = 0; p && i < p->steps; i++) {
        struct step *s = &p->step[i];
        close_half(&s->scatter);
        close_half(&s->gather);
        free(s->received);
        free(s->to_owners);
        free(s->from_ranks);
        free(s->own_sum);
        free(s->sums);
    }
    if (p) {
        free(p->job);
        free(p->addend);
    }
    free(p);
}

/* ---- chunks and messages ---- */

/* The job of a pipeline step in flight; *number becomes the step's number within the job. */
static const struct cmn_pairwise_job *job_of(const struct cmn_pairwise *p, long step,
                                             size_t *number)
{
    long i = p->ended;

    while (step >= entry_of(p, i)->first + entry_of(p, i)->steps) {
        i++;
    }
    *number = (size_t)(step - entry_of(p, i)->first);
    return &entry_of(p, i)->is;
}

/* Floats of chunk `number` of a slice, and where they begin within the job; 0 for a rank that
 * owns no slice. */
static size_t chunk_of(const struct cmn_pairwise *p, const struct cmn_pairwise_job *job, int slice,
                       size_t number, size_t *at)
{
    size_t count, begin = number * p->chunk;

    if (slice >= job->slices) {
        return 0;
    }
    cmn_slice(job->n, job->slices, slice, at, &count);
    if (begin >= count) {
        return 0;
    }
    *at += begin;
    return count - begin < p->chunk ? count - begin : p->chunk;
}

/* Pipeline steps of a job: the chunks of its longest slice. */
static long steps_of(const struct cmn_pairwise *p, const struct cmn_pairwise_job *job)
{
    size_t at, count, most = 0;

    for (int i = 0; i < job->slices && p->ranks > 1; i++) {
        cmn_slice(job->n, job->slices, i, &at, &count);
        most = count > most ? count : most;
    }
    return (long)((most + p->chunk - 1) / p->chunk);
}

/* Where another rank's chunk lies in memory that holds one of each other rank. */
static size_t place(const struct cmn_pairwise *p, int other)
{
    return (size_t)(other < p->rank ? other : other - 1) * p->chunk;
}

static void send(struct cmn_pairwise *p, struct half *h, enum cmn_dtype dtype, const void *data,
                 size_t count, int to, int tag)
{
    int is_32 = dtype == CMN_FP32;

    h->sender[h->requests] = -1;
    p->sent += count * (is_32 ? sizeof(float) : sizeof(uint16_t));
    MPI_CALL(MPI_Isend(data, (int)count, is_32 ? MPI_FLOAT : MPI_UINT16_T, to, tag, p->comm,
                       &h->request[h->requests++]));
}

static void receive(struct cmn_pairwise *p, struct half *h, enum cmn_dtype dtype, void *data,
                    size_t count, int from, int tag)
{
    h->sender[h->requests] = from;
    MPI_CALL(MPI_Irecv(data, (int)count, dtype == CMN_FP32 ? MPI_FLOAT : MPI_UINT16_T, from, tag,
                       p->comm, &h->request[h->requests++]));
}

static int complete(struct half *h)
{
    int all = 1;

    if (h->requests) {
        MPI_CALL(MPI_Testall(h->requests, h->request, &all, MPI_STATUSES_IGNORE));
    }
    h->requests = all ? 0 : h->requests;
    return all;
}

/* ---- a pipeline step, in this order ---- */

/* Sends this rank's chunks to their owners. */
static void scatter(struct cmn_pairwise *p, long step)
{
    size_t number, at = 0, own = 0;
    const struct cmn_pairwise_job *job = job_of(p, step, &number);
    struct step *s = &p->step[step % p->steps];
    size_t mine = chunk_of(p, job, p->rank, number, &own);
    int is_32 = job->dtype == CMN_FP32;

    if (!(job->what & CMN_REDUCE_SCATTER)) {
        return;
    }
    /* Each rank begins with its neighbour, so that not all send to rank 0 first. */
    for (int i = 1; i < p->ranks; i++) {
        int to = (p->rank + i) % p->ranks, from = (p->rank - i + p->ranks) % p->ranks;
        size_t count = chunk_of(p, job, to, number, &at);
        if (mine) {
            receive(p, &s->scatter, job->dtype,
                    is_32 ? (void *)(s->received + place(p, from)) : s->from_ranks + place(p, from),
                    mine, from, SCATTER_TAG);
        }
        if (count && is_32) {
            send(p, &s->scatter, job->dtype, job->data + at, count, to, SCATTER_TAG);
        } else if (count) {
            uint16_t *leaves = s->to_owners + place(p, to);
            cmn_float16_feedback(job->dtype, leaves, s->received + place(p, to), job->data + at,
                                 job->error ? job->error + at : NULL, count);
            send(p, &s->scatter, job->dtype, leaves, count, to, SCATTER_TAG);
        }
    }
}

/* All ranks' chunks for this owner have arrived: adds them in the order of the ranks. */
static void sum(struct cmn_pairwise *p, long step)
{
    size_t number, own = 0;
    const struct cmn_pairwise_job *job = job_of(p, step, &number);
    const struct step *s = &p->step[step % p->steps];
    size_t mine = chunk_of(p, job, p->rank, number, &own);

    for (int i = 0; i < p->ranks && mine; i++) {
        p->addend[i] = i == p->rank ? job->data + own : s->received + place(p, i);
        if (i != p->rank && job->dtype != CMN_FP32) {
            cmn_float16_decode(job->dtype, p->addend[i], s->from_ranks + place(p, i), mine);
        }
    }
    if (mine && job->what & CMN_REDUCE_SCATTER) {
        cmn_reduce(job->data + own, p->addend, p->ranks, 0, mine);
    }
}

/* Sends the sum of this rank's chunk to the others. */
static void gather(struct cmn_pairwise *p, long step)
{
    size_t number, own = 0, at = 0;
    const struct cmn_pairwise_job *job = job_of(p, step, &number);
    struct step *s = &p->step[step % p->steps];
    size_t mine = chunk_of(p, job, p->rank, number, &own);
    int is_32 = job->dtype == CMN_FP32;

    if (!(job->what & (CMN_ALLGATHER | CMN_GATHER))) {
        return;
    }
    if (mine && !is_32) {
        cmn_float16_feedback(job->dtype, s->own_sum, s->received, job->data + own,
                             job->error ? job->error + own : NULL, mine);
        memcpy(job->data + own, s->received, mine * sizeof *job->data);
    }
    for (int i = 1; i < p->ranks; i++) {
        int to = (p->rank + i) % p->ranks, from = (p->rank - i + p->ranks) % p->ranks;
        size_t count = chunk_of(p, job, from, number, &at);
        if (count && (job->what & CMN_ALLGATHER || p->rank == 0)) {
            receive(p, &s->gather, job->dtype,
                    is_32 ? (void *)(job->data + at) : s->sums + place(p, from), count, from,
                    GATHER_TAG);
        }
        if (mine && (job->what & CMN_ALLGATHER || to == 0)) {
            send(p, &s->gather, job->dtype, is_32 ? (const void *)(job->data + own) : s->own_sum,
                 mine, to, GATHER_TAG);
        }
    }
}

/* The sums of the other owners have arrived: casts them to 32 bits. */
static void cast_sums_to_32(struct cmn_pairwise *p, long step)
{
    size_t number, at = 0;
    const struct cmn_pairwise_job *job = job_of(p, step, &number);
    const struct step *s = &p->step[step % p->steps];

    for (int i = 0; i < p->ranks && job->dtype != CMN_FP32; i++) {
        size_t count = i == p->rank ? 0 : chunk_of(p, job, i, number, &at);
        if (count) {
            cmn_float16_decode(job->dtype, job->data + at, s->sums + place(p, i), count);
        }
    }
}

/* ---- jobs ---- */

/* Advances without waiting. A chunk's messages are complete before its sums overwrite it. All
 * ranks begin their messages in the order of the steps, which is how MPI matches them. */
static void advance(struct cmn_pairwise *p)
{
    while (p->gathered < p->summed && complete(&p->step[p->gathered % p->steps].gather)) {
        cast_sums_to_32(p, p->gathered++);
    }
    while (p->summed < p->scattered && p->summed - p->gathered < p->steps &&
           complete(&p->step[p->summed % p->steps].scatter)) {
        sum(p, p->summed);
        gather(p, p->summed++);
    }
    while (p->scattered < p->known && p->scattered - p->summed < p->steps) {
        scatter(p, p->scattered++);
    }
    while (p->ended < p->begun &&
           p->gathered >= entry_of(p, p->ended)->first + entry_of(p, p->ended)->steps) {
        p->ended++;
    }
}

void cmn_nothing_from(MPI_Comm comm, int from, long seconds)
{
    cmn_fatal_lost("exchange: nothing came from rank %d for %ld s (cmn_timeout)",
                   cmn_world_rank(comm, from), seconds);
}

void cmn_pairwise_stalled(const struct cmn_pairwise *p, long seconds)
{
    const struct half *h = p->gathered < p->summed ? &p->step[p->gathered % p->steps].gather
                                                   : &p->step[p->summed % p->steps].scatter;
    int there = 0;

    for (int i = 0; i < h->requests; i++) {
        if (h->sender[i] >= 0 && h->request[i] != MPI_REQUEST_NULL &&
            !MPI_Request_get_status(h->request[i], &there, MPI_STATUS_IGNORE) && !there) {
            cmn_nothing_from(p->comm, h->sender[i], seconds);
        }
    }
    cmn_fatal_lost("exchange: no message was sent for %ld s (cmn_timeout)", seconds);
}

long cmn_pairwise_progress(struct cmn_pairwise *p, long until)
{
    long before = -1;
    double since = 0;

    for (;;) {
        advance(p);
        if (p->ended >= until) {
            return p->ended;
        }
        if (p->gathered + p->summed != before) {
            before = p->gathered + p->summed;
            since = p->timeout ? cmn_clock() : 0;
        } else if (p->timeout && cmn_status_timed_out(cmn_clock() - since, p->timeout)) {
            cmn_pairwise_stalled(p, p->timeout);
        }
        sched_yield();
    }
}

void cmn_pairwise_begin(struct cmn_pairwise *p, const struct cmn_pairwise_job *job)
{
    struct entry *e;

    if (job->dtype != CMN_FP32 && p->ranks > 1) {
        open_16_bits(p);
    }
    if (p->begun - p->ended == p->room) {
        struct entry *more = cmn_calloc(2 * (size_t)p->room, sizeof *more);
        for (long i = p->ended; i < p->begun; i++) {
            more[i % (2 * p->room)] = *entry_of(p, i);
        }
        free(p->job);
        p->job = more;
        p->room *= 2;
    }
    e = entry_of(p, p->begun++);
    *e = (struct entry){.is = *job, .first = p->known, .steps = steps_of(p, job)};
    p->known += e->steps;
}

void cmn_pairwise_run(struct cmn_pairwise *p, float *data, size_t n, int slices, int what)
{
    const struct cmn_pairwise_job job = {data, n, slices, what, CMN_FP32, NULL};

    cmn_pairwise_begin(p, &job);
    cmn_pairwise_progress(p, p->begun);
}

unsigned long long cmn_pairwise_sent(const struct cmn_pairwise *p)
{
    return p->sent;
}
