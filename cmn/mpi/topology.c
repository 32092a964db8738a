#include "mpi/topology.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Whether a call was made as it must not be, or memory is short: that is no loss of anybody. */
static int own_mistake(int code)
{
    static const int mistakes[] = {MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_TYPE,    MPI_ERR_TAG,
                                   MPI_ERR_RANK,   MPI_ERR_ROOT,  MPI_ERR_OP,      MPI_ERR_COMM,
                                   MPI_ERR_ARG,    MPI_ERR_GROUP, MPI_ERR_REQUEST, MPI_ERR_TRUNCATE,
                                   MPI_ERR_NO_MEM};
    int class = MPI_ERR_UNKNOWN;

    MPI_Error_class(code, &class);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        if (class == mistakes[i]) {
            return 1;
        }
    }
    return 0;
}

int cmn_mpi_checked(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;

    cmn_status_wait_end();
    if (code == MPI_SUCCESS) {
        return 0;
    }
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
        snprintf(text, sizeof text, "MPI error %d", code);
    }
    return own_mistake(code) ? cmn_fail("%s: %s", what, text) : cmn_fail_lost("%s: %s", what, text);
}

int cmn_mpi_bcast(void *data, size_t n, MPI_Datatype type, MPI_Comm group)
{
    int bytes = 0;

    MPI_Type_size(type, &bytes);
    for (size_t at = 0; at < n; at += CMN_MPI_CHUNK) {
        int count = (int)(n - at < CMN_MPI_CHUNK ? n - at : CMN_MPI_CHUNK);
        char *piece = (char *)data + at * (size_t)bytes;
        if (cmn_mpi_check(MPI_Bcast(piece, count, type, 0, group), "MPI_Bcast")) {
            return -1;
        }
    }
    return 0;
}

/* Numbers the nodes by their lowest rank: the first rank of every node meets the others. */
static int number_nodes(struct cmn_topology *t)
{
    MPI_Comm leaders = MPI_COMM_NULL;
    int node[2] = {0, 0};
    int colour = t->intra_rank == 0 ? 0 : MPI_UNDEFINED;

    if (cmn_mpi_check(MPI_Comm_split(t->world, colour, t->rank, &leaders), "MPI_Comm_split")) {
        return -1;
    }
    if (leaders != MPI_COMM_NULL) {
        MPI_Comm_rank(leaders, &node[0]);
        MPI_Comm_size(leaders, &node[1]);
        MPI_Comm_free(&leaders);
    }
    if (cmn_mpi_check(MPI_Bcast(node, 2, MPI_INT, 0, t->intra), "MPI_Bcast")) {
        return -1;
    }
    t->inter_rank = node[0];
    t->inter_size = node[1];
    return 0;
}

static int open_world(struct cmn_topology *t)
{
    memset(t, 0, sizeof *t);
    t->world = t->intra = t->inter = MPI_COMM_NULL;
    t->device = -1;
    if (gethostname(t->host, sizeof t->host - 1)) {
        snprintf(t->host, sizeof t->host, "unknown");
    }
    if (cmn_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &t->world), "MPI_Comm_dup")) {
        return -1;
    }
    MPI_Comm_set_errhandler(t->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(t->world, &t->rank);
    MPI_Comm_size(t->world, &t->size);
    cmn_log_identity(t->rank, t->host);
    return 0;
}

/* From intra all else follows. */
static int open_groups(struct cmn_topology *t)
{
    MPI_Comm_set_errhandler(t->intra, MPI_ERRORS_RETURN);
    MPI_Comm_rank(t->intra, &t->intra_rank);
    MPI_Comm_size(t->intra, &t->intra_size);
    if (number_nodes(t) ||
        cmn_mpi_check(MPI_Comm_split(t->world, t->intra_rank, t->inter_rank, &t->inter),
                      "MPI_Comm_split")) {
        return -1;
    }
    MPI_Comm_set_errhandler(t->inter, MPI_ERRORS_RETURN);
    return cmn_mpi_check(
        MPI_Allreduce(&t->intra_size, &t->least_intra, 1, MPI_INT, MPI_MIN, t->world),
        "MPI_Allreduce");
}

int cmn_topology_open(struct cmn_topology *t)
{
    if (open_world(t) || cmn_mpi_check(MPI_Comm_split_type(t->world, MPI_COMM_TYPE_SHARED, t->rank,
                                                           MPI_INFO_NULL, &t->intra),
                                       "MPI_Comm_split_type")) {
        return -1;
    }
    return open_groups(t);
}

int cmn_topology_open_as(struct cmn_topology *t, int node)
{
    if (open_world(t) ||
        cmn_mpi_check(MPI_Comm_split(t->world, node, t->rank, &t->intra), "MPI_Comm_split")) {
        return -1;
    }
    return open_groups(t);
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

int cmn_first_bad(const struct cmn_topology *t, int bad, int *first)
{
    int mine = bad ? t->rank : INT_MAX;

    if (cmn_mpi_check(MPI_Allreduce(&mine, first, 1, MPI_INT, MPI_MIN, t->world),
                      "MPI_Allreduce")) {
        return -1;
    }
    *first = *first == INT_MAX ? -1 : *first;
    return 0;
}
