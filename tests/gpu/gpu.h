/* For rank tests over the stand-in for a GPU, or on GPUs (REAL_GPU, tests/gpu/real/): blocks of
 * their memory. The stand-in's own blocks have guards on both sides. */
#ifndef TESTS_GPU_H
#define TESTS_GPU_H

#include "ranks/ranks.h"

#include "communicators/communicator.h"
#include "mpi/device.h"
#include "fake/fake.h"
#include "config/options.h"

#ifdef REAL_GPU
enum { STAND_IN = 0 };
#else
enum { STAND_IN = 1 };
#endif

/* n floats of the GPU; `host` is what the CPU fills, and where results come to. */
struct gpu_block {
    float *data, *host;
    size_t n;
};

static inline float whole(size_t i, int rank)
{
    return (float)((int)(i % 1009) - 504) * (float)(rank + 1);
}

static inline void make_block(struct gpu_block *b, size_t n)
{
    b->n = n;
    b->host = calloc(n, sizeof *b->host);
    CHECK_SAYING(cmn_device_memory(&b->data, n) == 0, "%s", cmn_reason());
}

static inline void free_block(struct gpu_block *b)
{
    cmn_device_free(b->data);
    free(b->host);
}

/* As Darknet leaves gradients: asked for, and not yet there. */
static inline void fill_block(struct gpu_block *b, int rank)
{
    for (size_t i = 0; i < b->n; i++) {
        b->host[i] = whole(i, rank);
    }
    fake_later(b->data, b->host, b->n);
}

static inline void read_block(const struct gpu_block *b)
{
    cmn_device_read(b->host, b->data, b->n);
}

/* Skips the test on a real GPU: nothing there goes wrong when it is told to. */
static inline void needs_the_stand_in(void)
{
    if (!STAND_IN) {
        skip();
    }
}

/* Every rank has a GPU of its own, and all else is right. */
static inline void all_well(void)
{
    MPI_Barrier(top.world);
    fake.gpus = 1;
    fake.hardware = (char)top.rank;
    fake.stuck = fake.hangs = fake.abort_hangs = fake.no_memory = fake.aborts = 0;
    fake.state = ncclSuccess;
    fake.event = cudaSuccess;
    cmn_options_default(&options);
    top.device = 0;
}

static inline int over_the_stand_in(void)
{
    const char *broken = getenv("GPU_TEST_BREAK"); /* these tests are tested */
    int result;

    fake_start(top.world);
    fake.no_waits = broken && !strcmp(broken, "wait");
    all_well();
    result = check_run(NULL, NULL);
    fake_end();
    return result;
}

/* GPU_TEST(name) { … } is a test of all ranks that begins where all is well, and whose end has given
 * back all that it took of the GPU. */
#define GPU_TEST(test)                                                              \
    static void test(void);                                                         \
    IS_A_TEST(test, test##_on_gpus)                                                 \
    static void test##_on_gpus(void **state __attribute__((unused)))                \
    {                                                                               \
        all_well();                                                                 \
        test();                                                                     \
        CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive); \
        all_well();                                                                 \
        fail_on_all_ranks();                                                        \
    }                                                                               \
    static void test(void)

#undef RANK_TESTS
#define RANK_TESTS(before, after)             \
    int main(void)                            \
    {                                         \
        return ranks_main(over_the_stand_in); \
    }

#endif
