/* The calls of cmn.h for programs of people's own, once cmn_start has been called or not. */
#include <mpi.h> /* before cmn.h, which then declares the groups */

#include "cmn.h"

#include "hooks/job.h"
#include "base/log.h"
#include "mpi/topology.h"
#include "hooks/world.h"

struct cmn_world cmn_get_world(void)
{
    const struct cmn_topology *t = &cmn_job.topology;

    if (!cmn_job.on) {
        return (struct cmn_world){.size = 1, .intra_size = 1, .inter_size = 1, .host = ""};
    }
    return (struct cmn_world){t->rank,       t->size,       t->intra_rank, t->intra_size,
                              t->inter_rank, t->inter_size, t->host};
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

void cmn_mean(float *data, size_t n)
{
    if (cmn_job.on) {
        cmn_check(cmn_allreduce_mean(&cmn_job.topology, &cmn_job.options, data, n));
    }
}

void cmn_barrier(void)
{
    if (cmn_job.on) {
        cmn_check(cmn_mpi_check(MPI_Barrier(cmn_job.topology.world), "MPI_Barrier"));
    }
}
