/* What check and bench run, over the stand-in for a GPU: whoever of them touched its memory from the CPU would die. */
#include "gpu/gpu.h"

#include "tools/benchmark.h"
#include "tools/probe.h"

static struct cmn_session session;

static void start(void)
{
    all_well();
    memset(&session, 0, sizeof session);
    session.topology = top;
    session.options = options;
}

static void contest(const char *name, const char *out)
{
    static const size_t lengths[] = {0, 1, 15, 1000, 70001};
    struct cmn_benchmark k;
    long wrong;

    CHECK_SAYING(cmn_benchmark_open(&k, name, &session, 70001) == 0, "%s", cmn_reason());
    CHECK_SAYING(!strcmp(k.out, out), "%s: %s", name, k.out);
    for (size_t i = 0; i < COUNT(lengths) && !k.out[0]; i++) {
        size_t n = lengths[i];
        CHECK_SAYING(cmn_benchmark_fill(&k, n) == 0, "%s", cmn_reason());
        CHECK_SAYING(cmn_benchmark_run(&k, n) == 0, "%s", cmn_reason());
        CHECK_SAYING(cmn_benchmark_wrong(&k, n, &wrong) == 0, "%s", cmn_reason());
        CHECK_SAYING(wrong == 0, "%s: %ld of %zu floats", name, wrong, n);
        CHECK_SAYING(cmn_benchmark_clear(&k, n) == 0, "%s", cmn_reason());
        CHECK_SAYING(cmn_benchmark_wrong(&k, n, &wrong) == 0, "%s", cmn_reason());
        CHECK_SAYING(wrong == (long)n, "%s: cleared, and yet %ld of %zu floats are wrong", name,
                     wrong, n);
    }
    cmn_benchmark_close(&k);
}

static void sums_on_the_gpu(void **state)
{
    (void)state;
    start();
    contest("pure_nccl", "");
    contest("non_cuda_aware", "");
    contest("hierarchical", "");
    contest(CMN_RAW, "MPI is not CUDA-aware: use non_cuda_aware");
    contest(CMN_MEMORY, "it is a measure of the CPU's memory");
    CHECK_SAYING(fake.alive == 0, "%d things of the GPU were not given back", fake.alive);
    settle();
}

static void mpi_that_knows_gpus(void **state)
{
    (void)state;
    start();
    fake.mpi_knows_gpus = 1;
    contest(CMN_RAW, "");
    contest("flat", "");
    CHECK_SAYING(fake.alive == 0, "%d things of the GPU were not given back", fake.alive);
    settle();
}

static void every_communicator_is_tried(void **state)
{
    struct cmn_trial *trial = NULL;
    int trials = 0, works = 0;

    (void)state;
    start();
    CHECK_SAYING(cmn_probe_communicators(&session, &trial, &trials) == 0, "%s", cmn_reason());
    for (int i = 0; i < trials; i++) {
        CHECK_SAYING(trial[i].result != CMN_FAILS, "%s: %s", trial[i].name, trial[i].why);
        CHECK_SAYING((trial[i].result == CMN_REFUSES) == (trial[i].why[0] != '\0'), "%s",
                     trial[i].name);
        works += trial[i].result == CMN_WORKS;
    }
    CHECK_SAYING(works >= 4, "only %d work", works);
    free(trial);
    settle();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_on_the_gpu),
        cmocka_unit_test(mpi_that_knows_gpus),
        cmocka_unit_test(every_communicator_is_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
