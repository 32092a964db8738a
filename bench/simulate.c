/* One exchange between nodes in SimGrid's SMPI: cmn/'s own sums (transports/sums.c), simulated time.
 *
 * Each rank of a node owns a part of every tensor, as two_dimensional and shm have it, and sums
 * it with the owners of the other nodes; all of them at the same time. Additions, casts and what
 * happens within a node take no time. bench/simulate.sh compiles and starts it.
 *
 * Arguments: MB of all gradients, tensors, ranks of a node, pairwise|halving|ring|mpi|auto. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transports/sums.h"

/* As enum cmn_exchange_by has them: config/options.c does not compile with smpicc. */
static const char *const names[] = {"auto", "pairwise", "halving", "ring", "mpi"};

int main(int argc, char **argv)
{
    struct cmn_options o;
    struct cmn_sums *s;
    MPI_Comm between;
    int rank, ranks, owners, tensors;
    double seconds;
    float *data;
    size_t n;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    cmn_log_identity(rank, "");
    memset(&o, 0, sizeof o);
    while (argc == 5 && o.exchange <= CMN_EXCHANGE_MPI && strcmp(names[o.exchange], argv[4])) {
        o.exchange++;
    }
    if (argc != 5 || (owners = atoi(argv[3])) < 1 || (tensors = atoi(argv[2])) < 1 ||
        o.exchange > CMN_EXCHANGE_MPI) {
        fprintf(stderr, "simulate MB TENSORS RANKS_OF_A_NODE ALGORITHM\n");
        return 2;
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank % owners, rank, &between);
    n = (size_t)(atof(argv[1]) * 1e6 / sizeof *data / owners / tensors);
    data = SMPI_SHARED_MALLOC(n * sizeof *data);
    s = cmn_sums_open(between, &o, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    for (int i = 0; i < tensors; i++) {
        struct cmn_sum sum = {.data = data, .n = n, .dtype = CMN_FP32};
        cmn_sums_begin(s, &sum);
    }
    cmn_sums_progress(s, tensors);
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;
    if (rank == 0) {
        printf("%.3f\n", 1e3 * seconds);
    }
    cmn_sums_close(s);
    SMPI_SHARED_FREE(data);
    MPI_Finalize();
    return 0;
}
