/* powersgd: each matrix of gradients travels as two thin ones; each rank keeps what they do not
 * hold and adds it to the next gradient.
 *
 * Steps, for each shard of rows × columns, on every rank:
 *   kept += gradient;  P = kept Q;  P is summed over the ranks and made orthonormal;
 *   Q' = kept^T P;  kept -= P Q'^T;  Q' is summed over the ranks;
 *   the shard becomes P Q'^T, and Q' the next step's Q.
 * Q begins with the same random numbers on all ranks, and keeps its directions from step to step:
 * so a step costs one step of power iteration, and follows the largest singular vectors of the
 * sum.
 * Bytes sent per rank of M: 2(M-1)/M * 4r (rows + columns), with r the rank of cmn_compress, at most
 * the smaller side.
 * Tensors that are no matrices, and those that would not become smaller so, travel exactly.
 * All ranks must compute the same bits of P and the shard: lowrank.c promises that.
 * NaN and Inf make the rows of P of their rows not finite, on all ranks. Then those rows of the
 * shard become NaN and the others zero, and each rank keeps what is finite for the next step.
 * In a group of one rank nothing travels, and nothing is changed.
 * On a GPU gradients and kept values lie there, and kernels multiply; P and Q', which travel, come to
 * the host, where P becomes orthonormal and Q' the next Q, as on the CPU.
 * Vogels, Karinthi, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
 * Optimization", 2019. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/memory.h"
#include "base/status.h"
#include "compression/compressor.h"
#include "compression/lowrank.h"
#include "compression/place.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "transports/sums.h"

/* What is under way: P comes to the host, and is summed; Q' likewise; nothing, because the shard is
 * not finite. */
enum stage { MAKE_P, SUM_P, MAKE_Q, SUM_Q, NOT_FINITE };

struct factors {
    float *p;         /* rank columns of `rows` */
    float *q;         /* rank columns of `columns`: this step's Q; */
    float *own, *all; /* this rank's Q', and the sum */
};

/* A shard. */
struct matrix {
    struct cmn_lowrank is; /* rank 0: it travels exactly, or is another owner's */
    enum stage stage;
    long job; /* how many jobs there were with the one that it waits for */
    float *data, *kept;
    float *host;          /* rank 0: where messages find the shard; `data` on the CPU */
    struct factors here;  /* for messages; `own` has no use here */
    struct factors there; /* where the shard lies: on the CPU the same */
};

/* Sums in flight, done in the order in which they were begun. */
struct stream {
    struct cmn_sums *sums;
    long begun, ended; /* jobs */
};

struct powersgd {
    const struct cmn_compressor_plan *plan;
    struct cmn_place *place;
    /* Shards in flight, which end in the order in which they were begun: `in_flight` from
     * queue[head] on, around the end of `room`. */
    int *queue;
    int room, head, in_flight;
    long ended; /* shards, since open */
    long given; /* shards whose first sum was begun */
    int ranks;
    /* P, and shards that travel exactly; Q'. Two streams, because the time when a Q' begins
     * differs from rank to rank, and the order within a stream must not. */
    struct stream first, second;
    MPI_Comm second_comm;
    struct matrix *matrix; /* of each shard */
    float *kept, *q;
    size_t kept_floats, q_floats;
};

/* Whether this rank compresses a shard, and how. */
static int form_of(const struct powersgd *s, const struct cmn_shard *shard, struct cmn_lowrank *is)
{
    size_t rows = (size_t)shard->rows, rank = (size_t)s->plan->options->compress_rank;
    size_t columns = rows ? shard->n / rows : 0;

    rank = rank > rows ? rows : rank;
    rank = rank > columns ? columns : rank;
    *is = (struct cmn_lowrank){rows, columns, rank};
    return shard->owner == s->plan->owner && !shard->exact && s->ranks > 1 && rank &&
           rows * columns == shard->n && (rows + columns) * rank < shard->n;
}

static unsigned long long seed_of(const struct powersgd *s, const struct matrix *m)
{
    return (unsigned long long)(m - s->matrix) + 1;
}

/* ---- memory ---- */

static void close_powersgd(void *self)
{
    struct powersgd *s = self;

    cmn_sums_close(s->first.sums);
    cmn_sums_close(s->second.sums);
    MPI_Comm_free(&s->second_comm);
    free(s->queue);
    cmn_place_close(s->place);
    free(s->matrix);
    free(s);
}

