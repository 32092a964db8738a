/* shm: the ranks of a node move floats through memory that they share.
 *
 * Data in memory that this transport gave is used where it lies: all meet, each rank works on its slice of
 * everybody's data, all meet. Other data is piped: it goes chunk by chunk through slots in a window, two for each
 * rank, so that one is filled while the other may still be read. One barrier a chunk is enough: who fills
 * a slot again has met all others after they read it. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/reduce.h"
#include "mpi/regions.h"
#include "transports/transport.h"
#include "mpi/shared_window.h"

/* Floats of a slot: 1 MiB; of 1/8 to 4 MiB it took the least time. */
enum { SLOT = 262144, LINE = 16 };

/* Ways of writing what others read, each found out on its own. */
enum kind { HERE, SUM, SCATTER, GATHER, KINDS };

/* Below so many floats it is the barriers that cost, and caches that serve best. */
enum { SMALL = 16384 };

struct shm {
    struct cmn_window
        *window; /* of the slots: two filled by their rank, two with sums made by it */
    struct cmn_regions parts;
    int rank, ranks;
    unsigned turn; /* barriers; the slots take turns with them, over all calls */
    struct cmn_stores stores[KINDS];
    int past; /* in the call that runs */
};

static const char *refuses_shm(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return t->device >= 0 ? "shm moves the CPU's memory, the gradients are on a GPU: use nccl"
                          : NULL;
}

static int open_shm(void **self, const struct cmn_group *group)
{
    struct shm *s = calloc(1, sizeof *s);

    if (!s) {
        return cmn_fail("shm: out of memory");
    }
    *self = s;
    MPI_Comm_rank(group->comm, &s->rank);
    MPI_Comm_size(group->comm, &s->ranks);
    if (cmn_regions_open(&s->parts, group)) {
        return -1;
    }
    return cmn_window_open(&s->window, group, 4 * SLOT * sizeof(float), 0);
}

static int memory_shm(void *self, size_t floats, float **memory)
{
    struct shm *s = self;

    return cmn_regions_memory(&s->parts, floats, memory);
}

static int meet(struct shm *s)
{
    s->turn++;
    return cmn_window_barrier(s->window);
}

static double begin(struct shm *s, enum kind kind, size_t n)
{
    s->past = n >= SMALL && cmn_stores_non_temporal(&s->stores[kind]);
    return cmn_clock();
}

static void end(struct shm *s, enum kind kind, size_t n, double began)
{
    if (n >= SMALL) {
        cmn_stores_took(&s->stores[kind], cmn_clock() - began, n);
    }
}

/* ---- data that lies in the window ---- */

static int allreduce_here(struct shm *s, size_t n)
{
    size_t at, count;
    double began;

    cmn_slice(n, s->ranks, s->rank, &at, &count);
    if (meet(s)) {
        return -1;
    }
    began = begin(s, HERE, n);
    cmn_reduce_broadcast(cmn_regions_at(&s->parts, at), s->ranks, s->rank, s->past, count);
    end(s, HERE, n, began);
    return meet(s);
}

static int reduce_here(struct shm *s, size_t n)
{
    size_t at, count;
    double began;

    cmn_slice(n, s->ranks, s->rank, &at, &count);
    if (meet(s)) {
        return -1;
    }
    began = begin(s, HERE, n);
    cmn_reduce(s->parts.part[0] + at, cmn_regions_at(&s->parts, at), s->ranks,
               s->past && s->rank != 0, count);
    end(s, HERE, n, began);
    return meet(s);
}

static int reduce_scatter_here(struct shm *s, size_t n, int slices)
{
    size_t at, count;

    if (meet(s)) {
        return -1;
    }
    if (s->rank < slices) {
        cmn_slice(n, slices, s->rank, &at, &count);
        cmn_reduce(s->parts.part[s->rank] + at, cmn_regions_at(&s->parts, at), s->ranks, 0, count);
    }
    return meet(s);
}

