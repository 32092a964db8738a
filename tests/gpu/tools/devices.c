/* What check and bench run, over the stand-in for a GPU: whoever of them touched its memory from
 * the CPU would die. */
#include "gpu/gpu.h"

#include "tools/candidate.h"
#include "tools/probe.h"

static struct cmn_session session;

static void start(void)
{
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

GPU_TEST(sums_on_the_gpu)
{
    start();
    try_candidate("pure_nccl", "");
    try_candidate("hierarchical", "");
    try_candidate("flat", "");
    try_candidate("naive", "");
    try_candidate(CMN_RAW, "it is a measure of the CPU's memory");
    try_candidate(CMN_MEMORY, "it is a measure of the CPU's memory");
}

GPU_TEST(every_communicator_is_tried)
{
    struct cmn_trial *trial;
    int trials, works = 0;

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
}

RANK_TESTS(NULL, NULL)
