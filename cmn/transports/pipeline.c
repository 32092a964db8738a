#include "transports/pipeline.h"

#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/reduce.h"
#include "mpi/topology.h"
#include "transports/transport.h"

enum { SCATTER_TAG = 1, GATHER_TAG = 2 };

struct cmn_pairwise_entry *cmn_pairwise_entry(const struct cmn_pairwise *p, long i)
{
    return &p->job[i % p->room];
}

/* The job of a round that is not over, and of which the round's number within it is *round. */
static const struct cmn_pairwise_job *job_of(const struct cmn_pairwise *p, long number,
                                             size_t *round)
{
    long i = p->ended;

    while (number >= cmn_pairwise_entry(p, i)->first + cmn_pairwise_entry(p, i)->rounds) {
        i++;
    }
    *round = (size_t)(number - cmn_pairwise_entry(p, i)->first);
    return &cmn_pairwise_entry(p, i)->is;
}

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

long cmn_pipeline_of(const struct cmn_pairwise *p, const struct cmn_pairwise_job *job)
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

static int send(struct cmn_pairwise *p, struct cmn_pipeline_step *f,
                const struct cmn_pairwise_job *job, const void *data, size_t count, int to, int tag)
{
    int wide = job->dtype == CMN_FP32;

    f->peer[f->requests] = -1;
    p->sent += count * (wide ? sizeof(float) : sizeof(uint16_t));
    return cmn_mpi_check(MPI_Isend(data, (int)count, wide ? MPI_FLOAT : MPI_UINT16_T, to, tag,
                                   p->comm, &f->request[f->requests++]),
                         "MPI_Isend");
}

static int receive(struct cmn_pairwise *p, struct cmn_pipeline_step *f,
                   const struct cmn_pairwise_job *job, void *data, size_t count, int from, int tag)
{
    f->peer[f->requests] = from;
    return cmn_mpi_check(MPI_Irecv(data, (int)count,
                                   job->dtype == CMN_FP32 ? MPI_FLOAT : MPI_UINT16_T, from, tag,
                                   p->comm, &f->request[f->requests++]),
                         "MPI_Irecv");
}

int cmn_pipeline_landed(struct cmn_pipeline_step *f)
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
    cmn_float16_encode(job->dtype, to, x, n);
    cmn_float16_decode(job->dtype, back, to, n);
    for (size_t i = 0; job->error && i < n; i++) {
        float rest = x[i] - back[i];
        job->error[at + i] = isfinite(rest) ? rest : 0; /* what is not finite has been sent */
    }
}

int cmn_pipeline_scatter(struct cmn_pairwise *p, long number)
{
    size_t round, at = 0, own = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    int slot = (int)(number % p->slots), result = 0, wide = job->dtype == CMN_FP32;
    struct cmn_pipeline_step *f = &p->scatter[slot];
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
void cmn_pipeline_sum(struct cmn_pairwise *p, long number)
{
    size_t round, own = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    int slot = (int)(number % p->slots);
    size_t mine = chunk_of(p, job, p->rank, round, &own);
    size_t others = (size_t)p->ranks - 1;

    for (int i = 0; i < p->ranks && mine; i++) {
        p->part[i] = i == p->rank ? job->data + own : p->stage[slot] + place(p, i);
        if (i != p->rank && job->dtype != CMN_FP32) {
            cmn_float16_decode(job->dtype, p->part[i],
                               p->narrow[slot] + others * p->chunk + place(p, i), mine);
        }
    }
    if (mine && job->what & CMN_SCATTER) {
        cmn_reduce(job->data + own, p->part, p->ranks, 0, mine);
    }
}

int cmn_pipeline_gather(struct cmn_pairwise *p, long number)
{
    size_t round, own = 0, at = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    int slot = (int)(number % p->slots), result = 0, wide = job->dtype == CMN_FP32;
    struct cmn_pipeline_step *f = &p->gather[slot];
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
void cmn_pipeline_widen(struct cmn_pairwise *p, long number)
{
    size_t round, at = 0;
    const struct cmn_pairwise_job *job = job_of(p, number, &round);
    const uint16_t *theirs = p->narrow_back[number % p->slots];

    for (int i = 0; i < p->ranks && job->dtype != CMN_FP32; i++) {
        size_t count = i == p->rank ? 0 : chunk_of(p, job, i, round, &at);
        if (count) {
            cmn_float16_decode(job->dtype, job->data + at, theirs + p->chunk + place(p, i), count);
        }
    }
}