static int allgather_here(struct shm *s, size_t n, int slices)
{
    size_t at, count;

    if (meet(s)) {
        return -1;
    }
    for (int i = 0; i < slices; i++) {
        cmn_slice(n, slices, i, &at, &count);
        if (i != s->rank) {
            memcpy(s->parts.part[s->rank] + at, s->parts.part[i] + at, count * sizeof(float));
        }
    }
    return meet(s);
}

static int bcast_here(struct shm *s, size_t n)
{
    if (meet(s)) {
        return -1;
    }
    if (s->rank != 0) {
        memcpy(s->parts.part[s->rank], s->parts.part[0], n * sizeof(float));
    }
    return meet(s);
}

/* ---- data that is piped ---- */

/* The slot that `rank` fills for the barrier that is numbered `turn`; its sums lie two slots on. */
static float *slot(const struct shm *s, int rank, unsigned turn)
{
    return (float *)cmn_window_part(s->window, rank) + (size_t)(turn & 1) * SLOT;
}

static float *sums(const struct shm *s, int rank, unsigned turn)
{
    return slot(s, rank, turn) + (size_t)2 * SLOT;
}

static size_t chunk_at(size_t n, size_t at, size_t chunk)
{
    return at >= n ? 0 : n - at < chunk ? n - at : chunk;
}

/* Sums `count` floats at `at` of every rank's slot of this turn; what this rank has itself is at `own`. */
static void sum_slots(struct shm *s, unsigned turn, size_t at, float *own, float *into,
                      size_t count)
{
    for (int k = 0; k < s->ranks; k++) {
        s->parts.cursor[k] = k == s->rank ? own : slot(s, k, turn) + at;
    }
    cmn_reduce(into, s->parts.cursor, s->ranks, 0, count);
}

/* Fetches the sums that the others made of a chunk in an earlier turn. */
static void fetch_sums(struct shm *s, unsigned turn, float *chunk, size_t count)
{
    size_t at, n;

    for (int k = 0; k < s->ranks; k++) {
        cmn_slice(count, s->ranks, k, &at, &n);
        if (k != s->rank) {
            memcpy(chunk + at, sums(s, k, turn) + at, n * sizeof *chunk);
        }
    }
}

/* Sum of all data, on all ranks or (`to_all` 0) on rank 0. While a chunk is summed the sums of the one before are
 * fetched. */
static int pipe_sum(struct shm *s, float *data, size_t n, int to_all)
{
    int fetches = to_all || s->rank == 0;
    size_t at, own, count, before = 0;
    unsigned turn;

    for (at = 0; at < n || before; at += SLOT) {
        size_t chunk = chunk_at(n, at, SLOT);
        turn = s->turn;
        for (int k = 0; k < s->ranks; k++) {
            cmn_slice(chunk, s->ranks, k, &own, &count);
            if (k != s->rank) {
                cmn_store(slot(s, s->rank, turn) + own, data + at + own, s->past, count);
            }
        }
        if (meet(s)) {
            return -1;
        }
        if (before && fetches) {
            fetch_sums(s, turn - 1, data + at - SLOT, before);
        }
        cmn_slice(chunk, s->ranks, s->rank, &own, &count);
        sum_slots(s, turn, own, data + at + own, data + at + own, count);
        cmn_store(sums(s, s->rank, turn) + own, data + at + own, s->past, count);
        before = chunk;
    }
    return 0;
}

/* Floats of each slice that one turn moves, so that all slices are worked on at once. */
static size_t share(int slices)
{
    return SLOT / (size_t)slices / LINE * LINE;
}

/* Turns that the longest slice takes. */
static size_t turns(size_t n, int slices)
{
    size_t longest = 0, at, count;

    for (int i = 0; i < slices; i++) {
        cmn_slice(n, slices, i, &at, &count);
        longest = count > longest ? count : longest;
    }
    return (longest + share(slices) - 1) / share(slices);
}

