#include "ranks.h"

static void numbers(void **state)
{
    int rank, size;

    (void)state;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(top.rank == rank);
    CHECK(top.size == size);
    CHECK(top.host[0] != '\0');
    settle();
}

/* The tests run on one machine: one node holds all ranks. */
static void one_node(void **state)
{
    int rank, size;

    (void)state;
    MPI_Comm_rank(top.intra, &rank);
    MPI_Comm_size(top.intra, &size);
    CHECK(top.intra_rank == rank && rank == top.rank);
    CHECK(top.intra_size == size && size == top.size);
    CHECK(top.inter_rank == 0);
    CHECK(top.inter_size == 1);
    settle();
}

static void world_is_private(void **state)
{
    int comparison;

    (void)state;
    MPI_Comm_compare(top.world, MPI_COMM_WORLD, &comparison);
    CHECK(comparison == MPI_CONGRUENT);
    settle();
}

static void errors_have_reasons(void **state)
{
    int code, value = 0;

    (void)state;
    CHECK(cmn_mpi_check(MPI_SUCCESS, "nothing") == 0);
    code = MPI_Bcast(&value, 1, MPI_INT, top.size + 3, top.world);    /* no such root */
    CHECK(code != MPI_SUCCESS);
    CHECK(cmn_mpi_check(code, "MPI_Bcast of nothing") == -1);
    CHECK(strstr(cmn_reason(), "MPI_Bcast of nothing: MPI_ERR_ROOT"));
    settle();
}

static void first_bad(void **state)
{
    int first = 99;

    (void)state;
    CHECK(cmn_first_bad(&top, 0, &first) == 0 && first == -1);
    for (int rank = 0; rank < top.size; rank++) {
        CHECK(cmn_first_bad(&top, top.rank == rank, &first) == 0 && first == rank);
        CHECK(cmn_first_bad(&top, top.rank >= rank, &first) == 0 && first == rank);
    }
    settle();
}

static void identity_is_known(void **state)
{
    char text[128], want[128];

    (void)state;
    cmn_log_prefix(text, sizeof text);
    snprintf(want, sizeof want, "cmn[rank %d@%s] ", top.rank, top.host);
    CHECK_SAYING(!strcmp(text, want), "%s", text);
    settle();
}

static void opens_again(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct cmn_topology t;
        CHECK(cmn_topology_open(&t) == 0);
        CHECK(t.rank == top.rank && t.size == top.size && t.inter_size == 1);
        cmn_topology_close(&t);
    }
    settle();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers), cmocka_unit_test(one_node), cmocka_unit_test(world_is_private),
        cmocka_unit_test(errors_have_reasons), cmocka_unit_test(first_bad),
        cmocka_unit_test(identity_is_known), cmocka_unit_test(opens_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(group);
}
