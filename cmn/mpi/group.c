#include "mpi/group.h"

int cmn_world_rank(MPI_Comm comm, int rank)
{
    MPI_Group mine, world;
    int number = rank;

    MPI_Comm_group(comm, &mine);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(mine, 1, &rank, world, &number);
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
    return number;
}

void cmn_slice(size_t n, int slices, int i, size_t *at, size_t *count)
{
    const size_t unit = 16;
    size_t units = (n + unit - 1) / unit;
    size_t begin = units * (size_t)i / (size_t)slices * unit;
    size_t end = units * ((size_t)i + 1) / (size_t)slices * unit;

    *at = begin < n ? begin : n;
    *count = (end < n ? end : n) - *at;
}
