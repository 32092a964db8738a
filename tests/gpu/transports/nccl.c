/* Sums by NCCL over the stand-in for CUDA and NCCL: each operation, and each way to fail. */
#include "gpu/gpu.h"

#include "transports/nccl.h"

static const size_t lengths[] = {0, 1, 15, 16, 17, 100, 960, 1000, 70001};

struct nccl_test {
    struct cmn_group group;
    void *self;
    int rank, size;
};

static void open_world(struct nccl_test *t)
{
    t->group = (struct cmn_group){top.world, "world", &top, &options};
    t->self = NULL;
    MPI_Comm_rank(top.world, &t->rank);
    MPI_Comm_size(top.world, &t->size);
    CHECK_SAYING(cmn_nccl_open(&t->self, &t->group) == 0, "%s", cmn_reason());
}

static void try_gather(const struct nccl_test *t, size_t n)
{
    struct gpu_block b, all;

    make_block(&b, n);
    make_block(&all, n * (size_t)t->size);
    fill_block(&all, 0);
    fill_block(&b, t->rank);
    cmn_nccl_gather(t->self, all.data, b.data, n);
    cmn_nccl_end(t->self, NULL, NULL);
    read_block(&all, "allgather");
    for (int r = 0; r < t->size; r++) {
        for (size_t i = 0; i < n; i++) {
            CHECK_SAYING(all.host[(size_t)r * n + i] == whole(i, r), "of rank %d, at %zu: %g", r, i,
                         (double)all.host[(size_t)r * n + i]);
        }
    }
    free_block(&b);
    free_block(&all);
}

static void gathers(void **state)
{
    struct nccl_test t;

    (void)state;
    all_well();
    open_world(&t);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        try_gather(&t, lengths[i]);
    }
    cmn_nccl_close(t.self);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    fail_on_all_ranks();
}

/* Many sums of growing length, in all types; and again after the end. */
static void many_sums(void **state)
{
    enum { SUMS = 100, ROOM = SUMS * (SUMS - 1) / 2 };
    struct nccl_test t;
    struct gpu_block b;

    (void)state;
    all_well();
    open_world(&t);
    make_block(&b, ROOM + 1);
    for (int round = 0; round < 2; round++) {
        size_t at = 0;
        fill_block(&b, -1);
        cmn_nccl_end(t.self, NULL, NULL);
        cmn_nccl_begin(t.self, b.data, 0, CMN_FP32, 0);
        for (size_t i = 0; i < SUMS; at += i++) {
            float small[SUMS];
            for (size_t k = 0; k < i; k++) {
                small[k] = (float)((int)((at + k) % 7) - 3) * (float)(t.rank + 1);
            }
            fake_later(b.data + at, small, i);
            cmn_nccl_begin(t.self, b.data + at, i, (enum cmn_dtype)(i % 3), 1);
        }
        cmn_nccl_end(t.self, NULL, NULL);
        read_block(&b, "many sums");
        for (size_t i = 0; i < ROOM; i++) {
            float want = (float)((int)(i % 7) - 3) * (float)(t.size * (t.size + 1) / 2);
            CHECK_SAYING(b.host[i] == want, "at %zu: %g, not %g", i, (double)b.host[i],
                         (double)want);
        }
        CHECK_SAYING(b.host[ROOM] == 0, "%s", "what was not begun changed");
    }
    cmn_nccl_close(t.self);
    free_block(&b);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    fail_on_all_ranks();
}

/* What goes wrong, and what the operation says; the communicator is aborted, once. */
static const struct fault {
    const char *says[3];
    int lost, calls; /* calls: of ncclCommGetAsyncError, before the error */
    ncclResult_t state;
    cudaError_t event;
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
    {{"nccl: world: allreduce of 1000 floats: rank ", "waited 1 s (cmn_timeout)"}, .lost = 1},
    {{"waited 1 s (cmn_timeout)"}, .lost = 1, .abort_hangs = 1},
};