static int pipe_scatter(struct shm *s, float *data, size_t n, int slices)
{
    const size_t most = share(slices);
    size_t at, count;

    for (size_t t = 0; t < turns(n, slices); t++) {
        unsigned turn = s->turn;
        for (int i = 0; i < slices; i++) {
            cmn_slice(n, slices, i, &at, &count);
            if (i != s->rank) {
                cmn_store(slot(s, s->rank, turn) + (size_t)i * most, data + at + t * most, s->past,
                          chunk_at(count, t * most, most));
            }
        }
        if (meet(s)) {
            return -1;
        }
        if (s->rank < slices) {
            float *own;
            cmn_slice(n, slices, s->rank, &at, &count);
            own = data + at + t * most;
            sum_slots(s, turn, (size_t)s->rank * most, own, own, chunk_at(count, t * most, most));
        }
    }
    return 0;
}

static int pipe_gather(struct shm *s, float *data, size_t n, int slices)
{
    const size_t most = share(slices);
    size_t at, count;

    for (size_t t = 0; t < turns(n, slices); t++) {
        unsigned turn = s->turn;
        if (s->rank < slices) {
            cmn_slice(n, slices, s->rank, &at, &count);
            cmn_store(slot(s, s->rank, turn), data + at + t * most, s->past,
                      chunk_at(count, t * most, most));
        }
        if (meet(s)) {
            return -1;
        }
        for (int i = 0; i < slices; i++) {
            cmn_slice(n, slices, i, &at, &count);
            if (i != s->rank) {
                memcpy(data + at + t * most, slot(s, i, turn),
                       chunk_at(count, t * most, most) * sizeof *data);
            }
        }
    }
    return 0;
}

/* ---- the operations ---- */

/* `slices` for SCATTER and GATHER; for SUM, whether all ranks get it. */
static int pipe_data(struct shm *s, enum kind kind, float *data, size_t n, int slices)
{
    double began = begin(s, kind, n);
    int result = kind == SUM       ? pipe_sum(s, data, n, slices)
                 : kind == SCATTER ? pipe_scatter(s, data, n, slices)
                                   : pipe_gather(s, data, n, slices);

    end(s, kind, n, began);
    return result;
}

static int nothing_to_do(const struct shm *s, size_t n)
{
    return s->ranks == 1 || n == 0;
}

static int allreduce_shm(void *self, float *data, size_t n)
{
    struct shm *s = self;

    if (nothing_to_do(s, n)) {
        return 0;
    }
    return cmn_regions_find(&s->parts, data, n) ? allreduce_here(s, n)
                                                : pipe_data(s, SUM, data, n, 1);
}

static int reduce_shm(void *self, float *data, size_t n)
{
    struct shm *s = self;

    if (nothing_to_do(s, n)) {
        return 0;
    }
    return cmn_regions_find(&s->parts, data, n) ? reduce_here(s, n) : pipe_data(s, SUM, data, n, 0);
}

static int reduce_scatter_shm(void *self, float *data, size_t n, int slices)
{
    struct shm *s = self;

    if (nothing_to_do(s, n)) {
        return 0;
    }
    return cmn_regions_find(&s->parts, data, n) ? reduce_scatter_here(s, n, slices)
                                                : pipe_data(s, SCATTER, data, n, slices);
}

static int allgather_shm(void *self, float *data, size_t n, int slices)
{
    struct shm *s = self;

    if (nothing_to_do(s, n)) {
        return 0;
    }
    return cmn_regions_find(&s->parts, data, n) ? allgather_here(s, n, slices)
                                                : pipe_data(s, GATHER, data, n, slices);
}

static int bcast_shm(void *self, float *data, size_t n)
{
    struct shm *s = self;

    if (nothing_to_do(s, n)) {
        return 0;
    }
    return cmn_regions_find(&s->parts, data, n) ? bcast_here(s, n)
                                                : pipe_data(s, GATHER, data, n, 1);
}

static void close_shm(void *self)
{
    struct shm *s = self;

    cmn_window_close(s->window);
    cmn_regions_close(&s->parts);
    free(s);
}

const struct cmn_transport cmn_shm = {
    .name = "shm",
    .refuses = refuses_shm,
    .open = open_shm,
    .memory = memory_shm,
    .allreduce = allreduce_shm,
    .reduce = reduce_shm,
    .reduce_scatter = reduce_scatter_shm,
    .allgather = allgather_shm,
    .bcast = bcast_shm,
    .close = close_shm,
};
