/* Sums in the background over the stand-in for CUDA and NCCL: gradients come late and tensor by
 * tensor, as backward makes them, and the sums have the bits that they have without. */
#include "gpu/gpu.h"

#include <stdint.h>

#include "base/timeline.h"
#include "transports/nccl.h"

static const enum cmn_dtype types[] = {CMN_FP32, CMN_FP16, CMN_BF16};

/* Between -1 and 1, with sums that depend on the order of additions. */
static float rough(size_t i, int rank)
{
    uint32_t x = (uint32_t)i * 2654435761U + (uint32_t)(rank + 1) * 40503U;

    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    return (float)(int32_t)x / 2147483648.0F;
}

static size_t padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* What the GPU holds before backward. */
static void stale(struct gpu_block *b)
{
    for (size_t i = 0; i < b->n + 2 * GUARD; i++) {
        b->host[i] = mark;
    }
    cmn_device_write(b->memory, b->host, b->n + 2 * GUARD);
}

/* Asks the GPU for floats from `at` on: they are not there yet. */
static void backward(struct gpu_block *b, size_t at, size_t upto)
{
    for (size_t i = at; i < upto; i++) {
        b->host[i] = rough(i, top.rank);
    }
    fake_later(b->data + at, b->host + at, upto - at);
}

static void open_named(const char *name, const struct cmn_communicator **c, void **self,
                       const struct cmn_topology *t)
{
    *c = cmn_communicator_find(name);
    CHECK_SAYING((*c)->open(self, (*c), t, &options) == 0, "%s", cmn_reason());
}

/* One step, `bucket` floats at a time; 0: nothing is begun early. */
static void step(const struct cmn_communicator *c, void *self, struct gpu_block *b, size_t n,
                 size_t bucket)
{
    struct cmn_span tensor;
    struct cmn_exchange x = exchange_of(b, &tensor, n);
    size_t block = x.block.n, metrics = x.metrics.n;

    stale(b);
    for (size_t at = 0; bucket && at < block; at += bucket) {
        size_t upto = block - at < bucket ? block : at + bucket;
        c->poll(self);
        backward(b, at, upto);
        c->begin(self, &x, upto);
    }
    backward(b, bucket ? block : 0, block + metrics);
    c->allreduce(self, &x);
    read_block(b, c->name);
}

/* Close to the true sums, which says that each rank's floats were there. */
static void check_sums(const struct gpu_block *b, size_t n, enum cmn_dtype type)
{
    double limit = type == CMN_FP32 ? 1e-6 : type == CMN_FP16 ? 4e-3 : 3e-2;

    for (size_t i = 0; i < n; i++) {
        double want = 0;
        for (int r = 0; r < top.size; r++) {
            want += (double)rough(i, r);
        }
        CHECK_SAYING((double)b->host[i] - want < limit * top.size &&
                         want - (double)b->host[i] < limit * top.size,
                     "type %d, %zu floats, at %zu: %g, not %g", (int)type, n, i, (double)b->host[i],
                     want);
    }
}

static void try_buckets(const struct cmn_communicator *c, void *self, size_t n, const char *world)
{
    /* Ranks that share a GPU take turns, some milliseconds for each sum. */
    const size_t buckets[] = {padded(n) / (STAND_IN ? 100 : 8) + 16, padded(n) / 3 + 7, padded(n)};
    struct gpu_block b;
    float *without;

    make_block(&b, padded(n) + 16);
    without = malloc(b.n * sizeof *without);
    step(c, self, &b, n, 0);
    check_sums(&b, n, cmn_wire_type(&options));
    memcpy(without, b.host, b.n * sizeof *without);
    for (size_t k = 0; k < COUNT(buckets) && n; k++) {
        step(c, self, &b, n, buckets[k]);
        CHECK_SAYING(!memcmp(without, b.host, b.n * sizeof *without),
                     "%s, %s, type %ld, %zu floats in buckets of %zu: other bits than without",
                     c->name, world, options.compress, n, buckets[k]);
        CHECK_SAYING(same_everywhere(b.host, b.n * sizeof *b.host), "%s: other bits elsewhere",
                     c->name);
    }
    free(without);
    free_block(&b);
}

