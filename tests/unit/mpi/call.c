/* Messages that are longer than one call of MPI takes: its calls are noted here, and nothing is sent. */
#include "check.h"

#include <mpi.h>

#include "mpi/call.h"

static struct {
    const char *at;
    int n;
} calls[8];
static size_t made;

static int note(const void *data, int n)
{
    assert_in_range(made, 0, COUNT(calls) - 1);
    calls[made].at = data;
    calls[made++].n = n;
    return MPI_SUCCESS;
}

int MPI_Type_size(MPI_Datatype type, int *bytes)
{
    *bytes = type == MPI_FLOAT ? 4 : 1;
    return MPI_SUCCESS;
}

int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm group)
{
    assert_true(type == MPI_FLOAT && root == 0 && group == MPI_COMM_SELF);
    return note(data, n);
}

int MPI_Send(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm group)
{
    assert_true(type == MPI_BYTE && to == 3 && tag == 4 && group == MPI_COMM_SELF);
    return note(data, n);
}

int MPI_Recv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm group, MPI_Status *s)
{
    assert_true(type == MPI_BYTE && from == 3 && tag == 4 && group == MPI_COMM_SELF);
    assert_true(s == MPI_STATUS_IGNORE);
    return note(data, n);
}

int MPI_Comm_size(MPI_Comm group, int *ranks)
{
    *ranks = group == MPI_COMM_SELF ? 2 : 1;
    return MPI_SUCCESS;
}

int MPI_Allreduce(const void *from, void *data, int n, MPI_Datatype type, MPI_Op op, MPI_Comm group)
{
    assert_true(from == MPI_IN_PLACE && type == MPI_FLOAT && op == MPI_SUM);
    assert_true(group == MPI_COMM_SELF); /* one rank of its own has nothing to sum */
    return note(data, n);
}

TEST(long_messages_are_cut)
{
    static const size_t lengths[] = {0, 1, 1 << 28, (1 << 28) + 1, (size_t)3 << 28, 1000000007};
    char *data = (char *)&made; /* nobody reads it */

    for (size_t i = 0; i < 4 * COUNT(lengths); i++) {
        size_t n = lengths[i / 4], bytes = i % 4 < 2 ? 4 : 1, at = 0;
        made = 0;
        if (i % 4 == 0) {
            cmn_mpi_bcast(data, n, MPI_FLOAT, MPI_COMM_SELF);
        } else if (i % 4 == 1) {
            cmn_mpi_allreduce((float *)&made, n, CMN_MPI_CHUNK, MPI_COMM_SELF);
            cmn_mpi_allreduce((float *)&made, n, CMN_MPI_CHUNK, MPI_COMM_WORLD);
        } else if (i % 4 == 2) {
            cmn_mpi_send(data, n, 3, 4, MPI_COMM_SELF);
        } else {
            cmn_mpi_recv(data, n, 3, 4, MPI_COMM_SELF);
        }
        for (size_t k = 0; k < made; k++) {
            assert_ptr_equal(calls[k].at, data + at * bytes);
            assert_in_range(calls[k].n, 1, CMN_MPI_CHUNK);
            at += (size_t)calls[k].n;
        }
        assert_int_equal(at, n);
        assert_int_equal(made, (n + CMN_MPI_CHUNK - 1) / CMN_MPI_CHUNK);
    }
}

TESTS(NULL, NULL)
