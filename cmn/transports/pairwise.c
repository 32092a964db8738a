#include "transports/pairwise.h"

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codecs/half.h"
#include "log.h"
#include "sums.h"
#include "topology.h"
#include "transports/transport.h"

/* Floats in one message, unless the caller says. 60 KiB are below the limit up to which Open MPI sends over TCP without
 * asking the receiver first: such messages travel by themselves while both ranks compute. */
enum { CHUNK = 15 * 1024, ROUND_MOST = 512 * 1024, CHUNK_LEAST = 4 * 1024 };

/* Rounds under way (a round: what all ranks but one send to one owner, and get back). Among many ranks fewer rounds
 * make as many messages, and each takes memory for all. */
enum { SLOTS = 48, SLOTS_LEAST = 2, MESSAGES = 192 };

enum { SCATTER_TAG = 1, GATHER_TAG = 2 };

/* Messages of one round, one way. */
struct flight {
    MPI_Request *request;
    int *peer; /* who sends; -1 for what this rank sends */
    int requests;
};

struct job {
    struct cmn_pairwise_job is;
    long first, rounds; /* numbers of rounds since open */
};

struct cmn_pairwise {
    MPI_Comm comm;
    int rank, ranks, slots;
    size_t chunk;
    long timeout;        /* seconds, 0: for ever */
    float *stage[SLOTS]; /* room for a chunk from every other rank */
    /* 16 bits: chunks to every other rank and from it; the sum, and those of the others. Made when first needed. */
    uint16_t *narrow[SLOTS], *narrow_back[SLOTS];
    float **part;
    struct flight scatter[SLOTS], gather[SLOTS];

    struct job *job; /* a ring of `room`: those from `ended` to `begun` are not done */
    long room, ended, begun;
    long started, summed, over; /* rounds, counted since open: sent, added, returned */
    long known;                 /* rounds of all jobs begun */
    unsigned long long sent;
};

static struct job *job_at(const struct cmn_pairwise *p, long i)
{
    return &p->job[i % p->room];
}

/* The job of a round that is not over, and of which the round's number within it is *round. */
static const struct cmn_pairwise_job *job_of(const struct cmn_pairwise *p, long number,
                                             size_t *round)
{
    long i = p->ended;

    while (number >= job_at(p, i)->first + job_at(p, i)->rounds) {
        i++;
    }
    *round = (size_t)(number - job_at(p, i)->first);
    return &job_at(p, i)->is;
}

/* ---- memory ---- */

static int open_slot(struct cmn_pairwise *p, int i, size_t others)
{
    p->stage[i] = malloc(others * p->chunk * sizeof *p->stage[i]);
    p->scatter[i].request = calloc(2 * others, sizeof(MPI_Request));
    p->gather[i].request = calloc(2 * others, sizeof(MPI_Request));
    p->scatter[i].peer = calloc(2 * others, sizeof(int));
    p->gather[i].peer = calloc(2 * others, sizeof(int));
    return p->stage[i] && p->scatter[i].request && p->gather[i].request && p->scatter[i].peer &&
                   p->gather[i].peer
               ? 0
               : -1;
}

int cmn_pairwise_open(struct cmn_pairwise **out, MPI_Comm comm, size_t chunk)
{
    struct cmn_pairwise *p = calloc(1, sizeof *p);
    size_t others;
    int bad = 0;

    *out = NULL;
    if (!p) {
        return cmn_fail("out of memory");
    }
    p->comm = comm;
    MPI_Comm_rank(comm, &p->rank);
    MPI_Comm_size(comm, &p->ranks);
    others = p->ranks > 1 ? (size_t)p->ranks - 1 : 1;
    p->slots = MESSAGES / (int)others;
    p->slots = p->slots > SLOTS ? SLOTS : p->slots < SLOTS_LEAST ? SLOTS_LEAST : p->slots;
    p->chunk = chunk ? chunk : ROUND_MOST / others;
    if (!chunk) {
        p->chunk = p->chunk > CHUNK ? CHUNK : p->chunk < CHUNK_LEAST ? CHUNK_LEAST : p->chunk;
        p->chunk -= p->chunk % 16; /* what is added stays aligned */
    }
    p->room = 16;
    p->job = calloc((size_t)p->room, sizeof *p->job);
    p->part = calloc((size_t)p->ranks, sizeof *p->part);
    for (int i = 0; i < p->slots; i++) {
        bad |= open_slot(p, i, others);
    }
    if (bad || !p->job || !p->part) {
        cmn_pairwise_close(p);
        return cmn_fail("out of memory");
    }
    *out = p;
    return 0;
}

