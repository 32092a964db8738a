/* mpi: the sums of MPI itself in chunks, or, in main memory, of pairwise.c.
 *
 * Open MPI 4.1 allocates the temporary of a large allreduce in every call, and chooses an algorithm by size
 * alone. pairwise.c keeps its memory, adds in the order of the ranks, and keeps both directions of a link
 * busy. Small sums are left to MPI, whose algorithms need fewer messages; so are broadcasts, which need no
 * temporary, and all memory of a GPU, which only MPI can reach. */
#include <stdlib.h>

#include "mpi/device.h"
#include "base/log.h"
#include "mpi/topology.h"
#include "transports/pairwise.h"
#include "transports/transport.h"

/* Floats in one call of MPI: bounds Open MPI's temporary, and is never near the largest count that an int
 * holds. Of 1/4 to 8 MiB, 4 MiB took the least time (docs/performance.md). */
enum { CHUNK = 1024 * 1024 };

/* Sums of fewer floats are left to MPI: there the number of messages counts, not their length. */
enum { SMALL = 16 * 1024 };

struct mpi {
    const struct cmn_group *group;
    struct cmn_pairwise *pairwise; /* NULL: MPI's own algorithms alone */
    size_t chunk;
    int rank, ranks;
};

static const char *refuses_mpi(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return cmn_device_refuses_mpi(t);
}

static int open_mpi(void **self, const struct cmn_group *group)
{
    struct mpi *m = calloc(1, sizeof *m);

    if (!m) {
        return cmn_fail("mpi: out of memory");
    }
    m->group = group;
    m->chunk = group->chunk == 0              ? CHUNK
               : group->chunk > CMN_MPI_CHUNK ? CMN_MPI_CHUNK
                                              : group->chunk;
    MPI_Comm_rank(group->comm, &m->rank);
    MPI_Comm_size(group->comm, &m->ranks);
    *self = m;
    if (group->chunk == 0 && group->topology->device < 0 && m->ranks > 1) {
        return cmn_pairwise_open(&m->pairwise, group->comm, 0);
    }
    return 0;
}

static int checked(const struct mpi *m, int code, const char *what, size_t count, size_t at,
                   size_t n)
{
    if (cmn_mpi_check(code, what)) {
        return cmn_fail_in("mpi: %s: %zu floats at %zu of %zu", m->group->name, count, at, n);
    }
    return 0;
}

static size_t piece(const struct mpi *m, size_t n, size_t at)
{
    return n - at < m->chunk ? n - at : m->chunk;
}

/* Says where, when pairwise.c has said what. */
static int paired(const struct mpi *m, float *data, size_t n, int slices, int what)
{
    if (cmn_pairwise_run(m->pairwise, data, n, slices, what)) {
        return cmn_fail_in("mpi: %s: %zu floats", m->group->name, n);
    }
    return 0;
}

static int allreduce_mpi(void *self, float *data, size_t n)
{
    const struct mpi *m = self;

    if (m->ranks == 1) {
        return 0;
    }
    if (m->pairwise && n >= SMALL) {
        return paired(m, data, n, m->ranks, CMN_SCATTER | CMN_GATHER);
    }
    for (size_t at = 0; at < n; at += m->chunk) {
        size_t count = piece(m, n, at);
        int code =
            MPI_Allreduce(MPI_IN_PLACE, data + at, (int)count, MPI_FLOAT, MPI_SUM, m->group->comm);
        if (checked(m, code, "MPI_Allreduce", count, at, n)) {
            return -1;
        }
    }
    return 0;
}

static int reduce_to(const struct mpi *m, float *data, size_t n, int root)
{
    for (size_t at = 0; at < n; at += m->chunk) {
        size_t count = piece(m, n, at);
        int mine = m->rank == root;
        int code = MPI_Reduce(mine ? MPI_IN_PLACE : data + at, mine ? data + at : NULL, (int)count,
                              MPI_FLOAT, MPI_SUM, root, m->group->comm);
        if (checked(m, code, "MPI_Reduce", count, at, n)) {
            return -1;
        }
    }
    return 0;
}

static int bcast_from(const struct mpi *m, float *data, size_t n, int root)
{
    for (size_t at = 0; at < n; at += m->chunk) {
        size_t count = piece(m, n, at);
        int code = MPI_Bcast(data + at, (int)count, MPI_FLOAT, root, m->group->comm);
        if (checked(m, code, "MPI_Bcast", count, at, n)) {
            return -1;
        }
    }
    return 0;
}

static int reduce_mpi(void *self, float *data, size_t n)
{
    const struct mpi *m = self;

    if (m->ranks == 1) {
        return 0;
    }
    if (m->pairwise && n >= SMALL) {
        return paired(m, data, n, m->ranks, CMN_SCATTER | CMN_GATHER_FIRST);
    }
    return reduce_to(m, data, n, 0);
}

static int bcast_mpi(void *self, float *data, size_t n)
{
    const struct mpi *m = self;

    return m->ranks == 1 ? 0 : bcast_from(m, data, n, 0);
}

static int reduce_scatter_mpi(void *self, float *data, size_t n, int slices)
{
    const struct mpi *m = self;

    if (m->pairwise) {
        return paired(m, data, n, slices, CMN_SCATTER);
    }
    for (int i = 0; i < slices && m->ranks > 1; i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        if (reduce_to(m, data + at, count, i)) {
            return -1;
        }
    }
    return 0;
}

static int allgather_mpi(void *self, float *data, size_t n, int slices)
{
    const struct mpi *m = self;

    if (m->pairwise) {
        return paired(m, data, n, slices, CMN_GATHER);
    }
    for (int i = 0; i < slices && m->ranks > 1; i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        if (bcast_from(m, data + at, count, i)) {
            return -1;
        }
    }
    return 0;
}

static void close_mpi(void *self)
{
    struct mpi *m = self;

    cmn_pairwise_close(m->pairwise);
    free(m);
}

const struct cmn_transport cmn_mpi = {
    .name = "mpi",
    .refuses = refuses_mpi,
    .open = open_mpi,
    .allreduce = allreduce_mpi,
    .reduce = reduce_mpi,
    .reduce_scatter = reduce_scatter_mpi,
    .allgather = allgather_mpi,
    .bcast = bcast_mpi,
    .close = close_mpi,
};
