#include "transports/pairwise.h"

#include <sched.h>
#include <stdlib.h>

#include "base/log.h"
#include "mpi/group.h"
#include "transports/pipeline.h"
#include "base/status.h"

/* Floats in one message, unless the caller says. 60 KiB are below the limit up to which Open MPI sends over TCP without
 * asking the receiver first: such messages travel by themselves while both ranks compute. */
enum { CHUNK = 15 * 1024, ROUND_MOST = 512 * 1024, CHUNK_LEAST = 4 * 1024 };

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
    p->slots = CMN_MESSAGES / (int)others;
    p->slots = p->slots > CMN_SLOTS         ? CMN_SLOTS
               : p->slots < CMN_SLOTS_LEAST ? CMN_SLOTS_LEAST
                                            : p->slots;
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
    for (int i = 0; p && i < CMN_SLOTS; i++) {
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

/* One try. What is sent of a job's floats is overwritten by its sums: the one has landed before the other begins. All
 * ranks begin their messages in the order of the rounds, which is how MPI matches them. */
static int move(struct cmn_pairwise *p)
{
    int is = 0;

    while (p->over < p->summed && (is = cmn_pipeline_landed(&p->gather[p->over % p->slots])) > 0) {
        cmn_pipeline_widen(p, p->over++);
    }
    while (is >= 0 && p->summed < p->started && p->summed - p->over < p->slots &&
           (is = cmn_pipeline_landed(&p->scatter[p->summed % p->slots])) > 0) {
        cmn_pipeline_sum(p, p->summed);
        is = cmn_pipeline_gather(p, p->summed++);
        if (is == 0) {
            is = 1;
        }
    }
    while (is >= 0 && p->started < p->known && p->started - p->summed < p->slots) {
        is = cmn_pipeline_scatter(p, p->started++);
    }
    while (p->ended < p->begun && p->over >= cmn_pairwise_entry(p, p->ended)->first +
                                                 cmn_pairwise_entry(p, p->ended)->rounds) {
        p->ended++;
    }
    return is < 0 ? -1 : 0;
}

int cmn_nothing_from(MPI_Comm comm, int from, long seconds)
{
    return cmn_fail_lost("nothing came from rank %d for %ld s (cmn_timeout)",
                         cmn_world_rank(comm, from), seconds);
}

int cmn_pairwise_late(struct cmn_pairwise *p, long seconds)
{
    const struct cmn_pipeline_step *f =
        p->over < p->summed ? &p->gather[p->over % p->slots] : &p->scatter[p->summed % p->slots];
    int there = 0;

    for (int i = 0; i < f->requests; i++) {
        if (f->peer[i] >= 0 && f->request[i] != MPI_REQUEST_NULL &&
            !MPI_Request_get_status(f->request[i], &there, MPI_STATUS_IGNORE) && !there) {
            return cmn_nothing_from(p->comm, f->peer[i], seconds);
        }
    }
    return cmn_fail_lost("nothing moved for %ld s (cmn_timeout)", seconds);
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
        } else if (p->timeout && cmn_status_timed_out(cmn_clock() - since, p->timeout)) {
            return cmn_pairwise_late(p, p->timeout);
        }
        sched_yield();
    }
}

int cmn_pairwise_begin(struct cmn_pairwise *p, const struct cmn_pairwise_job *job)
{
    struct cmn_pairwise_entry *is;

    if (job->dtype != CMN_FP32 && p->ranks > 1 && open_narrow(p)) {
        return -1;
    }
    if (p->begun - p->ended == p->room) {
        struct cmn_pairwise_entry *more = calloc(2 * (size_t)p->room, sizeof *more);
        if (!more) {
            return cmn_fail("out of memory");
        }
        for (long i = p->ended; i < p->begun; i++) {
            more[i % (2 * p->room)] = *cmn_pairwise_entry(p, i);
        }
        free(p->job);
        p->job = more;
        p->room *= 2;
    }
    is = cmn_pairwise_entry(p, p->begun++);
    is->is = *job;
    is->first = p->known;
    is->rounds = cmn_pipeline_of(p, job);
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
