/* What check and bench run, over the stand-in for a GPU: whoever of them touched its memory from
 * the CPU would die. */
#include "gpu/gpu.h"

#include "tools/candidate.h"
#include "tools/probe.h"

static struct cmn_session session;

static void start(void)
{
    all_well();
    memset(&session, 0, sizeof session);
    session.topology = top;
    session.options = options;
}

static void try_candidate(const char *name, const char *refusal)
{
    static const size_t lengths[] = {0, 1, 15, 1000, 70001};
    struct cmn_candidate k;
    long wrong;

    cmn_candidate_open(&k, name, &session, 70001);
    CHECK_SAYING(!strcmp(k.refusal, refusal), "%s: %s", name, k.refusal);
    for (size_t i = 0; i < COUNT(lengths) && !k.refusal[0]; i++) {
        size_t n = lengths[i];
        wrong = cmn_candidate_verify(&k, n);
        CHECK_SAYING(wrong == 0, "%s: %ld of %zu floats", name, wrong, n);
        cmn_candidate_clear(&k, n);
    }
    cmn_candidate_close(&k);
}

static void sums_on_the_gpu(void **state)
{
    (void)state;
    start();
    try_candidate("pure_nccl", "");
    try_candidate("hierarchical", "");
    try_candidate("flat", "");
    try_candidate("naive", "");
    try_candidate(CMN_RAW, "it is a measure of the CPU's memory");
    try_candidate(CMN_MEMORY, "it is a measure of the CPU's memory");
    CHECK_SAYING(fake.alive == 0, "%d things of the GPU were not given back", fake.alive);
    fail_on_all_ranks();
}

static void every_communicator_is_tried(void **state)
{
    struct cmn_trial *trial;
    int trials, works = 0;

    (void)state;
    start();
    trial = cmn_probe_candidates(&session, &trials);
    for (int i = 0; i < trials; i++) {
        CHECK_SAYING(trial[i].result != CMN_FAILS, "%s: %s", trial[i].name, trial[i].why);
        CHECK_SAYING((trial[i].result == CMN_REFUSES) == (trial[i].why[0] != '\0'), "%s",
                     trial[i].name);
        works += trial[i].result == CMN_WORKS;
    }
    CHECK_SAYING(works >= 4, "only %d work", works);
    free(trial);
    fail_on_all_ranks();
}

/* Each rank takes a GPU of its own NUMA node where there is one; what is left goes in order. */
static void next_to_the_cores(void **state)
{
    static const struct {
        int ranks, gpus, near_rank[4], near_gpu[4], takes[4];
    } row[] = {
        {4, 4, {-1, -1, -1, -1}, {0, 0, 1, 1}, {0, 1, 2, 3}}, /* not bound */
        {4, 4, {1, 0, 1, 0}, {0, 0, 1, 1}, {2, 0, 3, 1}},
        {3, 4, {1, 1, 1}, {0, 1, 0, 1}, {1, 3, 0}}, /* one finds none of its own */
        {2, 2, {0, 1}, {-1, -1}, {0, 1}},           /* a machine that does not say */
        {4, 2, {1, 1, 0, 0}, {0, 1}, {1, 1, 0, 1}}, /* two for each */
        {2, 1, {0, 0}, {0}, {0, 0}},                /* each rank sees one of its own */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        for (int r = 0; r < row[i].ranks; r++) {
            int takes =
                cmn_device_near(r, row[i].near_rank, row[i].ranks, row[i].near_gpu, row[i].gpus);
            CHECK_SAYING(takes == row[i].takes[r], "row %zu, rank %d: %d", i, r, takes);
        }
    }
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_on_the_gpu),
        cmocka_unit_test(every_communicator_is_tried),
        cmocka_unit_test(next_to_the_cores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
