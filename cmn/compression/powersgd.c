/* powersgd: sends each matrix of gradients as two thin ones. Each rank keeps what the two do not
 * hold and adds it to the next gradient.
 *
 * Steps on every rank, for each shard of rows × columns:
 *   kept += gradient;  P = kept Q;  P is summed over the ranks and made orthonormal;
 *   Q' = kept^T P;  kept -= P Q'^T;  Q' is summed over the ranks;
 *   the shard becomes P Q'^T, and Q' the next step's Q.
 * Q begins with the same random numbers on all ranks and keeps its directions from step to step. So
 * each step is one step of power iteration, and Q follows the largest singular vectors of the sum.
 *
 * Bytes sent per rank of M: 2(M-1)/M * 4r (rows + columns), with r the rank in cmn_compress, at
 * most the smaller side of the matrix. Tensors that are not matrices, or that would not become
 * smaller, are sent unchanged.
 *
 * All ranks must compute the same bits of P and the shard; lowrank.c guarantees that. A row of kept
 * with NaN or Inf makes the same row of P not finite, on all ranks. Then these rows of the shard
 * become NaN and the others zero, and each rank keeps its finite values for the next step.
 * In a group of one rank nothing is sent and nothing is changed.
 *
 * Source: Vogels, Karinthi, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
 * Distributed Optimization", 2019. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "compression/compressor.h"
#include "compression/lowrank.h"
#include "mpi/call.h"
#include "transports/sums.h"

/* What a shard waits for: the sum of P; the sum of Q'; nothing, because the shard is not finite. */
enum stage { SUM_P, SUM_Q, NOT_FINITE };

/* One shard. */
struct matrix {
    struct cmn_lowrank is; /* rank 0: it is sent unchanged, or another rank owns it */
    enum stage stage;
    long job; /* its stream's job that it waits for, counted from 1 */
    float *data, *kept;
    float *p;                 /* rank columns of `rows` */
    float *q;                 /* rank columns of `columns`: this step's Q */
    float *own_q, *sum_of_qs; /* like q: this rank's Q', the sum over the ranks */
};

/* Sums that end in the order in which they were begun. */
struct stream {
    struct cmn_sums *sums;
    long begun, ended; /* jobs */
};

struct powersgd {
    const struct cmn_compressor_plan *plan;
    /* The shards in flight, which end in the order in which they were begun: a ring of `room`
     * entries with `in_flight` shards from queue[head] on. */
    int *queue;
    int room, head, in_flight;
    long ended; /* shards that have ended since open */
    int ranks;
    /* `first` sums P, and shards that are sent unchanged; `second` sums Q'. They are two streams,
     * because the time when a Q' begins differs from rank to rank, and the order within a stream
     * must not. */
    struct stream first, second;
    MPI_Comm second_comm;
    struct matrix *matrix; /* one for each shard */
    float *kept, *q;
    size_t kept_floats, q_floats;
};

/* Returns whether this rank compresses a shard, and sets *is to its shape and rank. */
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
    for (int i = 0; i < s->plan->shards; i++) {
        free(s->matrix[i].p);
    }
    free(s->queue);
    free(s->kept);
    free(s->q);
    free(s->matrix);
    free(s);
}

static void open_matrix(struct powersgd *s, int i, float *kept, float *q)
{
    struct matrix *m = &s->matrix[i];

    m->kept = kept;
    m->q = q;
    m->p = cmn_calloc((m->is.rows + 2 * m->is.columns) * m->is.rank, sizeof *m->p);
    m->own_q = m->p + m->is.rows * m->is.rank;
    m->sum_of_qs = m->own_q + m->is.columns * m->is.rank;
    cmn_lowrank_next(&m->is, q, seed_of(s, m));
}

static void open_memory(struct powersgd *s)
{
    size_t kept_at = 0, q_at = 0;

    s->matrix = cmn_calloc((size_t)s->plan->shards, sizeof *s->matrix);
    for (int i = 0; i < s->plan->shards; i++) {
        struct matrix *m = &s->matrix[i];
        m->data = s->plan->block + s->plan->shard[i].at;
        if (form_of(s, &s->plan->shard[i], &m->is)) {
            s->kept_floats += s->plan->shard[i].n;
            s->q_floats += m->is.columns * m->is.rank;
        } else {
            m->is.rank = 0;
        }
    }
    s->kept = cmn_calloc(s->kept_floats + 1, sizeof *s->kept);
    s->q = cmn_calloc(s->q_floats + 1, sizeof *s->q);
    for (int i = 0; i < s->plan->shards; i++) {
        if (s->matrix[i].is.rank) {
            open_matrix(s, i, s->kept + kept_at, s->q + q_at);
            kept_at += s->plan->shard[i].n;
            q_at += s->matrix[i].is.columns * s->matrix[i].is.rank;
        }
    }
}

static void *open_powersgd(const struct cmn_compressor_plan *plan)
{
    struct powersgd *s = cmn_calloc(1, sizeof *s);

    s->plan = plan;
    MPI_Comm_size(plan->comm, &s->ranks);
    MPI_CALL(MPI_Comm_dup(plan->comm, &s->second_comm));
    open_memory(s);
    s->room = plan->shards ? plan->shards : 1;
    s->queue = cmn_calloc((size_t)s->room, sizeof *s->queue);
    s->first.sums = cmn_sums_open(plan->comm, plan->options, 0);
    s->second.sums = cmn_sums_open(s->second_comm, plan->options, 0);
    return s;
}

