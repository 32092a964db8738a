/* powersgd: each matrix of gradients travels as two thin ones; what they do not hold is kept and added to the next gradient.
 *
 * Steps, for each shard of rows × columns, on every rank:
 *   kept += gradient;  P = kept Q;  P is summed over the ranks and made orthonormal;
 *   Q' = kept^T P;  kept -= P Q'^T;  Q' is summed over the ranks;  the shard becomes P Q'^T, and Q' the next step's Q.
 * Q begins with the same random numbers on all ranks, and keeps its directions from step to step: so a step costs one
 * step of power iteration, and follows the largest singular vectors of the sum.
 * Bytes sent per rank of M: 2(M-1)/M * 4r (rows + columns), with r = cmn_compress_rank, at most the smaller side.
 * Tensors that are no matrices, and those that would not become smaller so, travel whole.
 * All ranks must compute the same bits of P and the shard: lowrank.c promises that.
 * What is not finite makes the rows of P in which it stands not finite, on all ranks. Then those rows of the shard become NaN and
 * the others zero, and each rank keeps what is finite for the next step.
 * In a group of one rank nothing travels, and nothing is changed.
 * Vogels, Karinthi, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", 2019. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compression/compressor.h"
#include "compression/lowrank.h"
#include "compression/shard_queue.h"
#include "base/log.h"
#include "mpi/topology.h"
#include "transports/pairwise.h"

enum stage { LEFT, RIGHT, NOT_FINITE };

/* A shard. */
struct matrix {
    struct cmn_lowrank is; /* rank 0: it travels whole, or is another owner's */
    enum stage stage;
    long job; /* how many jobs there were with the one that it waits for */
    float *data, *kept;
    float *p; /* rank columns of `rows` */
    float *q, *own,
        *all; /* rank columns of `columns`: this step's Q; this rank's Q', and the sum */
};

struct powersgd {
    const struct cmn_compressor_plan *plan;
    struct cmn_shard_queue order;
    int ranks;
    /* What travels whole and P; Q'. Two streams, for when a Q' begins depends on time, and the order within a stream must
     * not. */
    MPI_Comm again;
    struct cmn_pairwise *left, *right;
    long lefts, rights, lefts_over, rights_over; /* jobs begun, and ended */
    struct matrix *matrix;                       /* for each shard */
    float *kept, *q, *work;
    size_t kept_floats, q_floats;
};

/* Whether a shard is one for this rank to encode, and how. */
static int form_of(const struct powersgd *s, const struct cmn_shard *shard, struct cmn_lowrank *is)
{
    size_t rows = (size_t)shard->rows, rank = (size_t)s->plan->options->compress_rank;
    size_t columns = rows ? shard->n / rows : 0;

    rank = rank > rows ? rows : rank;
    rank = rank > columns ? columns : rank;
    *is = (struct cmn_lowrank){rows, columns, rank};
    return shard->owner == s->plan->owner && !shard->whole && s->ranks > 1 && rank &&
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

    cmn_pairwise_close(s->left);
    cmn_pairwise_close(s->right);
    if (s->again != MPI_COMM_NULL) {
        MPI_Comm_free(&s->again);
    }
    cmn_shard_queue_close(&s->order);
    free(s->matrix);
    free(s->kept);
    free(s->q);
    free(s->work);
    free(s);
}

static int open_memory(struct powersgd *s)
{
    size_t work = 0, kept_at = 0, q_at = 0;
    float *at;
    struct cmn_lowrank is;

    s->matrix = calloc((size_t)s->plan->shards + 1, sizeof *s->matrix);
    for (int i = 0; i < s->plan->shards; i++) {
        if (form_of(s, &s->plan->shard[i], &is)) {
            s->kept_floats += s->plan->shard[i].n;
            s->q_floats += is.columns * is.rank;
            work += (is.rows + 2 * is.columns) * is.rank;
        }
    }
    s->kept = calloc(s->kept_floats + 1, sizeof *s->kept);
    s->q = calloc(s->q_floats + 1, sizeof *s->q);
    s->work = calloc(work + 1, sizeof *s->work);
    if (!s->matrix || !s->kept || !s->q || !s->work) {
        return cmn_fail("out of memory for what powersgd keeps: %zu floats",
                        s->kept_floats + s->q_floats + work);
    }
    at = s->work;
    for (int i = 0; i < s->plan->shards; i++) {
        struct matrix *m = &s->matrix[i];
        if (!form_of(s, &s->plan->shard[i], &is)) {
            continue;
        }
        *m = (struct matrix){.is = is, .kept = s->kept + kept_at, .q = s->q + q_at, .p = at};
        m->data = s->plan->block + s->plan->shard[i].at;
        m->own = m->p + is.rows * is.rank;
        m->all = m->own + is.columns * is.rank;
        at = m->all + is.columns * is.rank;
        kept_at += s->plan->shard[i].n;
        q_at += is.columns * is.rank;
        cmn_lowrank_next(&is, m->q, seed_of(s, m));
    }
    return 0;
}

static int open_powersgd(void **self, const struct cmn_compressor_plan *plan)
{
    struct powersgd *s = calloc(1, sizeof *s);

    if (!s) {
        return cmn_fail("out of memory");
    }
    s->plan = plan;
    s->again = MPI_COMM_NULL;
    MPI_Comm_size(plan->comm, &s->ranks);
    if (cmn_mpi_check(MPI_Comm_dup(plan->comm, &s->again), "MPI_Comm_dup") || open_memory(s) ||
        cmn_shard_queue_open(&s->order, plan) || cmn_pairwise_open(&s->left, plan->comm, 0) ||
        cmn_pairwise_open(&s->right, s->again, 0)) {
        close_powersgd(s);
        return -1;
    }
    *self = s;
    return 0;
}