void cmn_pairwise_patience(struct cmn_pairwise *p, long seconds)
{
    p->timeout = seconds;
}

void cmn_pairwise_close(struct cmn_pairwise *p)
{
    for (int i = 0; p && i < SLOTS; i++) {
        free(p->stage[i]);
        free(p->narrow[i]);
        free(p->narrow_back[i]);
        free(p->scatter[i].request);
        free(p->gather[i].request);
        free(p->scatter[i].peer);
        free(p->gather[i].peer);
    }
    if (p) {
        free(p->job);
        free(p->part);
    }
    free(p);
}

static int open_narrow(struct cmn_pairwise *p)
{
    size_t others = (size_t)p->ranks - 1;

    for (int i = 0; i < p->slots && !p->narrow_back[i]; i++) {
        p->narrow[i] = malloc(2 * others * p->chunk * sizeof *p->narrow[i]);
        p->narrow_back[i] = malloc((size_t)p->ranks * p->chunk * sizeof *p->narrow_back[i]);
        if (!p->narrow[i] || !p->narrow_back[i]) {
            return cmn_fail("out of memory");
        }
    }
    return 0;
}

/* ---- chunks ---- */

/* Floats of chunk `round` of a slice, and where they begin within the job; 0 for a rank that owns no slice. */
static size_t chunk_of(const struct cmn_pairwise *p, const struct cmn_pairwise_job *job, int slice,
                       size_t round, size_t *at)
{
    size_t count, begin = round * p->chunk;

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

static long rounds_of(const struct cmn_pairwise *p, const struct cmn_pairwise_job *job)
{
    size_t at, count, most = 0;

    for (int i = 0; i < job->slices && p->ranks > 1; i++) {
        cmn_slice(job->n, job->slices, i, &at, &count);
        most = count > most ? count : most;
    }
    return (long)((most + p->chunk - 1) / p->chunk);
}

/* Where the other rank's chunk lies in memory that holds one of each other rank. */
static size_t place(const struct cmn_pairwise *p, int other)
{
    return (size_t)(other < p->rank ? other : other - 1) * p->chunk;
}

/* ---- messages ---- */

static int send(struct cmn_pairwise *p, struct flight *f, const struct cmn_pairwise_job *job,
                const void *data, size_t count, int to, int tag)
{
    int wide = job->dtype == CMN_FP32;

    f->peer[f->requests] = -1;
    p->sent += count * (wide ? sizeof(float) : sizeof(uint16_t));
    return cmn_mpi_check(MPI_Isend(data, (int)count, wide ? MPI_FLOAT : MPI_UINT16_T, to, tag,
                                   p->comm, &f->request[f->requests++]),
                         "MPI_Isend");
}

static int receive(struct cmn_pairwise *p, struct flight *f, const struct cmn_pairwise_job *job,
                   void *data, size_t count, int from, int tag)
{
    f->peer[f->requests] = from;
    return cmn_mpi_check(MPI_Irecv(data, (int)count,
                                   job->dtype == CMN_FP32 ? MPI_FLOAT : MPI_UINT16_T, from, tag,
                                   p->comm, &f->request[f->requests++]),
                         "MPI_Irecv");
}

/* Whether all messages of f have arrived; -1 with a reason. */
static int landed(struct flight *f)
{
    int all = 1;

    if (f->requests &&
        cmn_mpi_check(MPI_Testall(f->requests, f->request, &all, MPI_STATUSES_IGNORE),
                      "MPI_Testall")) {
        return -1;
    }
    f->requests = all ? 0 : f->requests;
    return all;
}

/* x + error rounded to 16 bits; what was rounded off becomes the error. */
static void narrow(const struct cmn_pairwise_job *job, uint16_t *to, float *x, size_t at, size_t n,
                   float *back)
{
    if (job->error) {
        for (size_t i = 0; i < n; i++) {
            x[i] += job->error[at + i];
        }
    }
    cmn_half_encode(job->dtype, to, x, n);
    cmn_half_decode(job->dtype, back, to, n);
    for (size_t i = 0; job->error && i < n; i++) {
        float rest = x[i] - back[i];
        job->error[at + i] = isfinite(rest) ? rest : 0; /* what is not finite has been sent */
    }
}

static int start_scatter(struct cmn_pairwise *p, long number)
{
    size_t round, at = 0, own = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    int slot = (int)(number % p->slots), result = 0, wide = job->dtype == CMN_FP32;
    struct flight *f = &p->scatter[slot];
    size_t mine = chunk_of(p, job, p->rank, round, &own);
    size_t others = (size_t)p->ranks - 1;

    if (!(job->what & CMN_SCATTER)) {
        return 0;
    }
    /* Each rank begins with its neighbour, so that not all send to rank 0 first. */
    for (int i = 1; i < p->ranks; i++) {
        int to = (p->rank + i) % p->ranks, from = (p->rank - i + p->ranks) % p->ranks;
        size_t count = chunk_of(p, job, to, round, &at);
        void *arrives = wide ? (void *)(p->stage[slot] + place(p, from))
                             : p->narrow[slot] + others * p->chunk + place(p, from);
        if (mine) {
            result |= receive(p, f, job, arrives, mine, from, SCATTER_TAG);
        }
        if (count && wide) {
            result |= send(p, f, job, job->data + at, count, to, SCATTER_TAG);
        } else if (count) {
            uint16_t *leaves = p->narrow[slot] + place(p, to);
            narrow(job, leaves, job->data + at, at, count, p->stage[slot] + place(p, to));
            result |= send(p, f, job, leaves, count, to, SCATTER_TAG);
        }
    }
    return result;
}

/* All have sent their part of this rank's chunk: adds it up. */
static void sum(struct cmn_pairwise *p, long number)
{
    size_t round, own = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    int slot = (int)(number % p->slots);
    size_t mine = chunk_of(p, job, p->rank, round, &own);
    size_t others = (size_t)p->ranks - 1;

    for (int i = 0; i < p->ranks && mine; i++) {
        p->part[i] = i == p->rank ? job->data + own : p->stage[slot] + place(p, i);
        if (i != p->rank && job->dtype != CMN_FP32) {
            cmn_half_decode(job->dtype, p->part[i],
                            p->narrow[slot] + others * p->chunk + place(p, i), mine);
        }
    }
    if (mine && job->what & CMN_SCATTER) {
        cmn_sum(job->data + own, p->part, p->ranks, 0, mine);
    }
}

static int start_gather(struct cmn_pairwise *p, long number)
{
    size_t round, own = 0, at = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    int slot = (int)(number % p->slots), result = 0, wide = job->dtype == CMN_FP32;
    struct flight *f = &p->gather[slot];
    size_t mine = chunk_of(p, job, p->rank, round, &own);
    uint16_t *rounded = p->narrow_back[slot], *theirs = rounded ? rounded + p->chunk : NULL;

    if (!(job->what & (CMN_GATHER | CMN_GATHER_FIRST))) {
        return 0;
    }
    if (mine && !wide) {
        narrow(job, rounded, job->data + own, own, mine, p->stage[slot]);
        memcpy(job->data + own, p->stage[slot], mine * sizeof *job->data);
    }
    for (int i = 1; i < p->ranks; i++) {
        int to = (p->rank + i) % p->ranks, from = (p->rank - i + p->ranks) % p->ranks;
        size_t count = chunk_of(p, job, from, round, &at);
        if (count && (job->what & CMN_GATHER || p->rank == 0)) {
            result |= receive(p, f, job, wide ? (void *)(job->data + at) : theirs + place(p, from),
                              count, from, GATHER_TAG);
        }
        if (mine && (job->what & CMN_GATHER || to == 0)) {
            result |= send(p, f, job, wide ? (const void *)(job->data + own) : rounded, mine, to,
                           GATHER_TAG);
        }
    }
    return result;
}

/* The sums of the others have arrived. */
static void widen(struct cmn_pairwise *p, long number)
{
    size_t round, at = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    const uint16_t *theirs = p->narrow_back[number % p->slots];

    for (int i = 0; i < p->ranks && job->dtype != CMN_FP32; i++) {
        size_t count = i == p->rank ? 0 : chunk_of(p, job, i, round, &at);
        if (count) {
            cmn_half_decode(job->dtype, job->data + at, theirs + p->chunk + place(p, i), count);
        }
    }
}

/* ---- moving on ---- */

/* One try. What is sent of a job's floats is overwritten by its sums: the one has landed before the other begins. All ranks
 * begin their messages in the order of the rounds, which is how MPI matches them. */
static int move(struct cmn_pairwise *p)
{
    int is = 0;

    while (p->over < p->summed && (is = landed(&p->gather[p->over % p->slots])) > 0) {
        widen(p, p->over++);
    }
    while (is >= 0 && p->summed < p->started && p->summed - p->over < p->slots &&
           (is = landed(&p->scatter[p->summed % p->slots])) > 0) {
        sum(p, p->summed);
        is = start_gather(p, p->summed++);
        if (is == 0) {
            is = 1;
        }
    }
    while (is >= 0 && p->started < p->known && p->started - p->summed < p->slots) {
        is = start_scatter(p, p->started++);
    }
    while (p->ended < p->begun &&
           p->over >= job_at(p, p->ended)->first + job_at(p, p->ended)->rounds) {
        p->ended++;
    }
    return is < 0 ? -1 : 0;
}

/* Names the rank whose message is missing. */
static int too_late(struct cmn_pairwise *p)
{
    const struct flight *f =
        p->over < p->summed ? &p->gather[p->over % p->slots] : &p->scatter[p->summed % p->slots];
    MPI_Group mine, world;
    int from = -1, rank = -1, there = 0;

    for (int i = 0; i < f->requests && from < 0; i++) {
        if (f->peer[i] >= 0 && f->request[i] != MPI_REQUEST_NULL &&
            !MPI_Request_get_status(f->request[i], &there, MPI_STATUS_IGNORE) && !there) {
            from = f->peer[i];
        }
    }
    if (from < 0) {
        return cmn_fail("nothing moved for %ld s (cmn_timeout)", p->timeout);
    }
    MPI_Comm_group(p->comm, &mine);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(mine, 1, &from, world, &rank);
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
    return cmn_fail("nothing came from rank %d for %ld s (cmn_timeout)", rank, p->timeout);
}

long cmn_pairwise_progress(struct cmn_pairwise *p, long until)
{
    long before = -1;
    double since = 0;

    for (;;) {
        if (move(p)) {
            return -1;
        }
        if (p->ended >= until) {
            return p->ended;
        }
        if (p->over + p->summed != before) {
            before = p->over + p->summed;
            since = p->timeout ? cmn_clock() : 0;
        } else if (p->timeout && cmn_clock() - since > (double)p->timeout) {
            return too_late(p);
        }
        sched_yield();
    }
}

int cmn_pairwise_begin(struct cmn_pairwise *p, const struct cmn_pairwise_job *job)
{
    struct job *is;

    if (job->dtype != CMN_FP32 && p->ranks > 1 && open_narrow(p)) {
        return -1;
    }
    if (p->begun - p->ended == p->room) {
        struct job *more = calloc(2 * (size_t)p->room, sizeof *more);
        if (!more) {
            return cmn_fail("out of memory");
        }
        for (long i = p->ended; i < p->begun; i++) {
            more[i % (2 * p->room)] = *job_at(p, i);
        }
        free(p->job);
        p->job = more;
        p->room *= 2;
    }
    is = job_at(p, p->begun++);
    is->is = *job;
    is->first = p->known;
    is->rounds = rounds_of(p, job);
    p->known += is->rounds;
    return 0;
}

int cmn_pairwise_run(struct cmn_pairwise *p, float *data, size_t n, int slices, int what)
{
    const struct cmn_pairwise_job job = {data, n, slices, what, CMN_FP32, NULL};

    return cmn_pairwise_begin(p, &job) || cmn_pairwise_progress(p, p->begun) < 0 ? -1 : 0;
}

unsigned long long cmn_pairwise_sent(const struct cmn_pairwise *p)
{
    return p->sent;
}
