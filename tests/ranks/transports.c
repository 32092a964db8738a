#include "ranks.h"

#include "transports/transport.h"

static const struct cmn_transport *const transports[] = {&cmn_mpi, &cmn_shm};
static struct cmn_options options;

/* Integers with exact sums; a guard float behind. */
static void reduce(const struct cmn_transport *t, MPI_Comm comm, int size, int rank, size_t n,
                   size_t chunk)
{
    const struct cmn_group group = {comm, "test", &top, &options, chunk};
    float *data = malloc((n + 1) * sizeof *data);
    void *self = NULL;

    CHECK_SAYING(t->open(&self, &group) == 0, "%s", cmn_reason());
    for (int call = 0; call < 2; call++) {
        for (size_t i = 0; i < n; i++) {
            data[i] = (float)(i % 1000) + (float)rank;
        }
        data[n] = 77;
        CHECK_SAYING(t->allreduce(self, data, n) == 0, "%s", cmn_reason());
        for (size_t i = 0; i < n; i++) {
            float want = (float)(i % 1000) * (float)size + (float)(size * (size - 1) / 2);
            CHECK_SAYING(data[i] == want, "%s, %zu floats in chunks of %zu, at %zu: %g, not %g",
                         t->name, n, chunk, i, (double)data[i], (double)want);
        }
        CHECK(data[n] == 77);
    }
    t->close(self);
    free(data);
}

static void chunks(void **state)
{
    const size_t length[] = {0, 1, 7, 64, 1000, 4099};
    const size_t chunk[] = {0, 1, 3, 7, 64, 999, 1000, 1001, (size_t)1 << 40};

    (void)state;
    for (size_t t = 0; t < COUNT(transports); t++) {
        for (size_t i = 0; i < COUNT(length); i++) {
            for (size_t j = 0; j < COUNT(chunk); j++) {
                if (chunk[j] == 1 && length[i] > 1000) {
                    continue;    /* thousands of calls prove nothing more */
                }
                reduce(transports[t], top.world, top.size, top.rank, length[i], chunk[j]);
            }
        }
    }
    settle();
}

/* A part of the world: two groups work at once and do not mix. */
static void groups(void **state)
{
    MPI_Comm half;
    int size, rank;

    (void)state;
    MPI_Comm_split(top.world, top.rank % 2, top.rank, &half);
    MPI_Comm_size(half, &size);
    MPI_Comm_rank(half, &rank);
    for (size_t t = 0; t < COUNT(transports); t++) {
        reduce(transports[t], half, size, rank, 1000, 300);
    }
    MPI_Comm_free(&half);
    settle();
}

static void two_at_once(void **state)
{
    const struct cmn_group world = {top.world, "world", &top, &options, 0};
    const struct cmn_group intra = {top.intra, "intra", &top, &options, 0};
    float a[10], b[10];
    void *first = NULL, *second = NULL;

    (void)state;
    for (int i = 0; i < 10; i++) {
        a[i] = 1;
        b[i] = 2;
    }
    CHECK(cmn_mpi.open(&first, &world) == 0);
    CHECK(cmn_mpi.open(&second, &intra) == 0);
    CHECK(cmn_mpi.allreduce(first, a, 10) == 0);
    CHECK(cmn_mpi.allreduce(second, b, 10) == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(a[i] == (float)top.size);
        CHECK(b[i] == 2 * (float)top.intra_size);
    }
    cmn_mpi.close(first);
    cmn_mpi.close(second);
    settle();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks), cmocka_unit_test(groups), cmocka_unit_test(two_at_once),
    };

    cmn_options_default(&options);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(group);
}