/* ---- one shard ---- */

static int begin_sum(const struct powersgd *s, struct cmn_pairwise *stream, float *data, size_t n)
{
    const struct cmn_pairwise_job job = {
        .data = data,
        .n = n,
        .slices = s->ranks,
        .what = CMN_SCATTER | CMN_GATHER,
        .dtype = CMN_FP32,
    };

    /* What can leave now should not wait for the next call. */
    return cmn_pairwise_begin(stream, &job) || cmn_pairwise_progress(stream, 0) < 0 ? -1 : 0;
}

static int begin_powersgd(void *self, int i)
{
    struct powersgd *s = self;
    const struct cmn_shard *shard = &s->plan->shard[i];
    struct matrix *m = &s->matrix[i];

    cmn_shard_queue_begin(&s->order, i);
    m->job = ++s->lefts;
    if (!m->is.rank) {
        return begin_sum(s, s->left, s->plan->block + shard->at, shard->n);
    }
    m->stage = LEFT;
    cmn_lowrank_left(&m->is, m->kept, m->data, m->q, m->p);
    return begin_sum(s, s->left, m->p, m->is.rows * m->is.rank);
}

/* P has been summed. All ranks see the same bits of it, and go the same way. */
static int go_right(struct powersgd *s, struct matrix *m)
{
    size_t n = m->is.columns * m->is.rank;

    if (!cmn_lowrank_finite(m->p, m->is.rows * m->is.rank)) {
        m->stage = NOT_FINITE;
        return 0;
    }
    m->stage = RIGHT;
    cmn_lowrank_orthonormal(&m->is, m->p);
    cmn_lowrank_right(&m->is, m->kept, m->p, m->own);
    memcpy(m->all, m->own, n * sizeof *m->all);
    m->job = ++s->rights;
    return begin_sum(s, s->right, m->all, n);
}

/* Shows which rows are not finite, and keeps the rest. */
static void give_up(const struct matrix *m)
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

    if (m->stage == RIGHT && !cmn_lowrank_finite(m->all, n)) {
        for (size_t i = 0; i < m->is.rows * m->is.rank; i++) {
            m->p[i] = NAN; /* the sum is too large for a float, wherever */
        }
        m->stage = NOT_FINITE;
    }
    if (m->stage == NOT_FINITE) {
        give_up(m);
        return;
    }
    cmn_lowrank_take(&m->is, m->kept, m->data, m->p, m->own, m->all);
    memcpy(m->q, m->all, n * sizeof *m->q);
    cmn_lowrank_next(&m->is, m->q, seed_of(s, m));
}

/* ---- all shards ---- */

/* Begins Q' of all whose P is there, in the order of the shards. */
static int move(struct powersgd *s)
{
    s->lefts_over = s->lefts_over < s->lefts ? cmn_pairwise_progress(s->left, 0) : s->lefts_over;
    if (s->lefts_over < 0) {
        return -1;
    }
    for (int i = 0; i < s->order.under_way; i++) {
        struct matrix *m = &s->matrix[cmn_shard_queue_at(&s->order, i)];
        if (!m->is.rank || m->stage != LEFT) {
            continue;
        }
        if (m->job > s->lefts_over) {
            break;
        }
        if (go_right(s, m)) {
            return -1;
        }
    }
    s->rights_over =
        s->rights_over < s->rights ? cmn_pairwise_progress(s->right, 0) : s->rights_over;
    return s->rights_over < 0 ? -1 : 0;
}

static int over(void *self, int i)
{
    struct powersgd *s = self;
    struct matrix *m = &s->matrix[i];

    if (move(s)) {
        return -1;
    }
    if (!m->is.rank) {
        return m->job <= s->lefts_over;
    }
    if (m->stage == LEFT || (m->stage == RIGHT && m->job > s->rights_over)) {
        return 0;
    }
    finish(s, m);
    return 1;
}

static unsigned long long sent_powersgd(const void *self)
{
    const struct powersgd *s = self;

    return cmn_pairwise_sent(s->left) + cmn_pairwise_sent(s->right);
}

static unsigned long long moved(const void *self)
{
    const struct powersgd *s = self;

    return sent_powersgd(s) + (unsigned long long)(s->lefts_over + s->rights_over);
}

static int late(void *self, int i, long seconds)
{
    struct powersgd *s = self;
    const struct matrix *m = &s->matrix[i];

    return cmn_pairwise_late(m->is.rank && m->stage == RIGHT ? s->right : s->left, seconds);
}

static long progress_powersgd(void *self, long until)
{
    static const struct cmn_shard_queue_ops calls = {over, moved, late};
    struct powersgd *s = self;

    return cmn_shard_queue_progress(&s->order, until, s, &calls);
}

static int state_powersgd(void *self, int i, struct cmn_state *state)
{
    struct powersgd *s = self;

    if (s->kept_floats == 0 || i > 1) {
        return 0;
    }
    *state = i == 0
                 ? (struct cmn_state){"kept by powersgd", s->kept, s->kept_floats * sizeof *s->kept}
                 : (struct cmn_state){"directions of powersgd", s->q, s->q_floats * sizeof *s->q};
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
