/* What check and bench run, over the stand-in for a GPU: whoever of them touched its memory from
 * the CPU would die. */
#include "gpu/gpu.h"

#include "tools/candidate.h"
#include "tools/probe.h"

GPU_TEST(every_communicator_is_tried)
{
    struct cmn_session session = {.topology = top, .options = options};
    struct cmn_trial *trial;
    struct cmn_candidate k;
    int trials, works = 0;

    trial = cmn_probe_candidates(&session, &trials);
    for (int i = 0; i < trials; i++) {
        const struct cmn_trial *it = &trial[i];
        CHECK_SAYING(it->result != CMN_FAILS, "%s: %s", it->name, it->why);
        CHECK_SAYING((it->result == CMN_REFUSES) == (it->why[0] != '\0'), "%s", it->name);
        works += it->result == CMN_WORKS;
    }
    CHECK_SAYING(works >= 4, "only %d work", works);
    free(trial);
    for (int memory = 0; memory < 2; memory++) {
        cmn_candidate_open(&k, memory ? CMN_MEMORY : CMN_RAW, &session, 1);
        CHECK_SAYING(!strcmp(k.refusal, "it is a measure of the CPU's memory"), "%s", k.refusal);
        cmn_candidate_close(&k);
    }
    cmn_candidate_open(&k, "pure_nccl", &session, 1000);
    CHECK(cmn_candidate_verify(&k, 0) == 0);
    cmn_candidate_clear(&k, 1000);
    cmn_candidate_run(&k, 1000);
    cmn_candidate_close(&k);
}

RANK_TESTS(NULL, NULL)
