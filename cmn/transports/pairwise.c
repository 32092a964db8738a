#include "transports/pairwise.h"

#include <stdlib.h>

#include "log.h"
#include "sums.h"
#include "topology.h"
#include "transports/transport.h"

/* Floats in one message, and in those of a round: what all ranks but one send to one owner. */
enum { CHUNK_MOST = 32 * 1024, CHUNK_LEAST = 16 * 1024, ROUND_MOST = 512 * 1024 };

/* Rounds under way. Before a message moves, both ends must agree on it, behind all that waits to be sent already:
 * over a link of 1 Gbit/s two rounds of 1 MiB take 0.66 to 0.74 s for 64 MB, sixteen of 128 KiB 0.58 to 0.62 s,
 * where the link needs 0.56 s. Among many ranks fewer rounds make as many messages, and each takes memory for all. */
enum { SLOTS = 16, SLOTS_LEAST = 2, MESSAGES = 64 };

enum { SCATTER_TAG = 1, GATHER_TAG = 2 };

/* Messages that are under way. */
struct flight {
    MPI_Request *request;
    int requests;
};

struct cmn_pairwise {
    MPI_Comm comm;
    int rank, ranks, slots;
    size_t chunk;
    float *stage[SLOTS]; /* room for a chunk from every other rank */
    float **part;
    struct flight scatter[SLOTS], gather[SLOTS];
};

/* One call of cmn_pairwise_run. */
struct run {
    float *data;
    size_t n;
    int slices, what;
};

int cmn_pairwise_open(struct cmn_pairwise **out, MPI_Comm comm, size_t chunk)
{
    struct cmn_pairwise *p = calloc(1, sizeof *p);
    size_t others, requests;

    *out = NULL;
    if (!p) {
        return cmn_fail("out of memory");
    }
    p->comm = comm;
    MPI_Comm_rank(comm, &p->rank);
    MPI_Comm_size(comm, &p->ranks);
    others = p->ranks > 1 ? (size_t)p->ranks - 1 : 1;
    requests = 2 * others;
    p->slots = MESSAGES / (int)others;
    p->slots = p->slots > SLOTS ? SLOTS : p->slots < SLOTS_LEAST ? SLOTS_LEAST : p->slots;
    p->chunk = chunk ? chunk : ROUND_MOST / others;
    if (!chunk) {
        p->chunk = p->chunk > CHUNK_MOST ? CHUNK_MOST : p->chunk;
        p->chunk = p->chunk < CHUNK_LEAST ? CHUNK_LEAST : p->chunk;
        p->chunk -= p->chunk % 16; /* what is added stays aligned */
    }
    p->part = calloc((size_t)p->ranks, sizeof *p->part);
    for (int i = 0; i < p->slots; i++) {
        p->stage[i] = malloc(others * p->chunk * sizeof *p->stage[i]);
        p->scatter[i].request = calloc(requests, sizeof(MPI_Request));
        p->gather[i].request = calloc(requests, sizeof(MPI_Request));
        if (!p->stage[i] || !p->scatter[i].request || !p->gather[i].request || !p->part) {
            cmn_pairwise_close(p);
            return cmn_fail("out of memory");
        }
    }
    *out = p;
    return 0;
}

void cmn_pairwise_close(struct cmn_pairwise *p)
{
    for (int i = 0; p && i < SLOTS; i++) {
        free(p->stage[i]);
        free(p->scatter[i].request);
        free(p->gather[i].request);
    }
    if (p) {
        free(p->part);
    }
    free(p);
}

/* Floats of chunk `round` of a slice, and where they begin; 0 for a rank that owns no slice. */
static int chunk_of(const struct cmn_pairwise *p, const struct run *run, int slice, size_t round,
                    float **data)
{
    size_t at, count, begin = round * p->chunk;

    if (slice >= run->slices) {
        return 0;
    }
    cmn_slice(run->n, run->slices, slice, &at, &count);
    if (begin >= count) {
        return 0;
    }
    *data = run->data + at + begin;
    return (int)(count - begin < p->chunk ? count - begin : p->chunk);
}

static int rounds_of(const struct cmn_pairwise *p, const struct run *run)
{
    size_t at, count, most = 0;

    for (int i = 0; i < run->slices; i++) {
        cmn_slice(run->n, run->slices, i, &at, &count);
        most = count > most ? count : most;
    }
    return (int)((most + p->chunk - 1) / p->chunk);
}

