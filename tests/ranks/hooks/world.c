/* The calls of cmn.h for programs of people's own. This program is one: no darknet, no -cmn. */
#include <mpi.h>

#include "cmn.h"

#include "ranks/ranks.h"

RANK_TEST(place)
{
    struct cmn_world w = cmn_get_world();
    char host[64] = "";

    gethostname(host, sizeof host - 1);
    CHECK(w.rank == top.rank && w.size == top.size);
    CHECK(w.intra_rank == top.intra_rank && w.intra_size == top.intra_size);
    CHECK(w.inter_rank == top.inter_rank && w.inter_size == top.inter_size);
    CHECK(!strcmp(w.host, host));
    CHECK(cmn_rank() == w.rank && cmn_size() == w.size);
}

RANK_TEST(groups)
{
    struct cmn_world w = cmn_get_world();
    int rank = -1, size = -1, same = -1;

    MPI_Comm_compare(cmn_world_comm(), MPI_COMM_WORLD, &same);
    CHECK(same == MPI_CONGRUENT); /* the same ranks, and yet not the same messages */
    MPI_Comm_rank(cmn_intra_comm(), &rank);
    MPI_Comm_size(cmn_intra_comm(), &size);
    CHECK(rank == w.intra_rank && size == w.intra_size);
    MPI_Comm_rank(cmn_inter_comm(), &rank);
    CHECK(rank == w.inter_rank);
}

RANK_TEST(broadcast_of_bytes)
{
    static const size_t lengths[] = {0, 1, 3, 1000, 1000003};

    for (size_t k = 0; k < COUNT(lengths); k++) {
        size_t n = lengths[k], wrong = 0;
        unsigned char *bytes = malloc(n + 1);
        for (size_t i = 0; i <= n; i++) {
            bytes[i] = (unsigned char)(i * 7 + (size_t)top.rank);
        }
        cmn_broadcast(bytes, n);
        for (size_t i = 0; i < n; i++) {
            wrong += bytes[i] != (unsigned char)(i * 7);
        }
        CHECK_SAYING(wrong == 0, "%zu of %zu bytes", wrong, n);
        CHECK(bytes[n] == (unsigned char)(n * 7 + (size_t)top.rank)); /* and none behind */
        free(bytes);
    }
}

RANK_TEST(mean_of_floats)
{
    static const size_t lengths[] = {0, 1, 3, 1000, (1 << 20) + 3};

    for (size_t k = 0; k < COUNT(lengths); k++) {
        size_t n = lengths[k], wrong = 0;
        float *x = malloc((n + 1) * sizeof *x);
        float mean = (float)(top.size + 1) / 2;
        for (int twice = 0; twice < 2; twice++) {
            for (size_t i = 0; i <= n; i++) {
                x[i] = (float)((size_t)(top.rank + 1) * (i % 61) * 2);
            }
            cmn_mean(x, n);
            for (size_t i = 0; i < n; i++) {
                wrong += x[i] != mean * 2 * (float)(i % 61);
            }
            CHECK(x[n] == (float)((size_t)(top.rank + 1) * (n % 61) * 2));
        }
        CHECK_SAYING(wrong == 0, "%zu of %zu floats", wrong, n);
        free(x);
    }
}

/* Nobody leaves before the last one has come. */
RANK_TEST(barrier_holds)
{
    int come = 0, *all = NULL;
    MPI_Win window;

    MPI_Win_allocate_shared(sizeof *all, sizeof *all, MPI_INFO_NULL, cmn_intra_comm(), &all,
                            &window);
    *all = 0;
    cmn_barrier();
    if (top.rank == top.size - 1) {
        usleep(50000);
    }
    __atomic_store_n(all, 1, __ATOMIC_SEQ_CST);
    cmn_barrier();
    for (int i = 0; i < top.intra_size; i++) {
        MPI_Aint bytes;
        int unit, *theirs;
        MPI_Win_shared_query(window, i, &bytes, &unit, &theirs);
        come += __atomic_load_n(theirs, __ATOMIC_SEQ_CST);
    }
    CHECK_SAYING(come == top.intra_size, "%d of %d had come", come, top.intra_size);
    MPI_Win_free(&window);
}

static int alone; /* before the start */

RANK_TEST(one_start_and_no_second_one)
{
    MPI_Comm before = cmn_world_comm();

    CHECK(alone);
    cmn_start();
    CHECK(cmn_world_comm() == before);
}

/* Before the start: a world of one, in which every call works. */
static int alone_before_the_start(void)
{
    struct cmn_world w = cmn_get_world();
    float x = 7;

    cmn_mean(&x, 1);
    cmn_broadcast(&x, sizeof x);
    cmn_barrier();
    return w.rank == 0 && w.size == 1 && w.intra_size == 1 && w.inter_size == 1 &&
           w.host[0] == '\0' && x == 7 && cmn_world_comm() == MPI_COMM_SELF;
}

int main(void)
{
    int result;

    alone = alone_before_the_start();
    cmn_start();
    cmn_topology_open(&top);
    if (top.rank && !freopen("/dev/null", "w", stdout)) {
        return 1;
    }
    result = check_run(NULL, NULL);
    cmn_topology_close(&top);
    return result;
}
