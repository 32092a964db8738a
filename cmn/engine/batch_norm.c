#include "engine/batch_norm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/device.h"
#include "base/log.h"
#include "mpi/shm_barrier.h"
#include "mpi/shared_window.h"
#include "base/status.h"

struct cmn_batch_norm {
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    struct cmn_group node;
    struct cmn_window *window; /* NULL: each rank counts as a node */
    MPI_Comm far;              /* one rank of each node, in the order of the nodes; our own: nobody
                                  else's messages come between */
    int nodes;
    size_t filters;
    unsigned turn;       /* exchanges so far */
    double *own, *all;   /* of this node, or of everybody; of all nodes */
    const double **part; /* room for a pointer to each rank's or node's */
    float *host;         /* with buffers on a GPU: what lies in them */
    int (*idle)(void *self);
    void *idler;
};

/* How descriptions become one. */
typedef void combine(double *into, const double *const *part, int parts, size_t n);

size_t cmn_batch_norm_doubles(size_t n)
{
    return 1 + 2 * n;
}

static double count_of(const double *const *part, int parts)
{
    double count = 0;

    for (int k = 0; k < parts; k++) {
        count += part[k][0];
    }
    return count;
}

void cmn_batch_norm_merge(double *into, const double *const *part, int parts, size_t n)
{
    double count = count_of(part, parts);

    into[0] = count;
    for (size_t i = 1; i <= n; i++) {
        double first = part[0][i], shift = 0, squares = 0, mean;
        for (int k = 0; k < parts; k++) {
            shift += part[k][0] * (part[k][i] - first);
        }
        mean = first + shift / count;
        for (int k = 0; k < parts; k++) {
            double distance = part[k][i] - mean;
            squares += part[k][i + n] + part[k][0] * distance * distance;
        }
        into[i] = mean;
        into[i + n] = squares;
    }
}

static void add(double *into, const double *const *part, int parts, size_t n)
{
    into[0] = count_of(part, parts);
    for (size_t i = 1; i <= 2 * n; i++) {
        into[i] = 0;
        for (int k = 0; k < parts; k++) {
            into[i] += part[k][i];
        }
    }
}

/* ---- the beginning and the end ---- */

static int open_near(struct cmn_batch_norm *s)
{
    size_t bytes = cmn_batch_norm_doubles(s->filters) * sizeof(double);

    s->node = (struct cmn_group){s->topology->intra, "intra", s->topology, s->options, 0};
    if (cmn_window_open(&s->window, &s->node, 2 * bytes, bytes)) {
        return cmn_fail_in("cmn_sync_bn (without shared memory: cmn_intra=mpi)");
    }
    return 0;
}

int cmn_batch_norm_open(struct cmn_batch_norm **norm, const struct cmn_topology *t,
                        const struct cmn_options *o, size_t filters)
{
    int shares = o->intra != CMN_INTRA_MPI, parts;
    struct cmn_batch_norm *s = calloc(1, sizeof *s);
    size_t doubles = cmn_batch_norm_doubles(filters);

    *norm = s;
    if (!s) {
        return cmn_fail("cmn_sync_bn: out of memory");
    }
    s->topology = t;
    s->options = o;
    s->filters = filters;
    s->nodes = shares ? t->inter_size : t->size;
    s->far = MPI_COMM_NULL;
    parts = s->nodes > t->intra_size ? s->nodes : t->intra_size;
    s->own = calloc(doubles, sizeof *s->own);
    s->all = calloc(doubles * (size_t)s->nodes, sizeof *s->all);
    s->part = calloc((size_t)parts, sizeof *s->part);
    s->host = calloc(2 * filters + 1, sizeof *s->host);
    if (!s->own || !s->all || !s->part || !s->host) {
        return cmn_fail("cmn_sync_bn: out of memory");
    }
    if (cmn_mpi_check(MPI_Comm_dup(shares ? t->inter : t->world, &s->far), "MPI_Comm_dup")) {
        return -1;
    }
    MPI_Comm_set_errhandler(s->far, MPI_ERRORS_RETURN);
    return shares ? open_near(s) : 0;
}

void cmn_batch_norm_close(struct cmn_batch_norm *s)
{
    if (!s) {
        return;
    }
    cmn_window_close(s->window);
    if (s->far != MPI_COMM_NULL) {
        MPI_Comm_free(&s->far);
    }
    free(s->own);
    free(s->all);
    free(s->part);
    free(s->host);
    free(s);
}

void cmn_batch_norm_idle(struct cmn_batch_norm *s, int (*idle)(void *self), void *self)
{
    s->idle = idle;
    s->idler = self;
    if (s->window) {
        cmn_window_barrier_of(s->window)->idle = idle;
        cmn_window_barrier_of(s->window)->idler = self;
    }
}

/* ---- exchanges ---- */

static int ask_nodes(struct cmn_batch_norm *s, MPI_Request *request)
{
    double since = cmn_clock();
    int done = 0;

    for (;;) {
        if (cmn_mpi_check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Iallgather")) {
            return -1;
        }
        if (done) {
            return 0;
        }
        if (s->idle && s->idle(s->idler)) {
            return -1;
        }
        if (cmn_status_timed_out(cmn_clock() - since, s->options->timeout)) {
            return cmn_fail_lost("no answer from another rank within %ld s (cmn_timeout)",
                                 s->options->timeout);
        }
        sched_yield();
    }
}

