#include "engine/batch_norm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "mpi/kernels.h"
#include "mpi/shared_window.h"
#include "mpi/shm_barrier.h"
#include "transports/nccl.h"

struct cmn_batch_norm {
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    struct cmn_group node;
    struct cmn_window *window; /* NULL: each rank counts as a node */
    /* One rank of each node, in the order of the nodes; a duplicate, so that no other messages
     * interfere. */
    MPI_Comm inter;
    int nodes;
    size_t filters;
    double less;        /* variances are sums of squares / (count - less) */
    unsigned exchanges; /* exchanges so far; its parity selects a slot */
    /* own: the statistics of this node, then those of all ranks. all: those of each node. */
    double *own, *all;
    const double **part; /* room for a pointer to each rank's or node's */
    float *host;         /* copies of the caller's two buffers, if these are on a GPU */
    struct cmn_group world;
    /* If not NULL, the GPUs exchange by NCCL and nothing above is used; NULL: through the host. */
    void *nccl;
    float *sent;     /* with NCCL: this rank's statistics */
    float *gathered; /* with NCCL: all ranks' statistics */
    void (*idle)(void *self);
    void *idler;
};

/* A function that combines the statistics of several parts into one. */
typedef void combine(double *into, const double *const *part, int parts, size_t n);

size_t cmn_batch_norm_doubles(size_t n)
{
    return 1 + 2 * n;
}

void cmn_batch_norm_merge(double *into, const double *const *part, int parts, size_t n)
{
    double count = 0;

    for (int k = 0; k < parts; k++) {
        count += part[k][0];
    }
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

void cmn_batch_norm_add(double *into, const double *const *part, int parts, size_t n)
{
    for (size_t i = 0; i <= 2 * n; i++) {
        into[i] = 0;
        for (int k = 0; k < parts; k++) {
            into[i] += part[k][i];
        }
    }
}

static _Noreturn void fail(void)
{
    cmn_fail_in("cmn_sync_bn");
    cmn_fatal_reason();
}

static void check_room(const struct cmn_batch_norm *s, size_t n)
{
    if (n > s->filters) {
        cmn_fatal("cmn_sync_bn: %zu filters, room for %zu", n, s->filters);
    }
}

/* ---- on GPUs ---- */

static size_t floats_of(size_t n)
{
    return 2 * n + 1;
}

#ifdef GPU

/* Gathers all ranks' statistics in s->gathered. */
static void gather(struct cmn_batch_norm *s, const float *a, const float *b, size_t n, double count)
{
    check_room(s, n);
    cmn_kernel_pack_statistics(s->sent, a, b, n, (unsigned)count);
    cmn_nccl_gather(s->nccl, s->gathered, s->sent, floats_of(n));
}

#endif

/* ---- open and close ---- */

/* Collective. Opens the shared window of this node. Returns whether the ranks of every node can
 * share memory; if not, no rank has a window. */
static int open_window(struct cmn_batch_norm *s)
{
    size_t bytes = cmn_batch_norm_doubles(s->filters) * sizeof(double);
    int mine, all;

    s->node = (struct cmn_group){s->topology->intra, "intra", s->topology, s->options};
    mine = !cmn_window_open(&s->window, &s->node, 2 * bytes, bytes);
    MPI_CALL(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, s->topology->world));
    if (!all) {
        cmn_window_close(s->window);
        s->window = NULL;
        cmn_say("cmn_sync_bn: statistics go by messages only: %s",
                mine ? "ranks of another node cannot share memory" : cmn_reason());
        return 0;
    }
    cmn_window_barrier_of(s->window)->purpose = "cmn_sync_bn";
    return 1;
}

/* Uses an NCCL communicator of its own, because that of the gradients may have sums in progress. */
static void open_on_gpu(struct cmn_batch_norm *s)
{
    s->world = (struct cmn_group){s->topology->world, "cmn_sync_bn", s->topology, s->options};
    if (cmn_nccl_open(&s->nccl, &s->world) || cmn_device_memory(&s->sent, floats_of(s->filters)) ||
        cmn_device_memory(&s->gathered, floats_of(s->filters) * (size_t)s->topology->size)) {
        fail();
    }
}

