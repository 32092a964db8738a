/* Which pairs of ranks `darknet cmn check` tries. */
#include "check.h"

#include <mpi.h>

static int node_of[128];
static size_t size;

int MPI_Allgather(const void *from, int n, MPI_Datatype type, void *to, int each,
                  MPI_Datatype to_type, MPI_Comm group)
{
    assert_true(from && n == 1 && each == 1 && type == MPI_INT && to_type == MPI_INT &&
                group == MPI_COMM_SELF);
    memcpy(to, node_of, size * sizeof *node_of);
    return MPI_SUCCESS;
}

#include "tools/probe.c"

/* All neighbours; of many ranks those between nodes, and the first two of each node. */
TEST(pairs)
{
    const int sizes[] = {1, 2, ALL_PAIRS, ALL_PAIRS + 1, COUNT(node_of)};
    static struct cmn_pair pair[COUNT(node_of)];

    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct cmn_topology t = {.size = sizes[i], .world = MPI_COMM_SELF};
        int n = 0, wanted = 0;
        for (int rank = 0; rank < (int)COUNT(node_of); rank++) {
            node_of[rank] = rank / 5;
        }
        size = (size_t)t.size;
        n = choose_pairs(&t, pair);
        for (int rank = 0; rank + 1 < t.size; rank++) {
            if (t.size <= ALL_PAIRS || rank % 5 == 0 || rank % 5 == 4) {
                assert_true(pair[wanted].a == rank && pair[wanted].b == rank + 1);
                wanted++;
            }
        }
        assert_int_equal(n, wanted);
    }
}

TESTS(NULL, NULL)