static void try_length(const char *name, const struct cmn_topology *place, size_t n,
                       const char *world)
{
    const struct cmn_communicator *c;
    struct cmn_topology here = *place;
    void *self = NULL;

    here.device = 0;
    open_named(name, &c, &self, &here);
    CHECK_SAYING(!cmn_communicator_no_begin(c, self), "%s", name);
    try_buckets(c, self, n, world);
    c->close(self);
    CHECK_SAYING(fake.alive == 0, "%s, %s: %d things were not given back", name, world, fake.alive);
}

static void on_nodes(const struct cmn_topology *place, const char *world)
{
    try_length("pure_nccl", place, 300000, world);
    try_length("non_cuda_aware", place, 600000, world);
    try_length("flat", place, 300000, world);
    try_length("two_dimensional", place, 300000, world);
}

/* One part, several and a rest, and, where that is quick, as many as there can be. */
static void the_bits_of_one_exchange(void **state)
{
    (void)state;
    all_well();
    for (size_t t = 0; t < COUNT(types); t++) {
        options.compress = types[t];
        try_length("pure_nccl", &top, 0, "as it is");
        try_length("pure_nccl", &top, 100, "as it is");
        try_length("pure_nccl", &top, 600000, "as it is");
        try_length("single_node", &top, 300000, "as it is");
    }
    options.compress = CMN_COMPRESS_OFF;
    try_length("non_cuda_aware", &top, 0, "as it is");
    try_length("non_cuda_aware", &top, 100, "as it is");
    on_nodes(&top, "as it is");
    if (top.size <= 2) {
        try_length("pure_nccl", &top, 5000000, "as it is");
        try_length("flat", &top, 5000000, "as it is");
    }
    in_every_world(on_nodes);
    all_well();
    fail_on_all_ranks();
}

/* What is queued behind `order` finds the sums, though nobody has waited for them. */
static void order(void **state)
{
    static const char *const names[] = {"pure_nccl", "single_node"};
    enum { N = 300000, TIMES = 5 };

    (void)state;
    all_well();
    for (size_t k = 0; k < COUNT(names); k++) {
        const struct cmn_communicator *c;
        struct gpu_block b, copy;
        struct cmn_span tensor;
        struct cmn_exchange x;
        void *self = NULL;
        open_named(names[k], &c, &self, &top);
        make_block(&b, padded(N) + 16);
        make_block(&copy, padded(N) + 16);
        x = exchange_of(&b, &tensor, N);
        for (int i = 0; i < TIMES; i++) {
            stale(&copy);
            backward(&b, 0, b.n);
            c->begin(self, &x, b.n);
            CHECK(c->order(self) == 1);
            cmn_device_copy(copy.data, b.data, b.n);
            read_block(&copy, c->name);
            c->allreduce(self, &x);
            check_sums(&copy, N, CMN_FP32);
        }
        c->close(self);
        free_block(&b);
        free_block(&copy);
    }
    fail_on_all_ranks();
}

/* Many sums of growing length, in all types; and again after the end. */
static void many_sums(void **state)
{
    enum { SUMS = 100, ROOM = SUMS * SUMS };
    struct cmn_group group = {top.world, "world", &top, &options};
    struct gpu_block b;
    void *self = NULL;

    (void)state;
    all_well();
    CHECK_SAYING(cmn_nccl_open(&self, &group) == 0, "%s", cmn_reason());
    make_block(&b, ROOM);
    for (int round = 0; round < 2; round++) {
        size_t at = 0;
        stale(&b);
        cmn_nccl_end(self, NULL, NULL);
        cmn_nccl_begin(self, b.data, 0, CMN_FP32, 0);
        for (size_t i = 0; i < SUMS; i++) {
            backward(&b, at, at + i);
            cmn_nccl_begin(self, b.data + at, i, types[i % 3], 0);
            at += i;
        }
        cmn_nccl_end(self, NULL, NULL);
        read_block(&b, "background");
        check_sums(&b, at, CMN_BF16);
        CHECK_SAYING(at == ROOM || b.host[at] == mark, "what was not begun changed");
    }
    cmn_nccl_close(self);
    free_block(&b);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    fail_on_all_ranks();
}

/* Each sum of a step has its span, one after the other on the stream, within what the host saw of
 * it. */