/* Returns why the statistics go through the host's memory, or NULL if they need not. */
static const char *refuses_gpu(const struct cmn_topology *t, const struct cmn_options *o)
{
    return o->intra == CMN_INTRA_MPI ? "CMN_DEBUG_INTRA=mpi" : cmn_nccl_refuses(t);
}

static void open_on_host(struct cmn_batch_norm *s)
{
    const struct cmn_topology *t = s->topology;
    int shared = s->options->intra != CMN_INTRA_MPI && open_window(s), parts;
    size_t filters = s->filters, doubles = cmn_batch_norm_doubles(filters);

    s->nodes = shared ? t->inter_size : t->size;
    parts = s->nodes > t->intra_size ? s->nodes : t->intra_size;
    s->own = cmn_calloc(doubles, sizeof *s->own);
    s->all = cmn_calloc(doubles * (size_t)s->nodes, sizeof *s->all);
    s->part = cmn_calloc((size_t)parts, sizeof *s->part);
    s->host = cmn_calloc(2 * filters, sizeof *s->host);
    MPI_CALL(MPI_Comm_dup(shared ? t->inter : t->world, &s->inter));
    MPI_Comm_set_errhandler(s->inter, MPI_ERRORS_RETURN);
}

struct cmn_batch_norm *cmn_batch_norm_open(const struct cmn_topology *t,
                                           const struct cmn_options *o, size_t filters, double less)
{
    struct cmn_batch_norm *s = cmn_calloc(1, sizeof *s);
    const char *why = t->device >= 0 ? refuses_gpu(t, o) : NULL;

    s->topology = t;
    s->options = o;
    s->filters = filters;
    s->less = less;
    if (t->device >= 0 && !why) {
        open_on_gpu(s);
        return s;
    }
    if (why) {
        cmn_say("cmn_sync_bn: statistics go through the host's memory: %s", why);
    }
    open_on_host(s);
    return s;
}

void cmn_batch_norm_close(struct cmn_batch_norm *s)
{
    if (!s) {
        return;
    }
    if (s->nccl) {
        cmn_nccl_close(s->nccl);
        cmn_device_free(s->sent);
        cmn_device_free(s->gathered);
    } else {
        cmn_window_close(s->window);
        MPI_CALL(MPI_Comm_free(&s->inter));
    }
    free(s->own);
    free(s->all);
    free(s->part);
    free(s->host);
    free(s);
}

void cmn_batch_norm_idle(struct cmn_batch_norm *s, void (*idle)(void *self), void *self)
{
    s->idle = idle;
    s->idler = self;
    if (s->window) {
        cmn_window_barrier_of(s->window)->idle = idle;
        cmn_window_barrier_of(s->window)->idle_self = self;
    }
}

/* ---- exchanges ---- */

/* Waits by polling: during MPI_Wait(), exchanges in the background would make no progress. */
static void await_nodes(struct cmn_batch_norm *s, MPI_Request *request)
{
    double since = cmn_clock();
    int done = 0;

    cmn_status_wait_begin();
    for (;;) {
        MPI_CALL(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done) {
            break;
        }
        if (s->idle) {
            s->idle(s->idler);
        }
        if (cmn_status_timed_out(cmn_clock() - since, s->options->timeout)) {
            cmn_fatal_lost("cmn_sync_bn: no answer from another rank within %ld s (cmn_timeout)",
                           s->options->timeout);
        }
        sched_yield();
    }
    cmn_status_wait_end();
}

/* Combines the s->own of all nodes into `into`, in the order of the nodes. */
static void combine_nodes(struct cmn_batch_norm *s, combine *how, double *into, size_t n)
{
    int doubles = (int)cmn_batch_norm_doubles(n);
    MPI_Request request;

    MPI_CALL(MPI_Iallgather(s->own, doubles, MPI_DOUBLE, s->all, doubles, MPI_DOUBLE, s->inter,
                            &request));
    await_nodes(s, &request);
    for (int k = 0; k < s->nodes; k++) {
        s->part[k] = s->all + (size_t)k * (size_t)doubles;
    }
    how(into, s->part, s->nodes, n);
}

/* Returns the slot of a rank in this exchange. Each rank has two slots and alternates between them:
 * before it refills one, all ranks that read it have reached the barrier of the exchange in
 * between. */
