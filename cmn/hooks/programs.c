/* The calls of cmn.h for your own programs. They also work before cmn_start(). */
#include <mpi.h> /* before cmn.h, which then declares the groups */

#include <stdlib.h>

#include "cmn.h"

#include "hooks/job.h"
#include "mpi/call.h"
#include "mpi/topology.h"
#include "transports/sums.h"

struct cmn_world cmn_get_world(void)
{
    const struct cmn_topology *t = &cmn_job.topology;

    if (!cmn_job.on) {
        return (struct cmn_world){.size = 1, .intra_size = 1, .inter_size = 1, .host = ""};
    }
    return (struct cmn_world){t->rank,       t->size,       t->intra_rank, t->intra_size,
                              t->inter_rank, t->inter_size, t->host};
}

int cmn_rank(void)
{
    return cmn_get_world().rank;
}

int cmn_hides_windows(void)
{
    const char *x = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");

    return cmn_job.on && (cmn_job.topology.rank > 0 || !((x && x[0]) || (wayland && wayland[0])));
}

int cmn_size(void)
{
    return cmn_get_world().size;
}

MPI_Comm cmn_world_comm(void)
{
    return cmn_job.on ? cmn_job.topology.world : MPI_COMM_SELF;
}

MPI_Comm cmn_intra_comm(void)
{
    return cmn_job.on ? cmn_job.topology.intra : MPI_COMM_SELF;
}

MPI_Comm cmn_inter_comm(void)
{
    return cmn_job.on ? cmn_job.topology.inter : MPI_COMM_SELF;
}

void cmn_broadcast(void *data, size_t bytes)
{
    if (cmn_job.on) {
        cmn_mpi_bcast(data, bytes, MPI_BYTE, cmn_job.topology.world);
    }
}

/* ---- the mean ---- */

/* Fewer floats than this are summed by MPI: the time of a short message depends on the number of
 * messages, not on their length. */
enum { SMALL = 16 * 1024 };

static void sum(float *data, size_t n)
{
    const struct cmn_topology *t = &cmn_job.topology;

    if (t->device >= 0 || n < SMALL) {
        cmn_mpi_allreduce(data, n, CMN_MPI_FLOATS, t->world);
        return;
    }
    if (!cmn_job.sums) {
        cmn_job.sums = cmn_sums_open(t->world, &cmn_job.options, 1); /* 1: no time limit */
    }
    cmn_sums_run(cmn_job.sums, data, n);
}

void cmn_mean(float *data, size_t n)
{
    if (!cmn_job.on) {
        return;
    }
    sum(data, n);
    for (size_t i = 0; i < n; i++) {
        data[i] /= (float)cmn_job.topology.size;
    }
}

void cmn_barrier(void)
{
    if (cmn_job.on) {
        MPI_CALL(MPI_Barrier(cmn_job.topology.world));
    }
}
