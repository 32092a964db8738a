/* Communicators on GPUs over the stand-in for CUDA and NCCL, in every shape of nodes: those that
 * cannot work say why, the others sum exactly. */
#include "gpu/gpu.h"

#include <math.h>

static const size_t lengths[] = {0, 1, 100, 1000, 70001};
static int tried; /* communicators that did not refuse */

enum { SUMMING = 7 }; /* all but shm and dummy */

static void try_length(const struct cmn_communicator *c, void *self, size_t n, const char *world)
{
    struct gpu_block b;
    struct cmn_span tensor;
    struct cmn_exchange x;
    int factor = top.size * (top.size + 1) / 2;

    make_block(&b, (n + 15) / 16 * 16 + 16);
    x = exchange_of(&b, &tensor, n);
    for (int call = 0; call < 2; call++) {
        fill_block(&b, top.rank);
        c->allreduce(self, &x);
        read_block(&b, c->name);
        for (size_t i = 0; i < b.n; i++) {
            float want = whole(i, 0) * (float)factor;
            int sums = i < n || i >= b.n - 16; /* padding may be summed or not */
            CHECK_SAYING(!sums || b.host[i] == want, "%s, %s, %zu floats, at %zu: %g, not %g",
                         c->name, world, n, i, (double)b.host[i], (double)want);
        }
        CHECK_SAYING(same_everywhere(b.host, n * sizeof *b.host), "%s, %s: other bits", c->name,
                     world);
    }
    free_block(&b);
}

static void try_all(const struct cmn_topology *place, const char *world)
{
    const struct cmn_communicator *c;
    struct cmn_topology here = *place;

    here.device = 0;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        void *self = NULL;
        if (!c->sums || cmn_communicator_refuses(c, &here, &options)) {
            continue;
        }
        tried++;
        CHECK_SAYING(c->open(&self, c, &here, &options) == 0, "%s, %s: %s", c->name, world,
                     cmn_reason());
        for (size_t i = 0; i < COUNT(lengths); i++) {
            try_length(c, self, lengths[i], world);
        }
        c->close(self);
        CHECK_SAYING(fake.alive == 0, "%s, %s: %d things were not given back", c->name, world,
                     fake.alive);
    }
}

static void over_nccl(void **state)
{
    (void)state;
    all_well();
    tried = 0;
    try_all(&top, "as it is");
    CHECK_SAYING(tried == SUMMING, "%d communicators were tried", tried);
    in_every_world(try_all);
    fail_on_all_ranks();
}

/* No NCCL within a node, but where there is nothing else. */
static void through_the_host(void **state)
{
    (void)state;
    all_well();
    options.intra = CMN_INTRA_MPI;
    tried = 0;
    try_all(&top, "as it is");
    CHECK_SAYING(tried == SUMMING, "%d communicators were tried", tried);
    in_every_world(try_all);
    all_well();
    fail_on_all_ranks();
}

static void refusals(void **state)
{
    const struct cmn_communicator *c;
    const char *why;

    (void)state;
    all_well();
    snprintf(options.communicator, sizeof options.communicator, "shm");
    CHECK(!cmn_communicator_choose(&top, &options, &why));
    CHECK_SAYING(strstr(cmn_reason(), "pure_nccl"), "%s", cmn_reason());
    snprintf(options.communicator, sizeof options.communicator, "auto");
    c = cmn_communicator_choose(&top, &options, &why);
    CHECK_SAYING(c && !strcmp(c->name, "pure_nccl"), "auto: %s", c ? c->name : cmn_reason());
    options.compress = CMN_COMPRESS_BF16;
    c = cmn_communicator_choose(&top, &options, &why);
    CHECK_SAYING(c && !strcmp(c->name, "pure_nccl"), "auto: %s", c ? c->name : cmn_reason());
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        int between = (c->can[1] & CMN_CASTS) && strcmp(c->name, "pure_nccl") &&
                      strcmp(c->name, "single_node") && strcmp(c->name, "flat");
        snprintf(options.communicator, sizeof options.communicator, "%s", c->name);
        CHECK_SAYING(!cmn_communicator_choose(&top, &options, &why) ==
                         (!(c->can[1] & CMN_CASTS) || between),
                     "%s", c->name);
        CHECK_SAYING((c->can[1] & CMN_CASTS) || strstr(cmn_reason(), "cmn_compress"), "%s",
                     cmn_reason());
        CHECK_SAYING(!between || strstr(cmn_reason(), "or use flat"), "%s", cmn_reason());
    }
    all_well();
    fail_on_all_ranks();
}

/* On one node, without NCCL: the CPU's refusals. */
static void refusals_through_the_host(void **state)
{
    static const char *const nodes[] = {"hierarchical", "two_dimensional", "single_node",
                                        "non_cuda_aware"};
    const struct cmn_communicator *c;
    const char *why;

    (void)state;
    all_well();
    options.intra = CMN_INTRA_MPI;
    for (int delayed = 0; delayed < 2; delayed++) {
        options.compress = delayed ? CMN_COMPRESS_OFF : CMN_COMPRESS_BF16;
        options.double_buffering = delayed;
        for (size_t i = 0; i < COUNT(nodes); i++) {
            snprintf(options.communicator, sizeof options.communicator, "%s", nodes[i]);
            CHECK_SAYING(!cmn_communicator_choose(&top, &options, &why), "%s", nodes[i]);
            CHECK_SAYING(strstr(cmn_reason(), "does not go with ranks on one node") &&
                             strstr(cmn_reason(), "or use flat, which sends all the same"),
                         "%s", cmn_reason());
        }
    }
    all_well();
    top.shares_gpus = 1;
    snprintf(options.communicator, sizeof options.communicator, "auto");
    c = cmn_communicator_choose(&top, &options, &why);
    CHECK_SAYING(c && !strcmp(c->name, "single_node"), "auto: %s", c ? c->name : cmn_reason());
    top.shares_gpus = 0;
    all_well();
    fail_on_all_ranks();
}