static double *slot(const struct cmn_batch_norm *s, int rank)
{
    return (double *)cmn_window_part(s->window, rank) +
           (s->exchanges & 1) * cmn_batch_norm_doubles(s->filters);
}

/* Returns where this rank writes its own statistics. */
static double *mine(const struct cmn_batch_norm *s)
{
    return s->window ? slot(s, s->topology->intra_rank) : s->own;
}

/* Returns the combined statistics of all ranks, valid until the next exchange. */
static const double *exchange(struct cmn_batch_norm *s, combine *how, size_t n)
{
    const struct cmn_topology *t = s->topology;
    double *common;

    if (!s->window) {
        combine_nodes(s, how, s->own, n);
        return s->own;
    }
    cmn_window_barrier(s->window);
    for (int k = 0; k < t->intra_size; k++) {
        s->part[k] = slot(s, k);
    }
    s->exchanges++;
    if (s->nodes == 1 || t->intra_rank == 0) {
        how(s->own, s->part, t->intra_size, n);
    }
    if (s->nodes == 1) {
        return s->own;
    }
    common = cmn_window_common(s->window);
    if (t->intra_rank == 0) {
        combine_nodes(s, how, common, n);
    }
    cmn_window_barrier(s->window);
    return common;
}

/* Makes *a and *b point to copies that the CPU can read and write, if the caller's two vectors are
 * on a GPU. */
static void fetch(struct cmn_batch_norm *s, float **a, float **b, size_t n)
{
    float *from_a = *a, *from_b = *b;

    check_room(s, n);
    if (s->topology->device < 0) {
        return;
    }
    *a = s->host;
    *b = s->host + n;
    cmn_device_read(*a, from_a, n);
    cmn_device_read(*b, from_b, n);
}

static void put_back(const struct cmn_batch_norm *s, float *a, float *b, size_t n)
{
    if (s->topology->device >= 0) {
        cmn_device_write(a, s->host, n);
        cmn_device_write(b, s->host + n, n);
    }
}

void cmn_batch_norm_await(struct cmn_batch_norm *s)
{
    if (s->nccl) {
        cmn_nccl_end(s->nccl, s->idle, s->idler);
    }
}

void cmn_batch_norm_forward(struct cmn_batch_norm *s, float *mean, float *variance, size_t n,
                            double count)
{
    float *m = mean, *v = variance;
    const double *all;
    double *own;

#ifdef GPU
    if (s->nccl) {
        gather(s, mean, variance, n, count);
        cmn_kernel_merge_statistics(mean, variance, s->gathered, n, s->topology->size, s->less);
        return;
    }
#endif
    own = mine(s);
    fetch(s, &m, &v, n);
    own[0] = count;
    for (size_t i = 0; i < n; i++) {
        own[1 + i] = (double)m[i];
        /* The variance of a single value is 0 / 0. */
        own[1 + n + i] = count > s->less ? (double)v[i] * (count - s->less) : 0;
    }
    all = exchange(s, cmn_batch_norm_merge, n);
    for (size_t i = 0; i < n; i++) {
        m[i] = (float)all[1 + i];
        v[i] = (float)(all[1 + n + i] / (all[0] - s->less));
    }
    put_back(s, mean, variance, n);
}

void cmn_batch_norm_backward(struct cmn_batch_norm *s, float *mean_delta, float *variance_delta,
                             size_t n, double count)
{
    float *m = mean_delta, *v = variance_delta;
    const double *all;
    double *own;

#ifdef GPU
    if (s->nccl) {
        gather(s, mean_delta, variance_delta, n, count);
        cmn_kernel_merge_deltas(mean_delta, variance_delta, s->gathered, n, s->topology->size,
                                (unsigned)count);
        return;
    }
#endif
    own = mine(s);
    fetch(s, &m, &v, n);
    own[0] = count;
    for (size_t i = 0; i < n; i++) {
        own[1 + i] = (double)m[i];
        own[1 + n + i] = (double)v[i];
    }
    all = exchange(s, cmn_batch_norm_add, n);
    for (size_t i = 0; i < n; i++) {
        m[i] = (float)(all[1 + i] * (count / all[0]));
        v[i] = (float)(all[1 + n + i] * (count / all[0]));
    }
    put_back(s, mean_delta, variance_delta, n);
}