/* MPI's own wait would let nothing else go on. */
static int await_nodes(struct cmn_batch_norm *s, MPI_Request *request)
{
    int result;

    cmn_status_wait_begin();
    result = ask_nodes(s, request);
    cmn_status_wait_end();
    return result;
}

/* s->own of each node becomes, at `into`, what all of them are together. */
static int combine_nodes(struct cmn_batch_norm *s, combine *how, double *into, size_t n)
{
    int doubles = (int)cmn_batch_norm_doubles(n);
    MPI_Request request;

    if (cmn_mpi_check(MPI_Iallgather(s->own, doubles, MPI_DOUBLE, s->all, doubles, MPI_DOUBLE,
                                     s->far, &request),
                      "MPI_Iallgather") ||
        await_nodes(s, &request)) {
        return -1;
    }
    for (int k = 0; k < s->nodes; k++) {
        s->part[k] = s->all + (size_t)k * (size_t)doubles;
    }
    how(into, s->part, s->nodes, n);
    return 0;
}

/* Two slots take turns: who fills one again has met all others after they read it. */
static double *slot(const struct cmn_batch_norm *s, int rank)
{
    return (double *)cmn_window_part(s->window, rank) +
           (s->turn & 1) * cmn_batch_norm_doubles(s->filters);
}

/* What this rank gives goes there. */
static double *given(const struct cmn_batch_norm *s)
{
    return s->window ? slot(s, s->topology->intra_rank) : s->own;
}

/* *result stays until the next exchange. */
static int exchange(struct cmn_batch_norm *s, combine *how, size_t n, const double **result)
{
    const struct cmn_topology *t = s->topology;
    double *common;

    if (!s->window) {
        *result = s->own;
        return combine_nodes(s, how, s->own, n);
    }
    if (cmn_window_barrier(s->window)) {
        return -1;
    }
    for (int k = 0; k < t->intra_size; k++) {
        s->part[k] = slot(s, k);
    }
    s->turn++;
    *result = s->own;
    if (s->nodes == 1 || t->intra_rank == 0) {
        how(s->own, s->part, t->intra_size, n);
    }
    if (s->nodes == 1) {
        return 0;
    }
    *result = common = cmn_window_common(s->window);
    if (t->intra_rank == 0 && combine_nodes(s, how, common, n)) {
        return -1;
    }
    return cmn_window_barrier(s->window);
}

/* The caller's two vectors, where the CPU can read and write them. */
static int fetch(struct cmn_batch_norm *s, float **a, float **b, size_t n)
{
    float *from_a = *a, *from_b = *b;

    if (n > s->filters) {
        return cmn_fail("%zu filters, room for %zu", n, s->filters);
    }
    if (s->topology->device < 0) {
        return 0;
    }
    *a = s->host;
    *b = s->host + n;
    return cmn_device_read(*a, from_a, n) || cmn_device_read(*b, from_b, n) ? -1 : 0;
}

static int put_back(const struct cmn_batch_norm *s, float *a, float *b, size_t n)
{
    if (s->topology->device < 0) {
        return 0;
    }
    return cmn_device_write(a, s->host, n) || cmn_device_write(b, s->host + n, n) ? -1 : 0;
}

int cmn_batch_norm_forward(struct cmn_batch_norm *s, float *mean, float *variance, size_t n,
                           double count)
{
    float *m = mean, *v = variance;
    const double *all;
    double *mine = given(s);

    if (fetch(s, &m, &v, n)) {
        return cmn_fail_in("cmn_sync_bn");
    }
    mine[0] = count;
    for (size_t i = 0; i < n; i++) {
        mine[1 + i] = (double)m[i];
        /* The variance of one value is 0 / 0. */
        mine[1 + n + i] = count > 1 ? (double)v[i] * (count - 1) : 0;
    }
    if (exchange(s, cmn_batch_norm_merge, n, &all)) {
        return cmn_fail_in("cmn_sync_bn");
    }
    for (size_t i = 0; i < n; i++) {
        m[i] = (float)all[1 + i];
        v[i] = (float)(all[1 + n + i] / (all[0] - 1));
    }
    return put_back(s, mean, variance, n);
}

int cmn_batch_norm_backward(struct cmn_batch_norm *s, float *mean_delta, float *variance_delta,
                            size_t n, double count)
{
    float *m = mean_delta, *v = variance_delta;
    const double *all;
    double *mine = given(s);

    if (fetch(s, &m, &v, n)) {
        return cmn_fail_in("cmn_sync_bn");
    }
    mine[0] = count;
    for (size_t i = 0; i < n; i++) {
        mine[1 + i] = (double)m[i];
        mine[1 + n + i] = (double)v[i];
    }
    if (exchange(s, add, n, &all)) {
        return cmn_fail_in("cmn_sync_bn");
    }
    for (size_t i = 0; i < n; i++) {
        m[i] = (float)(all[1 + i] * (count / all[0]));
        v[i] = (float)(all[1 + n + i] * (count / all[0]));
    }
    return put_back(s, mean_delta, variance_delta, n);
}