/* 16 bits over NCCL. Through the host they are the CPU's:
 * through_host.c. */
static struct {
    enum cmn_dtype type;
    float value, relative;
} bits;

static float small_and_large(size_t i)
{
    return bits.value / (float)(i + 1) * (i % 2 ? 1.0F : -1.0F);
}

/* Numbers near the end of fp16: their sum fits in no 16 bits, their mean does. The metrics stay
 * exact. */
static void try_mean(const struct cmn_communicator *c, void *self, const char *world)
{
    enum { N = 3000 };
    struct gpu_block b;
    struct cmn_span tensor;
    struct cmn_exchange x;

    make_block(&b, N + 8 + 16);
    x = exchange_of(&b, &tensor, N);
    fill_block(&b, 0);
    for (size_t i = 0; i < N; i++) {
        b.host[GUARD + i] = small_and_large(i);
    }
    b.host[GUARD + N + 8] = 16777215.0F / (float)top.size;
    cmn_device_write(b.memory, b.host, b.n + 2 * GUARD);
    c->allreduce(self, &x);
    read_block(&b, c->name);
    for (size_t i = 0; i < N; i++) {
        float want = (float)top.size * small_and_large(i), error = b.host[i] / want - 1;
        CHECK_SAYING(error < bits.relative && error > -bits.relative, "%s, %s, at %zu: %g, not %g",
                     c->name, world, i, (double)b.host[i], (double)want);
    }
    CHECK_SAYING(b.host[N + 8] > 16777210.0F && b.host[N + 8] < 16777220.0F,
                 "%s, %s, metrics: %.1f", c->name, world, (double)b.host[N + 8]);
    CHECK_SAYING(same_everywhere(b.host, b.n * sizeof *b.host), "%s, %s: other bits", c->name,
                 world);
    free_block(&b);
}

/* Gradients are sums over images: their mean is to fit; a sum that does not is finite on no rank. */
static void try_sums_over_images(const struct cmn_communicator *c, void *self, const char *world)
{
    struct gpu_block b;
    struct cmn_span tensor;
    struct cmn_exchange x;

    make_block(&b, 128);
    x = exchange_of(&b, &tensor, 112);
    x.images = 64;
    for (int fits = 1; fits >= 0; fits--) {
        for (size_t i = 0; i < b.n; i++) {
            b.host[i] = i == 100 ? (fits ? 3e6F : 5e6F) / (float)top.size : 1;
        }
        cmn_device_write(b.data, b.host, b.n);
        c->allreduce(self, &x);
        cmn_device_read(b.host, b.data, b.n);
        CHECK_SAYING(fits ? b.host[100] > 2.99e6F && b.host[100] < 3.01e6F : isinf(b.host[100]),
                     "%s, %s: %g", c->name, world, (double)b.host[100]);
    }
    free_block(&b);
}

/* One that adds 32 bits would be seen by the sums that fit. */
static void try_16_bits(const struct cmn_topology *place, const char *world)
{
    const struct cmn_communicator *c;
    struct cmn_topology here = *place;

    here.device = 0;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        void *self = NULL;
        if (cmn_communicator_refuses(c, &here, &options) || !c->sums ||
            (c->recipe != CMN_ONE_GROUP && c->recipe != CMN_WITHIN_NODE)) {
            continue;
        }
        tried++;
        CHECK_SAYING(c->open(&self, c, &here, &options) == 0, "%s, %s: %s", c->name, world,
                     cmn_reason());
        try_mean(c, self, world);
        if (bits.type == CMN_FP16 && place->size > 1) {
            try_sums_over_images(c, self, world);
        }
        c->close(self);
        CHECK_SAYING(fake.alive == 0, "%s, %s: %d things were not given back", c->name, world,
                     fake.alive);
    }
}

static void sixteen_bits(enum cmn_dtype type, float value, float relative)
{
    all_well();
    bits.type = options.compress = type;
    bits.value = value;
    bits.relative = relative;
    tried = 0;
    try_16_bits(&top, "as it is");
    CHECK_SAYING(tried == 2, "%d communicators were tried", tried); /* pure_nccl, single_node */
    in_every_world(try_16_bits);
    all_well();
    fail_on_all_ranks();
}

static void fp16(void **state)
{
    (void)state;
    sixteen_bits(CMN_FP16, 60000.0F, 0.003F);
}

static void bf16(void **state)
{
    (void)state;
    sixteen_bits(CMN_BF16, 1e30F, 0.02F);
}

static void no_memory_for_16_bits(void **state)
{
    const struct cmn_communicator *c;
    struct gpu_block b;
    struct cmn_span tensor;
    struct cmn_exchange x;
    void *self = NULL;
    const char *why, *said;

    (void)state;
    needs_the_stand_in();
    all_well();
    options.compress = CMN_COMPRESS_FP16;
    c = cmn_communicator_choose(&top, &options, &why);
    CHECK_SAYING(c && c->open(&self, c, &top, &options) == 0, "%s", cmn_reason());
    make_block(&b, 128);
    x = exchange_of(&b, &tensor, 112);
    fake.no_memory = 1;
    said = fatal_of(c->allreduce(self, &x));
    CHECK_SAYING(said && strstr(said, "cudaMalloc") && !check_lost, "%s", said);
    c->close(self);
    free_block(&b);
    all_well();
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(refusals_through_the_host),
        cmocka_unit_test(over_nccl),
        cmocka_unit_test(through_the_host),
        cmocka_unit_test(fp16),
        cmocka_unit_test(bf16),
        cmocka_unit_test(no_memory_for_16_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
