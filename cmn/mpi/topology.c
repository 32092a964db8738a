#include "mpi/topology.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Numbers the nodes by their lowest rank. Only the first rank of each node takes part in the
 * split. */
static void number_nodes(struct cmn_topology *t)
{
    MPI_Comm leaders = MPI_COMM_NULL;
    int node[2] = {0, 0};
    int colour = t->intra_rank == 0 ? 0 : MPI_UNDEFINED;

    MPI_CALL(MPI_Comm_split(t->world, colour, t->rank, &leaders));
    if (leaders != MPI_COMM_NULL) {
        MPI_Comm_rank(leaders, &node[0]);
        MPI_Comm_size(leaders, &node[1]);
        MPI_Comm_free(&leaders);
    }
    MPI_CALL(MPI_Bcast(node, 2, MPI_INT, 0, t->intra));
    t->inter_rank = node[0];
    t->inter_size = node[1];
}

static void open_world(struct cmn_topology *t)
{
    memset(t, 0, sizeof *t);
    t->world = t->intra = t->inter = MPI_COMM_NULL;
    t->device = -1;
    if (gethostname(t->host, sizeof t->host - 1)) {
        snprintf(t->host, sizeof t->host, "unknown");
    }
    MPI_CALL(MPI_Comm_dup(MPI_COMM_WORLD, &t->world));
    MPI_Comm_set_errhandler(t->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(t->world, &t->rank);
    MPI_Comm_size(t->world, &t->size);
    cmn_log_identity(t->rank, t->host);
}

/* Derives all other fields from t->intra. */
static void open_groups(struct cmn_topology *t)
{
    MPI_Comm_set_errhandler(t->intra, MPI_ERRORS_RETURN);
    MPI_Comm_rank(t->intra, &t->intra_rank);
    MPI_Comm_size(t->intra, &t->intra_size);
    number_nodes(t);
    MPI_CALL(MPI_Comm_split(t->world, t->intra_rank, t->inter_rank, &t->inter));
    MPI_Comm_set_errhandler(t->inter, MPI_ERRORS_RETURN);
    MPI_CALL(MPI_Allreduce(&t->intra_size, &t->least_intra, 1, MPI_INT, MPI_MIN, t->world));
}

void cmn_topology_open(struct cmn_topology *t)
{
    open_world(t);
    MPI_CALL(
        MPI_Comm_split_type(t->world, MPI_COMM_TYPE_SHARED, t->rank, MPI_INFO_NULL, &t->intra));
    open_groups(t);
}

void cmn_topology_open_as(struct cmn_topology *t, int node)
{
    open_world(t);
    MPI_CALL(MPI_Comm_split(t->world, node, t->rank, &t->intra));
    open_groups(t);
}

void cmn_topology_close(struct cmn_topology *t)
{
    if (t->inter != MPI_COMM_NULL) {
        MPI_Comm_free(&t->inter);
    }
    if (t->intra != MPI_COMM_NULL) {
        MPI_Comm_free(&t->intra);
    }
    if (t->world != MPI_COMM_NULL) {
        MPI_Comm_free(&t->world);
    }
}
