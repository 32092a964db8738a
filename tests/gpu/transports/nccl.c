/* Sums by NCCL over the stand-in for CUDA and NCCL, and each way to fail. Gathers: engine/batch_norm.c. */
#include "gpu/gpu.h"

#include "transports/nccl.h"

static struct cmn_group group;
static void *nccl;

static int open_world(void)
{
    group = (struct cmn_group){top.world, "world", &top, &options};
    return cmn_nccl_open(&nccl, &group);
}

/* Many sums of growing length, in all types; and again after the end. */
GPU_TEST(many_sums)
{
    enum { SUMS = 100, ROOM = SUMS * (SUMS - 1) / 2 };
    struct gpu_block b;

    CHECK_SAYING(open_world() == 0, "%s", cmn_reason());
    make_block(&b, ROOM + 1);
    for (int round = 0; round < 2; round++) {
        size_t at = 0;
        fill_block(&b, -1);
        cmn_nccl_end(nccl, NULL, NULL);
        cmn_nccl_begin(nccl, b.data, 0, CMN_FP32, 0);
        for (size_t i = 0; i < SUMS; at += i++) {
            float small[SUMS];
            for (size_t k = 0; k < i; k++) {
                small[k] = (float)((int)((at + k) % 7) - 3) * (float)(top.rank + 1);
            }
            fake_later(b.data + at, small, i);
            cmn_nccl_begin(nccl, b.data + at, i, (enum cmn_dtype)(i % 3), 1);
        }
        cmn_nccl_end(nccl, NULL, NULL);
        read_block(&b);
        for (size_t i = 0; i < ROOM; i++) {
            float want = (float)((int)(i % 7) - 3) * (float)(top.size * (top.size + 1) / 2);
            CHECK_SAYING(b.host[i] == want, "at %zu: %g, not %g", i, (double)b.host[i],
                         (double)want);
        }
        CHECK_SAYING(b.host[ROOM] == 0, "%s", "what was not begun changed");
    }
    cmn_nccl_close(nccl);
    free_block(&b);
}

enum { OTHERS_HANG = 4 };

/* What goes wrong, and what the end of the operation says; the communicator is aborted, once. */
static const struct fault {
    const char *says[3];
    int lost, calls; /* calls: of ncclCommGetAsyncError, before the error */
    ncclResult_t state;
    cudaError_t event;
    int hangs; /* the last rank's own GPU never comes to the operation: no other rank is late */
    int abort_hangs; /* nobody may wait for the GPU any more */
} faults[] = {
    /* Before NCCL has taken the operation, and while it runs. */
    {{"nccl: world: allreduce of 1000 floats", "rank ", "fake remote error: fake details"},
     .lost = 1,
     .state = ncclRemoteError},
    {{"fake remote error: fake details"}, .lost = 1, .calls = 2, .state = ncclRemoteError},
    {{"fake remote error: fake details"}, .lost = 1, .calls = 4, .state = ncclRemoteError},
    {{"nccl: world: allreduce of 1000 floats on rank ", "cudaEventQuery: fake CUDA error 999"},
     .event = cudaErrorUnknown},
    /* Nothing comes from the other ranks. */
    [OTHERS_HANG] = {{"nccl: world: allreduce of 1000 floats: rank ",
                      "waited 1 s (cmn_timeout) for the others: "},
                     .lost = 1},
    {{": the GPU of rank "}, .lost = 1, .hangs = 1},
    {{"waited 1 s (cmn_timeout)"}, .lost = 1, .abort_hangs = 1},
};

static void must_fail(const struct fault *f)
{
    const int own = top.rank == top.size - 1;
    const char *const *says = f->hangs && !own ? faults[OTHERS_HANG].says : f->says;
    const char *said;
    struct gpu_block b;

    make_block(&b, 1000);
    fake.stuck = !f->hangs;
    fake.hangs = f->hangs && own;
    fill_block(&b, top.rank);
    fake.state = f->state;
    fake.calls_to_failure = f->calls;
    fake.event = f->event;
    fake.abort_hangs = f->abort_hangs;
    cmn_nccl_begin(nccl, b.data, b.n, f->abort_hangs ? CMN_FP16 : CMN_FP32, 0);
    said = fatal_of(cmn_nccl_end(nccl, NULL, NULL));
    CHECK(said && check_lost == f->lost);
    for (size_t i = 0; said && i < COUNT(f->says) && says[i]; i++) {
        CHECK_SAYING(strstr(said, says[i]), "no \"%s\" in: %s", says[i], said);
    }
    CHECK_SAYING(fake.aborts == 1, "%d calls of ncclCommAbort", fake.aborts);
    fake.hangs = 0;
    if (!f->abort_hangs) {
        free_block(&b);
    }
}

GPU_TEST(failures)
{
    needs_the_stand_in();
    for (size_t i = 0; i < COUNT(faults); i++) {
        if (faults[i].abort_hangs && top.size != 2) {
            continue;
        }
        all_well();
        options.timeout = 1;
        CHECK_SAYING(open_world() == 0, "%s", cmn_reason());
        must_fail(&faults[i]);
        cmn_nccl_close(nccl);
        CHECK_SAYING(!fake.alive == !faults[i].abort_hangs, "%d things were not given back",
                     fake.alive);
        fake.alive = 0;
    }
}

GPU_TEST(start)
{
    struct cmn_topology on_cpu = top;

    needs_the_stand_in();
    on_cpu.device = -1;
    CHECK(cmn_nccl_refuses(&on_cpu) && !cmn_nccl_refuses(&top));
    fake.state = ncclInvalidUsage;
    CHECK(open_world() == -1 && fake.aborts == 1);
    CHECK_SAYING(strstr(cmn_reason(), "nccl: world: start"), "%s", cmn_reason());
    cmn_nccl_close(nccl);
}

RANK_TESTS(NULL, NULL)
