/* Sums by NCCL over the stand-in for CUDA and NCCL: each operation, and each way to fail. */
#include "gpu/gpu.h"

#include "transports/nccl.h"

static const size_t lengths[] = {0, 1, 15, 16, 17, 100, 960, 1000, 70001};

struct nccl_test {
    struct cmn_group group;
    void *self;
    int rank, size;
};

static void open_group(struct nccl_test *t, const struct cmn_topology *place, MPI_Comm comm,
                       const char *name)
{
    t->group = (struct cmn_group){comm, name, place, &options};
    t->self = NULL;
    MPI_Comm_rank(comm, &t->rank);
    MPI_Comm_size(comm, &t->size);
    CHECK_SAYING(cmn_nccl_open(&t->self, &t->group) == 0, "%s", cmn_reason());
}

static void allreduce(void *self, float *data, size_t n)
{
    cmn_nccl_begin(self, data, n, CMN_FP32, 0);
    cmn_nccl_end(self);
}

static void by_slices(void *self, float *data, size_t n, int slices, int sum)
{
    cmn_nccl_begin_slices(self, data, n, slices, sum);
    cmn_nccl_end(self);
}

static void check_range(const struct gpu_block *b, size_t at, size_t n, int factor,
                        const char *what)
{
    for (size_t i = at; i < at + n; i++) {
        float want = whole(i, 0) * (float)factor;
        CHECK_SAYING(b->host[i] == want, "%s of %zu floats, at %zu: %g, not %g", what, b->n, i,
                     (double)b->host[i], (double)want);
    }
}

static void try_sums(const struct nccl_test *t, size_t n)
{
    struct gpu_block b;

    make_block(&b, n);
    fill_block(&b, t->rank);
    allreduce(t->self, b.data, n);
    read_block(&b, "allreduce");
    check_range(&b, 0, n, t->size * (t->size + 1) / 2, "allreduce");

    fill_block(&b, t->rank);
    by_slices(t->self, b.data, n, 1, 1);
    read_block(&b, "reduce");
    if (t->rank == 0) {
        check_range(&b, 0, n, t->size * (t->size + 1) / 2, "reduce");
    }
    fill_block(&b, t->rank);
    by_slices(t->self, b.data, n, 1, 0);
    read_block(&b, "bcast");
    check_range(&b, 0, n, 1, "bcast");
    free_block(&b);
}

static void try_slices(const struct nccl_test *t, size_t n, int slices)
{
    struct gpu_block b;
    size_t at, count;
    /* NCCL's own call, where there is a slice for each rank, and all have one length. */
    int equal = slices > 1 && slices == t->size && n % (16 * (size_t)slices) == 0 && n;

    make_block(&b, n);
    fill_block(&b, t->rank);
    fake.reductions = fake.scattered = 0;
    by_slices(t->self, b.data, n, slices, 1);
    CHECK_SAYING(!STAND_IN || ((size_t)fake.scattered == (equal ? n : 0) &&
                               (size_t)fake.reductions == (equal ? 0 : n)),
                 "%zu floats in %d slices: %ld by one call, %ld by reduces", n, slices,
                 fake.scattered, fake.reductions);
    read_block(&b, "reduce_scatter");
    if (t->rank < slices) {
        cmn_slice(n, slices, t->rank, &at, &count);
        check_range(&b, at, count, t->size * (t->size + 1) / 2, "reduce_scatter");
    }
    fill_block(&b, t->rank);
    by_slices(t->self, b.data, n, slices, 0);
    read_block(&b, "allgather");
    for (int i = 0; i < slices; i++) {
        cmn_slice(n, slices, i, &at, &count);
        check_range(&b, at, count, i + 1, "allgather");
    }
    free_block(&b);
}

static void in_groups(const struct cmn_topology *place, const char *name)
{
    const struct {
        MPI_Comm comm;
        const char *name;
    } groups[] = {{place->world, "world"}, {place->intra, "intra"}, {place->inter, "inter"}};
    struct cmn_topology here = *place;

    here.device = 0;
    CHECK_SAYING(!cmn_nccl_refuses(&here, &options), "%s", name);
    for (size_t g = 0; g < COUNT(groups); g++) {
        struct nccl_test t;
        open_group(&t, &here, groups[g].comm, groups[g].name);
        for (size_t i = 0; i < COUNT(lengths); i++) {
            try_sums(&t, lengths[i]);
            for (int slices = 1; slices <= t.size; slices++) {
                try_slices(&t, lengths[i], slices);
            }
        }
        cmn_nccl_close(t.self);
    }
    CHECK_SAYING(fake.alive == 0, "%s: %d things were not given back", name, fake.alive);
}