static int send(struct cmn_pairwise *p, struct flight *f, const float *data, int count, int to,
                int tag)
{
    return cmn_mpi_check(
        MPI_Isend(data, count, MPI_FLOAT, to, tag, p->comm, &f->request[f->requests++]),
        "MPI_Isend");
}

static int receive(struct cmn_pairwise *p, struct flight *f, float *data, int count, int from,
                   int tag)
{
    return cmn_mpi_check(
        MPI_Irecv(data, count, MPI_FLOAT, from, tag, p->comm, &f->request[f->requests++]),
        "MPI_Irecv");
}

static int land(struct flight *f)
{
    int n = f->requests;

    f->requests = 0;
    return cmn_mpi_check(MPI_Waitall(n, f->request, MPI_STATUSES_IGNORE), "MPI_Waitall");
}

/* Where a chunk from another rank is put until it is added. */
static float *staged(const struct cmn_pairwise *p, size_t round, int from)
{
    int place = from < p->rank ? from : from - 1;

    return p->stage[round % (size_t)p->slots] + (size_t)place * p->chunk;
}

static int start_scatter(struct cmn_pairwise *p, const struct run *run, size_t round)
{
    struct flight *f = &p->scatter[round % (size_t)p->slots];
    float *own = NULL, *theirs = NULL;
    int mine = chunk_of(p, run, p->rank, round, &own), result = 0;

    /* Each rank begins with its neighbour, so that not all send to rank 0 first. */
    for (int i = 1; i < p->ranks; i++) {
        int to = (p->rank + i) % p->ranks, from = (p->rank - i + p->ranks) % p->ranks;
        int count = chunk_of(p, run, to, round, &theirs);
        if (mine) {
            result |= receive(p, f, staged(p, round, from), mine, from, SCATTER_TAG);
        }
        if (count) {
            result |= send(p, f, theirs, count, to, SCATTER_TAG);
        }
    }
    return result;
}

static int finish_scatter(struct cmn_pairwise *p, const struct run *run, size_t round)
{
    float *own = NULL;
    int mine = chunk_of(p, run, p->rank, round, &own);

    if (land(&p->scatter[round % (size_t)p->slots])) {
        return -1;
    }
    for (int i = 0; i < p->ranks && mine; i++) {
        p->part[i] = i == p->rank ? own : staged(p, round, i);
    }
    if (mine) {
        cmn_sum(own, p->part, p->ranks, 0, (size_t)mine);
    }
    return 0;
}

static int start_gather(struct cmn_pairwise *p, const struct run *run, size_t round)
{
    struct flight *f = &p->gather[round % (size_t)p->slots];
    float *own = NULL, *theirs = NULL;
    int mine = chunk_of(p, run, p->rank, round, &own), result = 0;

    for (int i = 1; i < p->ranks; i++) {
        int to = (p->rank + i) % p->ranks, from = (p->rank - i + p->ranks) % p->ranks;
        int count = chunk_of(p, run, from, round, &theirs);
        if (count && (run->what & CMN_GATHER || p->rank == 0)) {
            result |= receive(p, f, theirs, count, from, GATHER_TAG);
        }
        if (mine && (run->what & CMN_GATHER || to == 0)) {
            result |= send(p, f, own, mine, to, GATHER_TAG);
        }
    }
    return result;
}

int cmn_pairwise_run(struct cmn_pairwise *p, float *data, size_t n, int slices, int what)
{
    const struct run run = {data, n, slices, what};
    int rounds = rounds_of(p, &run), gathers = what & (CMN_GATHER | CMN_GATHER_FIRST);

    if (p->ranks == 1) {
        return 0;
    }
    /* A chunk of data is sent (scatter) and then overwritten (gather): one is over before the other begins. */
    for (int i = 0; i < rounds + p->slots - 1; i++) {
        int back = i - (p->slots - 1);
        if (what & CMN_SCATTER && i < rounds && start_scatter(p, &run, (size_t)i)) {
            return -1;
        }
        if (back < 0) {
            continue;
        }
        if ((what & CMN_SCATTER && finish_scatter(p, &run, (size_t)back)) ||
            (gathers &&
             (land(&p->gather[back % p->slots]) || start_gather(p, &run, (size_t)back)))) {
            return -1;
        }
    }
    for (int i = 0; i < p->slots; i++) {
        if (land(&p->gather[i])) {
            return -1;
        }
    }
    return 0;
}
