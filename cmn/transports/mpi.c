/* mpi: messages of our own (sums.h) in main memory, and MPI's own collectives for the rest.
 *
 * Open MPI 4.1 allocates the temporary of a large allreduce in every call, and chooses an
 * algorithm by size alone. sums.c keeps its memory, adds in the order of the ranks, and keeps
 * both directions of a link busy. MPI's own algorithms serve small sums, because they need fewer
 * messages, broadcasts, which need no temporary, and all memory of a GPU, which only MPI can
 * reach. */
#include "transports/mpi.h"

#include <stdlib.h>

#include "base/memory.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "transports/sums.h"
#include "transports/transport.h"

/* MPI sums fewer floats than this: their time is the number of messages, not their length. */
enum { SMALL = 16 * 1024 };

struct mpi {
    const struct cmn_group *group;
    struct cmn_sums *sums; /* NULL: MPI's own collectives alone */
    int rank, ranks;
};

static const char *refuses_mpi(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return cmn_device_refuses_mpi(t);
}

static int open_mpi(void **self, const struct cmn_group *group)
{
    struct mpi *m = cmn_calloc(1, sizeof *m);

    *self = m;
    m->group = group;
    MPI_Comm_rank(group->comm, &m->rank);
    MPI_Comm_size(group->comm, &m->ranks);
    if (group->topology->device < 0 && m->ranks > 1) {
        m->sums = cmn_sums_open(group->comm, group->options, 1); /* waits as MPI does */
    }
    return 0;
}

/* ---- MPI's own collectives ---- */

static int count_at(size_t n, size_t at, size_t most)
{
    return (int)(n - at < most ? n - at : most);
}

void cmn_mpi_allreduce(const struct cmn_group *group, float *data, size_t n, size_t most)
{
    int ranks;

    MPI_Comm_size(group->comm, &ranks);
    for (size_t at = 0; at < n && ranks > 1; at += most) {
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, data + at, count_at(n, at, most), MPI_FLOAT, MPI_SUM,
                               group->comm));
    }
}

static void reduce_to(const struct mpi *m, float *data, size_t n, int root)
{
    int mine = m->rank == root;

    for (size_t at = 0; at < n; at += CMN_MPI_FLOATS) {
        MPI_CALL(MPI_Reduce(mine ? MPI_IN_PLACE : data + at, mine ? data + at : NULL,
                            count_at(n, at, CMN_MPI_FLOATS), MPI_FLOAT, MPI_SUM, root,
                            m->group->comm));
    }
}

static void bcast_from(const struct mpi *m, float *data, size_t n, int root)
{
    for (size_t at = 0; at < n; at += CMN_MPI_FLOATS) {
        MPI_CALL(
            MPI_Bcast(data + at, count_at(n, at, CMN_MPI_FLOATS), MPI_FLOAT, root, m->group->comm));
    }
}

/* `each` for every slice of `data`, with its owner as the root. */
static void by_slices(const struct mpi *m, float *data, size_t n, int slices,
                      void (*each)(const struct mpi *m, float *data, size_t n, int root))
{
    for (int i = 0; i < slices && m->ranks > 1; i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        each(m, data + at, count, i);
    }
}

/* ---- the operations ---- */

static void allreduce_mpi(void *self, float *data, size_t n)
{
    const struct mpi *m = self;

    if (m->sums && (n >= SMALL || m->group->options->exchange != CMN_EXCHANGE_AUTO)) {
        cmn_sums_run(m->sums, data, n);
    } else {
        cmn_mpi_allreduce(m->group, data, n, CMN_MPI_FLOATS);
    }
}

static void reduce_mpi(void *self, float *data, size_t n)
{
    const struct mpi *m = self;

    if (m->sums && n >= SMALL) {
        cmn_sums_run_slices(m->sums, data, n, m->ranks, CMN_REDUCE_SCATTER | CMN_GATHER);
    } else if (m->ranks > 1) {
        reduce_to(m, data, n, 0);
    }
}

static void bcast_mpi(void *self, float *data, size_t n)
{
    const struct mpi *m = self;

    if (m->ranks > 1) {
        bcast_from(m, data, n, 0);
    }
}

static void reduce_scatter_mpi(void *self, float *data, size_t n, int slices)
{
    const struct mpi *m = self;

    if (m->sums) {
        cmn_sums_run_slices(m->sums, data, n, slices, CMN_REDUCE_SCATTER);
    } else {
        by_slices(m, data, n, slices, reduce_to);
    }
}

static void allgather_mpi(void *self, float *data, size_t n, int slices)
{
    const struct mpi *m = self;

    if (m->sums) {
        cmn_sums_run_slices(m->sums, data, n, slices, CMN_ALLGATHER);
    } else {
        by_slices(m, data, n, slices, bcast_from);
    }
}

static void close_mpi(void *self)
{
    struct mpi *m = self;

    cmn_sums_close(m->sums);
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