static void operations(void **state)
{
    (void)state;
    all_well();
    in_every_world(in_groups);
    fail_on_all_ranks();
}

/* What a failed operation says; the communicator is aborted, once. Where that hangs, nobody may wait
 * for the GPU any more. */
static void must_fail(struct nccl_test *t, int lost, const char *const says[], int n)
{
    const char *said;
    struct gpu_block b;

    make_block(&b, 1000);
    fill_block(&b, t->rank);
    if (fake.abort_hangs) {
        cmn_nccl_begin(t->self, b.data, 1000, CMN_FP16, 0);
        said = fatal_of(cmn_nccl_end(t->self));
    } else {
        said = fatal_of(allreduce(t->self, b.data, 1000));
    }
    CHECK(said && check_lost == lost);
    for (int i = 0; said && i < n; i++) {
        CHECK_SAYING(strstr(said, says[i]), "no \"%s\" in: %s", says[i], said);
    }
    CHECK_SAYING(fake.aborts == 1, "%d calls of ncclCommAbort", fake.aborts);
    if (!fake.abort_hangs) {
        free_block(&b);
    }
}

static void nccl_reports_an_error(void **state)
{
    const char *const says[] = {"nccl: world: allreduce of 1000 floats", "rank ",
                                "fake remote error: fake details"};

    (void)state;
    needs_the_stand_in();
    for (int later = 0; later < 3;
         later++) { /* before NCCL has taken the operation, and while it runs */
        struct nccl_test t;
        all_well();
        open_group(&t, &top, top.world, "world");
        fake.state = ncclRemoteError;
        fake.calls_to_failure = later * 2;
        fake.stuck = 1;
        must_fail(&t, 1, says, COUNT(says));
        cmn_nccl_close(t.self);
        CHECK(fake.alive == 0);
    }
    all_well();
    fail_on_all_ranks();
}

static void cuda_reports_an_error(void **state)
{
    const char *const says[] = {"nccl: world: allreduce of 1000 floats on rank ",
                                "cudaEventQuery: fake CUDA error 999"};
    struct nccl_test t;

    (void)state;
    needs_the_stand_in();
    all_well();
    open_group(&t, &top, top.world, "world");
    fake.event = cudaErrorUnknown;
    fake.stuck = 1;
    must_fail(&t, 0, says, COUNT(says));
    cmn_nccl_close(t.self);
    all_well();
    fail_on_all_ranks();
}

/* Nothing comes from the other ranks; once, ncclCommAbort never returns either. */
static void nothing_comes(void **state)
{
    const char *const says[] = {"nccl: world: allreduce of 1000 floats: rank ",
                                "waited 1 s (cmn_timeout)"};

    (void)state;
    needs_the_stand_in();
    for (int hangs = 0; hangs < (top.size == 2 ? 2 : 1); hangs++) {
        struct nccl_test t;
        all_well();
        options.timeout = 1;
        open_group(&t, &top, top.world, "world");
        fake.stuck = 1;
        fake.abort_hangs = hangs;
        must_fail(&t, 1, says, COUNT(says));
        cmn_nccl_close(t.self);
        CHECK_SAYING(!fake.alive == !hangs, "%d things were not given back", fake.alive);
    }
    fake.alive = 0;
    all_well();
    fail_on_all_ranks();
}

/* What an operation says that does not end: a sum, or a gather. */
static const char *said_by(const struct nccl_test *t, int way, const struct gpu_block *b,
                           float *all)
{
    if (way == 0) {
        cmn_nccl_begin(t->self, b->data, b->n, CMN_FP32, 0);
        return fatal_of(cmn_nccl_end(t->self));
    }
    cmn_nccl_gather(t->self, all, b->data, b->n);
    return fatal_of(cmn_nccl_gathered(t->self, NULL, NULL));
}

/* The last rank's own GPU never comes to the operation: it is no other rank that this one waits for. */
static void own_gpu_hangs(void **state)
{
    const char *const what[] = {"allreduce of 100 floats", "allgather of 100 floats"};
    int own = top.rank == top.size - 1;

    (void)state;
    needs_the_stand_in();
    for (int way = 0; way < 2; way++) {
        struct nccl_test t;
        struct gpu_block b, all;
        const char *said;
        all_well();
        options.timeout = 1;
        open_group(&t, &top, top.world, "world");
        make_block(&b, 100);
        make_block(&all, 100 * (size_t)t.size);
        fake.hangs = own;
        fill_block(&b, t.rank);
        said = said_by(&t, way, &b, all.data);
        CHECK(said && check_lost && fake.aborts == 1);
        CHECK_SAYING(said && strstr(said, what[way]) &&
                         strstr(said, own ? ": the GPU of rank " : " for the others: "),
                     "way %d, %s: %s", way, own ? "own GPU" : "another one", said);
        fake.hangs = 0;
        free_block(&b);
        free_block(&all);
        cmn_nccl_close(t.self);
        CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    }
    all_well();
    fail_on_all_ranks();
}