static void spans(void **state)
{
    const struct cmn_communicator *c;
    struct gpu_block b;
    struct cmn_event *e;
    void *self = NULL;
    size_t n = 0, lost;
    int64_t before, after;
    enum { N = 600000, SUMS = 3 };

    (void)state;
    all_well();
    cmn_timeline_open(100);
    open_named("pure_nccl", &c, &self, &top);
    make_block(&b, padded(N) + 16);
    before = (int64_t)(cmn_clock() * 1e9);
    step(c, self, &b, N, N / 10);
    step(c, self, &b, N, N / 10);
    after = (int64_t)(cmn_clock() * 1e9);
    e = cmn_timeline_copy(&n, &lost);
    CHECK_SAYING(e && n == 2 * (size_t)SUMS, "%zu spans: %s", n, e ? "" : cmn_reason());
    for (size_t i = 0; e && i < n; i++) {
        CHECK_SAYING(e[i].what == CMN_SPAN_EXCHANGE && e[i].number == (int)(i % SUMS), "span %zu",
                     i);
        CHECK_SAYING(e[i].background, "span %zu hides what the host does", i);
        CHECK_SAYING(e[i].begin <= e[i].end && e[i].begin >= (i ? e[i - 1].end : before) - 10000 &&
                         e[i].end <= after,
                     "span %zu is out of place", i);
    }
    free(e);
    cmn_timeline_close();
    c->close(self);
    free_block(&b);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    fail_on_all_ranks();
}

/* An exchange that was begun fails: its end says so. */
static void broken(const char *says, ncclResult_t state)
{
    const struct cmn_communicator *c;
    struct gpu_block b;
    struct cmn_span tensor;
    struct cmn_exchange x;
    const char *said;
    void *self = NULL;
    enum { N = 600000 };

    open_named("pure_nccl", &c, &self, &top);
    make_block(&b, padded(N) + 16);
    x = exchange_of(&b, &tensor, N);
    backward(&b, 0, N);
    c->begin(self, &x, N / 2);
    fake.stuck = 1;
    fake.state = state;
    said = fatal_of(c->allreduce(self, &x));
    CHECK_SAYING(said && check_lost && strstr(said, says), "no \"%s\" in: %s", says, said);
    CHECK_SAYING(fake.aborts == 1, "%d calls of ncclCommAbort", fake.aborts);
    c->close(self);
    free_block(&b);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    all_well();
}

static void nccl_reports_an_error(void **state)
{
    (void)state;
    needs_the_stand_in();
    all_well();
    broken("fake remote error", ncclRemoteError);
    fail_on_all_ranks();
}

static void nothing_comes(void **state)
{
    (void)state;
    needs_the_stand_in();
    all_well();
    options.timeout = 1;
    broken("waited 1 s (cmn_timeout)", ncclSuccess);
    fail_on_all_ranks();
}

/* Darknet's own work, behind which the copy to the host lies. */
static void a_copy_does_not_end(void **state)
{
    const struct cmn_communicator *c;
    struct gpu_block b;
    struct cmn_span tensor;
    struct cmn_exchange x;
    const char *said;
    void *self = NULL;
    enum { N = 6000 };

    (void)state;
    needs_the_stand_in();
    all_well();
    if (top.size == 1) {
        return; /* it copies nothing */
    }
    options.timeout = 1;
    open_named("flat", &c, &self, &top);
    make_block(&b, padded(N) + 16);
    x = exchange_of(&b, &tensor, N);
    c->begin(self, &x, 0);
    fake.hangs = 1;
    backward(&b, 0, N);
    said = fatal_of(c->allreduce(self, &x));
    CHECK_SAYING(said &&
                     strstr(said, "a copy between GPU and CPU did not end in 1 s (cmn_timeout)"),
                 "%s", said);
    fake.hangs = 0;
    c->close(self);
    free_block(&b);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    all_well();
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_one_exchange),
        cmocka_unit_test(order),
        cmocka_unit_test(many_sums),
        cmocka_unit_test(spans),
        cmocka_unit_test(nccl_reports_an_error),
        cmocka_unit_test(nothing_comes),
        cmocka_unit_test(a_copy_does_not_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