static void must_fail(struct nccl_test *t, const struct fault *f)
{
    struct gpu_block b;
    const char *said;

    make_block(&b, 1000);
    fill_block(&b, t->rank);
    fake.stuck = 1;
    fake.state = f->state;
    fake.calls_to_failure = f->calls;
    fake.event = f->event;
    fake.abort_hangs = f->abort_hangs;
    cmn_nccl_begin(t->self, b.data, b.n, f->abort_hangs ? CMN_FP16 : CMN_FP32, 0);
    said = fatal_of(cmn_nccl_end(t->self, NULL, NULL));
    CHECK(said && check_lost == f->lost);
    for (size_t i = 0; said && i < COUNT(f->says) && f->says[i]; i++) {
        CHECK_SAYING(strstr(said, f->says[i]), "no \"%s\" in: %s", f->says[i], said);
    }
    CHECK_SAYING(fake.aborts == 1, "%d calls of ncclCommAbort", fake.aborts);
    if (!f->abort_hangs) {
        free_block(&b);
    }
}

static void failures(void **state)
{
    (void)state;
    needs_the_stand_in();
    for (size_t i = 0; i < COUNT(faults); i++) {
        struct nccl_test t;
        if (faults[i].abort_hangs && top.size != 2) {
            continue;
        }
        all_well();
        options.timeout = 1;
        open_world(&t);
        must_fail(&t, &faults[i]);
        cmn_nccl_close(t.self);
        CHECK_SAYING(!fake.alive == !faults[i].abort_hangs, "%d things were not given back",
                     fake.alive);
        fake.alive = 0;
    }
    all_well();
    fail_on_all_ranks();
}

/* The last rank's own GPU never comes to the operation, a sum or a gather: it is no other rank that
 * this one waits for. */
static void one_hangs(int gathers)
{
    int own = top.rank == top.size - 1;
    struct nccl_test t;
    struct gpu_block b, all;
    const char *said;

    all_well();
    options.timeout = 1;
    open_world(&t);
    make_block(&b, 100);
    make_block(&all, 100 * (size_t)t.size);
    fake.hangs = own;
    fill_block(&b, t.rank);
    if (gathers) {
        cmn_nccl_gather(t.self, all.data, b.data, b.n);
    } else {
        cmn_nccl_begin(t.self, b.data, b.n, CMN_FP32, 0);
    }
    said = fatal_of(cmn_nccl_end(t.self, NULL, NULL));
    CHECK(said && check_lost && fake.aborts == 1);
    CHECK_SAYING(
        said && strstr(said, gathers ? "allgather of 100 floats" : "allreduce of 100 floats") &&
            strstr(said, own ? ": the GPU of rank " : " for the others: "),
        "%s: %s", own ? "own GPU" : "another one", said);
    fake.hangs = 0;
    free_block(&b);
    free_block(&all);
    cmn_nccl_close(t.self);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
}

static void own_gpu_hangs(void **state)
{
    (void)state;
    needs_the_stand_in();
    one_hangs(0);
    one_hangs(1);
    all_well();
    fail_on_all_ranks();
}

static void start(void **state)
{
    struct nccl_test t = {.self = NULL};
    struct cmn_topology on_cpu = top;

    (void)state;
    needs_the_stand_in();
    all_well();
    on_cpu.device = -1;
    CHECK(cmn_nccl_refuses(&on_cpu) && !cmn_nccl_refuses(&top));
    t.group = (struct cmn_group){top.world, "world", &top, &options};
    fake.state = ncclInvalidUsage;
    CHECK(cmn_nccl_open(&t.self, &t.group) == -1 && fake.aborts == 1);
    CHECK_SAYING(strstr(cmn_reason(), "nccl: world: start"), "%s", cmn_reason());
    cmn_nccl_close(t.self);
    all_well();
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers),       cmocka_unit_test(many_sums), cmocka_unit_test(failures),
        cmocka_unit_test(own_gpu_hangs), cmocka_unit_test(start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