/* What this rank sends as it is. */
static void open_exact(struct powersgd *s, int i)
{
    const struct cmn_shard *shard = &s->plan->shard[i];
    struct matrix *m = &s->matrix[i];
    int copied = cmn_place_on_gpu(s->place) && shard->owner == s->plan->owner;

    m->data = s->plan->block + shard->at;
    m->host = copied ? cmn_place_host(s->place, shard->n * sizeof *m->host) : m->data;
}

static struct factors factors_at(const struct cmn_lowrank *is, float *at, float *q)
{
    struct factors f = {.p = at, .q = q};

    f.own = f.p + is->rows * is->rank;
    f.all = f.own + is->columns * is->rank;
    return f;
}

static void open_matrix(struct powersgd *s, int i, const struct cmn_lowrank *is, float *kept,
                        float *q)
{
    struct matrix *m = &s->matrix[i];
    size_t work = (is->rows + 2 * is->columns) * is->rank, at_q = is->columns * is->rank;

    *m = (struct matrix){.is = *is, .kept = kept};
    m->data = s->plan->block + s->plan->shard[i].at;
    m->here = m->there = factors_at(is, cmn_place_host(s->place, work * sizeof *q), q);
    if (cmn_place_on_gpu(s->place)) {
        float *there = cmn_place_memory(s->place, (work + at_q) * sizeof *there);
        m->there = factors_at(is, there, there + work);
    }
    cmn_lowrank_next(is, q, seed_of(s, m));
}

static void open_memory(struct powersgd *s)
{
    size_t kept_at = 0, q_at = 0;
    struct cmn_lowrank is;

    s->matrix = cmn_calloc((size_t)s->plan->shards, sizeof *s->matrix);
    for (int i = 0; i < s->plan->shards; i++) {
        if (form_of(s, &s->plan->shard[i], &is)) {
            s->kept_floats += s->plan->shard[i].n;
            s->q_floats += is.columns * is.rank;
        }
    }
    s->kept = cmn_place_memory(s->place, s->kept_floats * sizeof *s->kept);
    s->q = cmn_place_host(s->place, s->q_floats * sizeof *s->q);
    for (int i = 0; i < s->plan->shards; i++) {
        if (!form_of(s, &s->plan->shard[i], &is)) {
            open_exact(s, i);
            continue;
        }
        open_matrix(s, i, &is, s->kept + kept_at, s->q + q_at);
        kept_at += s->plan->shard[i].n;
        q_at += is.columns * is.rank;
    }
}

static void *open_powersgd(const struct cmn_compressor_plan *plan)
{
    struct powersgd *s = cmn_calloc(1, sizeof *s);

    s->plan = plan;
    MPI_Comm_size(plan->comm, &s->ranks);
    MPI_CALL(MPI_Comm_dup(plan->comm, &s->second_comm));
    s->place = cmn_place_open(plan->topology->device >= 0, plan->stream, plan->shards);
    open_memory(s);
    s->room = plan->shards ? plan->shards : 1;
    s->queue = cmn_calloc((size_t)s->room, sizeof *s->queue);
    s->first.sums = cmn_sums_open(plan->comm, plan->options, 0);
    s->second.sums = cmn_sums_open(s->second_comm, plan->options, 0);
    return s;
}

/* ---- one shard ---- */

/* Returns the number of the job. */
static long begin_sum(struct stream *stream, float *data, size_t n)
{
    const struct cmn_sum sum = {
        .data = data,
        .n = n,
        .dtype = CMN_FP32,
    };

    cmn_sums_begin(stream->sums, &sum);
    cmn_sums_progress(stream->sums, 0); /* what can leave now need not wait for the next poll */
    return ++stream->begun;
}

/* P has been summed. All ranks see the same bits of it, and decide equally. */
static void make_q(struct powersgd *s, int i)
{
    struct matrix *m = &s->matrix[i];
    size_t p = m->is.rows * m->is.rank, q = m->is.columns * m->is.rank;

    if (!cmn_lowrank_finite(m->here.p, p)) {
        m->stage = NOT_FINITE;
        return;
    }
    m->stage = MAKE_Q;
    cmn_lowrank_orthonormal(&m->is, m->here.p);
    cmn_place_back(s->place, m->there.p, m->here.p, p * sizeof *m->there.p);
    cmn_place_right(s->place, &m->is, m->kept, m->there.p, m->there.own);
    cmn_place_out(s->place, i, m->here.all, m->there.own, q * sizeof *m->there.own);
}

