#include "mpi/call.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"

/* Returns whether the call itself was wrong, or memory is short: then no rank was lost. */
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

void cmn_mpi_require(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0, name = (int)strcspn(call, "(");

    cmn_status_wait_end();
    if (code == MPI_SUCCESS) {
        return;
    }
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
        snprintf(text, sizeof text, "MPI error %d", code);
    }
    for (char *end = text; (end = strchr(end, '\n'));) {
        *end = ' '; /* MPICH tells its stack in lines */
    }
    (own_mistake(code) ? cmn_fatal : cmn_fatal_lost)("%.*s: %s", name, call, text);
}

static int chunk(size_t left)
{
    return (int)(left < CMN_MPI_CHUNK ? left : CMN_MPI_CHUNK);
}

void cmn_mpi_bcast(void *data, size_t n, MPI_Datatype type, MPI_Comm group)
{
    int bytes = 0;

    MPI_Type_size(type, &bytes);
    for (size_t at = 0; at < n; at += CMN_MPI_CHUNK) {
        MPI_CALL(MPI_Bcast((char *)data + at * (size_t)bytes, chunk(n - at), type, 0, group));
    }
}

void cmn_mpi_allreduce(float *data, size_t n, size_t most, MPI_Comm group)
{
    int ranks;

    MPI_Comm_size(group, &ranks);
    for (size_t at = 0; at < n && ranks > 1; at += most) {
        int count = (int)(n - at < most ? n - at : most);
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, data + at, count, MPI_FLOAT, MPI_SUM, group));
    }
}

void cmn_mpi_send(const void *data, size_t bytes, int to, int tag, MPI_Comm group)
{
    for (size_t at = 0; at < bytes; at += CMN_MPI_CHUNK) {
        MPI_CALL(MPI_Send((const char *)data + at, chunk(bytes - at), MPI_BYTE, to, tag, group));
    }
}

void cmn_mpi_recv(void *data, size_t bytes, int from, int tag, MPI_Comm group)
{
    for (size_t at = 0; at < bytes; at += CMN_MPI_CHUNK) {
        MPI_CALL(MPI_Recv((char *)data + at, chunk(bytes - at), MPI_BYTE, from, tag, group,
                          MPI_STATUS_IGNORE));
    }
}

int cmn_mpi_first_bad(int bad, MPI_Comm group)
{
    int rank, first;

    MPI_Comm_rank(group, &rank);
    rank = bad ? rank : INT_MAX;
    MPI_CALL(MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, group));
    return first == INT_MAX ? -1 : first;
}

int cmn_mpi_all_succeeded(int result, MPI_Comm group)
{
    int first = cmn_mpi_first_bad(result != 0, group);
    char why[512];

    if (first < 0) {
        return 0;
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    MPI_CALL(MPI_Bcast(why, sizeof why, MPI_CHAR, first, group));
    return cmn_fail("%s", why);
}
