#include "ranks/ranks.h"

/* Groups and numbers fit each other, however the ranks lie. */
WORLD_TEST(groups)
{
    int mine[4] = {t->inter_rank, t->intra_rank, t->intra_size, t->rank};
    int all[64][4], rank, size, ranks = 0, nodes = 0, least = t->size, before = 0, above = 0;

    MPI_Allgather(mine, 4, MPI_INT, all, 4, MPI_INT, t->world);
    for (int i = 0; i < t->size; i++) {
        int same = all[i][0] == t->inter_rank;
        nodes += all[i][1] == 0;
        ranks += same;
        before += same && i < t->rank;
        above += all[i][1] == t->intra_rank;
        least = all[i][2] < least ? all[i][2] : least;
        CHECK_SAYING(all[i][0] <= nodes, "%s: nodes are numbered by their lowest ranks", shape);
    }
    CHECK_SAYING(t->inter_size == nodes, "%s: %d nodes, not %d", shape, t->inter_size, nodes);
    for (size_t i = 0; i < COUNT(shapes); i++) {
        CHECK_SAYING(strcmp(shape, shapes[i].name) ||
                         (nodes == shapes[i].nodes && t->inter_rank == shapes[i].node[t->rank]),
                     "%s: not as asked", shape);
    }
    CHECK_SAYING(t->intra_size == ranks && t->intra_rank == before, "%s", shape);
    CHECK_SAYING(t->least_intra == least, "%s: %d, not %d", shape, t->least_intra, least);
    MPI_Comm_rank(t->intra, &rank);
    MPI_Comm_size(t->intra, &size);
    CHECK_SAYING(rank == t->intra_rank && size == t->intra_size, "%s", shape);
    MPI_Comm_rank(t->inter, &rank);
    MPI_Comm_size(t->inter, &size);
    CHECK_SAYING(size == above, "%s: inter has %d ranks, not %d", shape, size, above);
    CHECK_SAYING(t->intra_rank >= least || (rank == t->inter_rank && size == nodes), "%s", shape);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK_SAYING(t->rank == rank && t->size == size && t->host[0], "%s", shape);
    CHECK_SAYING(t->device == -1, "%s", shape);
}

RANK_TEST(errors_have_reasons)
{
    char text[MPI_MAX_ERROR_STRING];
    const char *said;
    int code, value = 0;

    code = MPI_Bcast(&value, 1, MPI_INT, top.size + 3, top.world); /* no such root */
    CHECK(code != MPI_SUCCESS);
    said = fatal_of(cmn_mpi_require(code, "MPI_Bcast(nothing)"));
    MPI_Error_string(code, text, &(int){0});
    text[strcspn(text, "\n")] = '\0';
    CHECK(said && strstr(said, "MPI_Bcast: ") && strstr(said, text) && !strchr(said, '?') &&
          !check_lost);
}

RANK_TEST(first_bad)
{
    CHECK(cmn_mpi_first_bad(0, top.world) == -1);
    for (int rank = 0; rank < top.size; rank++) {
        CHECK(cmn_mpi_first_bad(top.rank == rank, top.world) == rank);
        CHECK(cmn_mpi_first_bad(top.rank >= rank, top.world) == rank);
    }
}

RANK_TEST(identity_is_known)
{
    char text[128], want[128];

    cmn_log_prefix(text, sizeof text);
    snprintf(want, sizeof want, "cmn[rank %d@%s] ", top.rank, top.host);
    CHECK_SAYING(!strcmp(text, want), "%s", text);
}

RANK_TESTS(NULL, NULL)