/* The rows that are not finite become NaN; the rest is kept. */
static void show_not_finite(const struct matrix *m, float *data, float *kept)
{
    for (size_t i = 0; i < m->is.rows; i++) {
        float sum = 0;
        for (size_t j = 0; j < m->is.rank; j++) {
            sum += isfinite(m->here.p[j * m->is.rows + i]) ? 0 : NAN;
        }
        for (size_t k = i * m->is.columns; k < (i + 1) * m->is.columns; k++) {
            data[k] = sum;
            kept[k] = isfinite(kept[k]) ? kept[k] : 0;
        }
    }
}

/* It is rare, so a GPU's shard comes to the host for it. Nothing on the GPU uses it: all that was asked for lies
 * before its last copy out, which has ended. */
static void leave_not_finite(const struct powersgd *s, const struct matrix *m)
{
    size_t n = m->is.rows * m->is.columns;
    float *data, *kept;

    if (!cmn_place_on_gpu(s->place)) {
        show_not_finite(m, m->data, m->kept);
        return;
    }
    data = cmn_calloc(2 * n, sizeof *data);
    kept = data + n;
    if (cmn_device_read(kept, m->kept, n)) {
        cmn_fatal_reason();
    }
    show_not_finite(m, data, kept);
    if (cmn_device_write(m->data, data, n) || cmn_device_write(m->kept, kept, n)) {
        cmn_fatal_reason();
    }
    free(data);
}

static void finish(const struct powersgd *s, struct matrix *m)
{
    size_t n = m->is.columns * m->is.rank;

    if (m->stage == SUM_Q && !cmn_lowrank_finite(m->here.all, n)) {
        for (size_t i = 0; i < m->is.rows * m->is.rank; i++) {
            m->here.p[i] = NAN; /* the sum is too large for a float, in any row */
        }
        m->stage = NOT_FINITE;
    }
    if (m->stage == NOT_FINITE) {
        leave_not_finite(s, m);
        return;
    }
    cmn_place_back(s->place, m->there.all, m->here.all, n * sizeof *m->there.all);
    cmn_place_take(s->place, &m->is, m->kept, m->data, m->there.p, m->there.own, m->there.all);
    memcpy(m->here.q, m->here.all, n * sizeof *m->here.q);
    cmn_lowrank_next(&m->is, m->here.q, seed_of(s, m));
}

/* ---- all shards ---- */

static void poll_stream(struct stream *stream)
{
    if (stream->ended < stream->begun) {
        stream->ended = cmn_sums_progress(stream->sums, 0);
    }
}

/* Shard k of those in flight. */
static int in_flight(const struct powersgd *s, int k)
{
    return s->queue[(s->head + k) % s->room];
}

/* Begins the first sums of shards in their order, as soon as the host has what they add. */
static void give(struct powersgd *s)
{
    int next = (int)(s->given - s->ended);

    for (; next < s->in_flight; next++, s->given++) {
        int i = in_flight(s, next);
        struct matrix *m = &s->matrix[i];
        if (!cmn_place_is_out(s->place, i)) {
            return;
        }
        m->stage = SUM_P;
        m->job = m->is.rank ? begin_sum(&s->first, m->here.p, m->is.rows * m->is.rank)
                            : begin_sum(&s->first, m->host, s->plan->shard[i].n);
    }
}

/* Begins Q' of all whose P has been summed, and its sums, in the order of the shards. */
static void advance(struct powersgd *s)
{
    give(s);
    poll_stream(&s->first);
    for (int k = 0; k < s->in_flight; k++) {
        int i = in_flight(s, k);
        struct matrix *m = &s->matrix[i];
        if (!m->is.rank) {
            continue;
        }
        if (m->stage == MAKE_P || (m->stage == SUM_P && m->job > s->first.ended)) {
            break;
        }
        if (m->stage == SUM_P) {
            make_q(s, i);
        }
    }
    for (int k = 0; k < s->in_flight; k++) {
        int i = in_flight(s, k);
        struct matrix *m = &s->matrix[i];
        if (!m->is.rank || m->stage == SUM_Q || m->stage == NOT_FINITE) {
            continue;
        }
        if (m->stage != MAKE_Q || !cmn_place_is_out(s->place, i)) {
            break;
        }
        m->stage = SUM_Q;
        m->job = begin_sum(&s->second, m->here.all, m->is.columns * m->is.rank);
    }
    poll_stream(&s->second);
}