static void start_fails(void **state)
{
    struct nccl_test t = {.self = NULL};

    (void)state;
    needs_the_stand_in();
    all_well();
    t.group = (struct cmn_group){top.world, "world", &top, &options};
    fake.state = ncclInvalidUsage;
    fake.calls_to_failure = 0; /* NCCL may be done at the second question */
    CHECK(cmn_nccl_open(&t.self, &t.group) == -1);
    CHECK_SAYING(strstr(cmn_reason(), "nccl: world: start"), "%s", cmn_reason());
    CHECK(fake.aborts == 1);
    cmn_nccl_close(t.self);
    all_well();
    fail_on_all_ranks();
}

/* Sums in memory that NCCL was told of, by one communicator and by two; and where it takes none. */
static void memory_of_nccl(void **state)
{
    enum { N = 1000 };

    (void)state;
    needs_the_stand_in();
    for (int way = 0; way < 4; way++) {
        struct nccl_test t, other;
        float *memory, *host = calloc(N, sizeof *host);
        struct cmn_device_mail *mail; /* by a stream that waits for nothing */
        int blocks[2], refused[2];
        const char *why;
        all_well();
        fake.no_registration = way == 1;
        fake.no_nccl_memory = way == 2;
        open_group(&t, &top, top.world, "world");
        open_group(&other, &top, top.world, "other");
        CHECK(cmn_device_mail_open(&mail, N) == 0);
        why = cmn_nccl_registrations(&blocks[0], &refused[0]);
        CHECK_SAYING(cmn_nccl_memory(t.self, way == 3 ? other.self : NULL, N, &memory) == 0, "%s",
                     cmn_reason());
        why = cmn_nccl_registrations(&blocks[1], &refused[1]);
        CHECK_SAYING(
            blocks[1] - blocks[0] == (way == 3 ? 2 : 1) && refused[1] - refused[0] == (way == 1),
            "way %d: %d told of, %d refused", way, blocks[1] - blocks[0], refused[1] - refused[0]);
        CHECK(way != 1 || (why && strstr(why, "world: fake NCCL error")));
        CHECK_SAYING(fake.registered == (way == 3 ? 2 : way != 1), "%d registered",
                     fake.registered);
        CHECK(cmn_device_mail_fetch(mail, host, memory, N) == 0 && host[0] == 0 &&
              host[N - 1] == 0);
        for (int i = 0; i < N; i++) {
            host[i] = whole((size_t)i, t.rank);
        }
        CHECK(cmn_device_write(memory, host, N) == 0);
        allreduce(t.self, memory, N);
        CHECK(cmn_device_read(host, memory, N) == 0);
        for (int i = 0; i < N; i++) {
            CHECK(host[i] == whole((size_t)i, 0) * (float)(t.size * (t.size + 1) / 2));
        }
        /* Room for 16 bits that grows is one block at a time. */
        cmn_nccl_room(other.self, N, CMN_BF16);
        cmn_nccl_room(other.self, 2 * N, CMN_BF16);
        CHECK(fake.registered == (way == 3 ? 3 : way == 1 ? 0 : 2));
        cmn_nccl_close(other.self);
        cmn_nccl_close(t.self);
        cmn_device_mail_close(mail);
        CHECK_SAYING(fake.alive == 0 && fake.registered == 0, "%d things were not given back",
                     fake.alive);
        free(host);
    }
    all_well();
    fail_on_all_ranks();
}

static void choice(void **state)
{
    struct cmn_topology on_cpu = top;

    (void)state;
    needs_the_stand_in();
    all_well();
    on_cpu.device = -1;
    CHECK(cmn_nccl_refuses(&on_cpu, &options));
    CHECK(!cmn_nccl_refuses(&top, &options));
    all_well();
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choice),
        cmocka_unit_test(operations),
        cmocka_unit_test(memory_of_nccl),
        cmocka_unit_test(nccl_reports_an_error),
        cmocka_unit_test(cuda_reports_an_error),
        cmocka_unit_test(nothing_comes),
        cmocka_unit_test(own_gpu_hangs),
        cmocka_unit_test(start_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
