#include "transports/mpi.h"

#include "mpi/call.h"

void cmn_mpi_allreduce(const struct cmn_group *group, float *data, size_t n, size_t most)
{
    int ranks;

    MPI_Comm_size(group->comm, &ranks);
    for (size_t at = 0; at < n && ranks > 1; at += most) {
        int count = (int)(n - at < most ? n - at : most);
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, data + at, count, MPI_FLOAT, MPI_SUM, group->comm));
    }
}