static void begin_powersgd(void *self, int i)
{
    struct powersgd *s = self;
    struct matrix *m = &s->matrix[i];
    size_t p = m->is.rows * m->is.rank, q = m->is.columns * m->is.rank;

    s->queue[(s->head + s->in_flight++) % s->room] = i;
    m->stage = MAKE_P;
    if (m->is.rank) {
        cmn_place_back(s->place, m->there.q, m->here.q, q * sizeof *m->there.q);
        cmn_place_left(s->place, &m->is, m->kept, m->data, m->there.q, m->there.p);
        cmn_place_out(s->place, i, m->here.p, m->there.p, p * sizeof *m->there.p);
    } else {
        cmn_place_out(s->place, i, m->host, m->data, s->plan->shard[i].n * sizeof *m->host);
    }
    give(s);
}

/* Advances all shards, and returns whether shard i, the first one in flight, has ended. */
static int ended(struct powersgd *s, int i)
{
    struct matrix *m = &s->matrix[i];

    advance(s);
    if (m->stage == MAKE_P) {
        return 0;
    }
    if (!m->is.rank) {
        if (m->job > s->first.ended) {
            return 0;
        }
        cmn_place_back(s->place, m->data, m->host, s->plan->shard[i].n * sizeof *m->host);
        return 1;
    }
    if (m->stage < SUM_Q || (m->stage == SUM_Q && m->job > s->second.ended)) {
        return 0;
    }
    finish(s, m);
    return 1;
}

static unsigned long long sent_powersgd(const void *self)
{
    const struct powersgd *s = self;

    return cmn_sums_sent(s->first.sums) + cmn_sums_sent(s->second.sums);
}

/* A number that changes whenever a message was sent or has arrived. */
static unsigned long long moved(const struct powersgd *s)
{
    return sent_powersgd(s) + (unsigned long long)(s->first.ended + s->second.ended);
}

/* Ends the job: names what shard i has waited for. */
static _Noreturn void stalled(const struct powersgd *s, int i, long seconds)
{
    const struct matrix *m = &s->matrix[i];

    if (m->stage == MAKE_P || (m->is.rank && m->stage == MAKE_Q)) {
        cmn_fatal("a copy from the GPU did not end in %ld s (cmn_timeout)", seconds);
    }
    cmn_sums_stalled(m->is.rank && m->stage == SUM_Q ? s->second.sums : s->first.sums, seconds);
}

static long progress_powersgd(void *self, long until)
{
    struct powersgd *s = self;
    const long timeout = s->plan->options->timeout;
    unsigned long long before = 0;
    double since = -1;

    for (;;) {
        while (s->in_flight && ended(s, in_flight(s, 0))) {
            s->head = (s->head + 1) % s->room;
            s->in_flight--;
            s->ended++;
        }
        if (s->ended >= until) {
            return s->ended;
        }
        if (since < 0 || moved(s) != before) {
            before = moved(s);
            since = cmn_clock();
        } else if (cmn_status_timed_out(cmn_clock() - since, timeout)) {
            stalled(s, in_flight(s, 0), timeout);
        }
        sched_yield();
    }
}

static int state_powersgd(void *self, int i, struct cmn_state *state)
{
    struct powersgd *s = self;

    if (i >= (s->kept_floats ? 2 : 0)) {
        return 0;
    }
    *state = i == 0 ? (struct cmn_state){"kept by powersgd", s->kept,
                                         s->kept_floats * sizeof *s->kept, CMN_VALUES_FINITE, 0}
                    : (struct cmn_state){"directions of powersgd", s->q, s->q_floats * sizeof *s->q,
                                         CMN_VALUES_FINITE, 0};
    return i == 0 && cmn_place_on_gpu(s->place) ? 2 : 1;
}

const struct cmn_compressor cmn_compressor_powersgd = {
    .name = "powersgd",
    .wire = "2(M-1)/M * 4 * rank * (rows + columns)",
    .use = "slow links: large matrices, and many nodes",
    .source = "Vogels et al., PowerSGD, 2019",
    .whole_tensors = 1,
    .open = open_powersgd,
    .begin = begin_powersgd,
    .progress = progress_powersgd,
    .sent = sent_powersgd,
    .state = state_powersgd,
    .close = close_powersgd,
};
