#include <stdlib.h>

#include "log.h"
#include "topology.h"
#include "transports/transport.h"

/* Floats in one call of MPI: bounds Open MPI's temporary, which it allocates in every call, and is never
 * near the largest count that an int holds. Of 1/4 to 8 MiB, 4 MiB took the least time
 * (docs/performance.md). */
enum { CHUNK = 1024 * 1024 };

struct mpi {
    const struct cmn_group *group;
    size_t chunk;
    int rank;
};

static const char *refuses_mpi(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)t;
    (void)o;
    return NULL;
}

static int open_mpi(void **self, const struct cmn_group *group)
{
    struct mpi *m = calloc(1, sizeof *m);

    if (!m) {
        return cmn_fail("mpi: out of memory");
    }
    m->group = group;
    m->chunk = group->chunk == 0              ? CHUNK
               : group->chunk > CMN_MPI_PIECE ? CMN_MPI_PIECE
                                              : group->chunk;
    MPI_Comm_rank(group->comm, &m->rank);
    *self = m;
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

static int allreduce_mpi(void *self, float *data, size_t n)
{
    const struct mpi *m = self;

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
    return reduce_to(self, data, n, 0);
}

static int bcast_mpi(void *self, float *data, size_t n)
{
    return bcast_from(self, data, n, 0);
}

static int reduce_scatter_mpi(void *self, float *data, size_t n, int slices)
{
    for (int i = 0; i < slices; i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        if (reduce_to(self, data + at, count, i)) {
            return -1;
        }
    }
    return 0;
}

static int allgather_mpi(void *self, float *data, size_t n, int slices)
{
    for (int i = 0; i < slices; i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        if (bcast_from(self, data + at, count, i)) {
            return -1;
        }
    }
    return 0;
}

static void close_mpi(void *self)
{
    free(self);
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