/* ---- one shard ---- */

/* Begins a sum, and returns its number in the stream, counted from 1. */
static long begin_sum(struct stream *stream, float *data, size_t n)
{
    const struct cmn_sum sum = {
        .data = data,
        .n = n,
        .dtype = CMN_FP32,
    };

    cmn_sums_begin(stream->sums, &sum);
    /* Messages that can be sent now need not wait for the next poll. */
    cmn_sums_progress(stream->sums, 0);
    return ++stream->begun;
}

/* P has been summed: computes Q' and begins its sum. All ranks have the same bits of P, so they
 * make the same decision. */
static void make_q(struct powersgd *s, struct matrix *m)
{
    size_t q = m->is.columns * m->is.rank;

    if (!cmn_lowrank_finite(m->p, m->is.rows * m->is.rank)) {
        m->stage = NOT_FINITE;
        return;
    }
    cmn_lowrank_orthonormal(&m->is, m->p);
    cmn_lowrank_right(&m->is, m->kept, m->p, m->own_q);
    memcpy(m->sum_of_qs, m->own_q, q * sizeof *m->own_q);
    m->stage = SUM_Q;
    m->job = begin_sum(&s->second, m->sum_of_qs, q);
}

/* Ends a shard that is not finite: its rows that are not finite become NaN, the others zero. Finite
 * values stay in `kept`. */
static void leave_not_finite(const struct matrix *m)
{
    for (size_t i = 0; i < m->is.rows; i++) {
        float sum = 0;
        for (size_t j = 0; j < m->is.rank; j++) {
            sum += isfinite(m->p[j * m->is.rows + i]) ? 0 : NAN;
        }
        for (size_t k = i * m->is.columns; k < (i + 1) * m->is.columns; k++) {
            m->data[k] = sum;
            m->kept[k] = isfinite(m->kept[k]) ? m->kept[k] : 0;
        }
    }
}

static void finish(const struct powersgd *s, struct matrix *m)
{
    size_t n = m->is.columns * m->is.rank;

    if (m->stage == SUM_Q && !cmn_lowrank_finite(m->sum_of_qs, n)) {
        for (size_t i = 0; i < m->is.rows * m->is.rank; i++) {
            m->p[i] = NAN; /* the sum overflowed: every row of the shard becomes NaN */
        }
        m->stage = NOT_FINITE;
    }
    if (m->stage == NOT_FINITE) {
        leave_not_finite(m);
        return;
    }
    cmn_lowrank_take(&m->is, m->kept, m->data, m->p, m->own_q, m->sum_of_qs);
    memcpy(m->q, m->sum_of_qs, n * sizeof *m->q);
    cmn_lowrank_next(&m->is, m->q, seed_of(s, m));
}

/* ---- all shards ---- */

static void poll_stream(struct stream *stream)
{
    if (stream->ended < stream->begun) {
        stream->ended = cmn_sums_progress(stream->sums, 0);
    }
}

/* Computes Q' for all shards whose P has been summed, and begins the sums of Q', in the order of
 * the shards. */
static void advance(struct powersgd *s)
{
    poll_stream(&s->first);
    for (int k = 0; k < s->in_flight; k++) {
        struct matrix *m = &s->matrix[s->queue[(s->head + k) % s->room]];
        if (!m->is.rank || m->stage != SUM_P) {
            continue;
        }
        if (m->job > s->first.ended) {
            break;
        }
        make_q(s, m);
    }
    poll_stream(&s->second);
}

static void begin_powersgd(void *self, int i)
{
    struct powersgd *s = self;
    struct matrix *m = &s->matrix[i];

    s->queue[(s->head + s->in_flight++) % s->room] = i;
    m->stage = SUM_P;
    if (m->is.rank) {
        cmn_lowrank_left(&m->is, m->kept, m->data, m->q, m->p);
        m->job = begin_sum(&s->first, m->p, m->is.rows * m->is.rank);
    } else {
        m->job = begin_sum(&s->first, m->data, s->plan->shard[i].n);
    }
}

/* Advances all shards. Returns whether m, the first one in flight, has ended. */
static int ended(struct powersgd *s, struct matrix *m)
{
    advance(s);
    if (!m->is.rank) {
        return m->job <= s->first.ended;
    }
    if (m->stage == SUM_P || (m->stage == SUM_Q && m->job > s->second.ended)) {
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

/* Returns a number that changes when messages were given to MPI or a sum has ended. */
static unsigned long long moved(const struct powersgd *s)
{
    return sent_powersgd(s) + (unsigned long long)(s->first.ended + s->second.ended);
}

static long progress_powersgd(void *self, long until)
{
    struct powersgd *s = self;
    const long timeout = s->plan->options->timeout;
    unsigned long long before = 0;
    double since = -1;

    for (;;) {
        const struct matrix *first;
        while (s->in_flight && ended(s, &s->matrix[s->queue[s->head]])) {
            s->head = (s->head + 1) % s->room;
            s->in_flight--;
            s->ended++;
        }
        if (s->ended >= until) {
            return s->ended;
        }
        first = &s->matrix[s->queue[s->head]];
        if (since < 0 || moved(s) != before) {
            before = moved(s);
            since = cmn_clock();
        } else if (cmn_status_timed_out(cmn_clock() - since, timeout)) {
            cmn_sums_stalled(first->stage == SUM_Q ? s->second.sums : s->first.sums, timeout);
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
    return 1;
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
