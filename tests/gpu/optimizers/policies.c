/* Update policies on a GPU, over the stand-in, give the weights of the CPU; the same bits on all
 * ranks, and after a restart. */
#include "gpu/gpu.h"

#include <math.h>

#include "ranks/optimizers/sides.h"

/* A way to train, by the keys that ask for it. */
static const struct way {
    const char *name, *communicator;
    double lars, clip;
    int skips, delayed, restarts, compress, adam, nodes;
    long exchange; /* enum cmn_exchange_by */
    long local;
} ways[] = {
    {.restarts = 1, .name = "plain", .communicator = "pure_nccl"},
    {.name = "plain, single_node", .communicator = "single_node"},
    {.name = "LARS", .communicator = "pure_nccl", .lars = 0.01},
    {.name = "clip", .communicator = "non_cuda_aware", .clip = 2.5},
    {.name = "skip", .communicator = "pure_nccl", .skips = 1},
    {.restarts = 1,
     .name = "LARS, clip and skip",
     .communicator = "pure_nccl",
     .lars = 0.01,
     .clip = 2.5,
     .skips = 1},
    {.restarts = 1, .name = "local steps", .communicator = "pure_nccl", .local = EVERY},
    {.name = "local steps, single_node", .communicator = "single_node", .local = EVERY},
    {.name = "double buffering", .communicator = "pure_nccl", .delayed = 1},
    {.name = "double buffering, one node", .communicator = "single_node", .delayed = 1},
    {.restarts = 1,
     .name = "double buffering, powersgd",
     .communicator = "flat",
     .delayed = 1,
     .compress = CMN_COMPRESS_POWERSGD},
    {.restarts = 1,
     .name = "double buffering, LARS, skip",
     .communicator = "pure_nccl",
     .delayed = 1,
     .lars = 0.01,
     .skips = 1},
    {.name = "double buffering, clip", .communicator = "pure_nccl", .delayed = 1, .clip = 2.5},
    {.restarts = 1,
     .name = "double buffering through the host",
     .communicator = "flat",
     .exchange = CMN_EXCHANGE_RING,
     .delayed = 1},
    {.restarts = 1,
     .name = "Adam, double buffering",
     .communicator = "pure_nccl",
     .delayed = 1,
     .adam = 1},
    {.restarts = 1,
     .name = "Adam, double buffering, clip",
     .communicator = "single_node",
     .delayed = 1,
     .adam = 1,
     .clip = 2.5},
    {.restarts = 1,
     .name = "Adam, double buffering, powersgd",
     .communicator = "flat",
     .delayed = 1,
     .adam = 1,
     .compress = CMN_COMPRESS_POWERSGD},
    {.restarts = 1,
     .name = "double buffering, hierarchical on two nodes",
     .communicator = "hierarchical",
     .nodes = 1,
     .delayed = 1},
    {.restarts = 1,
     .name = "double buffering, slices of two nodes",
     .communicator = "two_dimensional",
     .nodes = 1,
     .delayed = 1},
    {.name = "double buffering, hierarchical on two nodes, powersgd",
     .communicator = "hierarchical",
     .nodes = 1,
     .delayed = 1,
     .compress = CMN_COMPRESS_POWERSGD},
    {.name = "double buffering, non_cuda_aware on two nodes",
     .communicator = "non_cuda_aware",
     .nodes = 1,
     .delayed = 1},
    {.name = "Adam, double buffering, hierarchical on two nodes",
     .communicator = "hierarchical",
     .nodes = 1,
     .delayed = 1,
     .adam = 1},
    {.name = "delayed local steps, flat", .communicator = "flat", .delayed = 1, .local = EVERY},
    {.restarts = 1,
     .name = "delayed local steps",
     .communicator = "pure_nccl",
     .delayed = 1,
     .local = EVERY},
    {.restarts = 1, .name = "powersgd", .communicator = "flat", .compress = CMN_COMPRESS_POWERSGD},
    {.restarts = 1,
     .name = "local steps, powersgd",
     .communicator = "flat",
     .local = EVERY,
     .compress = CMN_COMPRESS_POWERSGD},
};

/* `nodes`: the ranks stand for two nodes. */
static struct cmn_topology on_cpu, two_on_cpu, two;

static const struct cmn_topology *place_of(const struct way *w, int gpu)
{
    return w->nodes ? (gpu ? &two : &two_on_cpu) : (gpu ? &top : &on_cpu);
}

static int has_place(const struct way *w)
{
    return !w->nodes || two.inter_size == 2;
}

static struct cmn_options options_of(const struct way *w, int gpu)
{
    struct cmn_options o;

    cmn_options_default(&o);
    /* To a compressor it matters which ranks are a node. */
    snprintf(o.communicator, sizeof o.communicator, "%s",
             gpu || (w->nodes && w->compress) ? w->communicator : "flat");
    o.lars = w->lars;
    o.clip = w->clip;
    o.nonfinite = w->skips ? CMN_NONFINITE_SKIP : CMN_NONFINITE_STOP;
    o.compress = w->compress;
    o.double_buffering = w->delayed;
    o.exchange = gpu ? w->exchange : CMN_EXCHANGE_AUTO;
    o.local_steps = w->local ? w->local : 1;
    return o;
}

/* All weights, after UPDATES steps, on the CPU or on GPUs; the caller frees them. With `bad` a step
 * that is left out comes after the third; `rule` of the policies alone decides. */
static float *trained_on(const struct way *w, int gpu, size_t *n)
{
    struct cmn_options o = options_of(w, gpu);
    struct cmn_rule rule = {IMAGES / top.size, RATE, MOMENTUM, DECAY, 0};
    struct side s;
    float *result;

    with_adam = w->adam;
    open_side(&s, place_of(w, gpu), &o);
    CHECK_SAYING(s.g.on_gpu == gpu, "%s", w->name);
    for (int i = 1; i <= UPDATES; i++) {
        step(&s, i);
        if (w->skips && i == 3) {
            int fresh = cmn_optimizer_update(&s.s, &rule, IMAGES, 1);
            CHECK(rule.done && fresh == w->delayed);
            s.told += fresh ? (double)s.s.metrics[0] : 0;
        }
    }
    check_told(&s, s.told);
    result = weights(&s, n);
    CHECK_SAYING(same_everywhere(result, *n * sizeof *result), "%s: ranks differ", w->name);
    MPI_Barrier(top.world);
    close_side(&s);
    with_adam = 0;
    return result;
}

/* Darknet itself gives not all back of such a network; each way leaves the same. */
static void as_cpu_one(const struct way *w)
{
    static int leaves[] = {-1, -1};
    size_t n, m;
    int before = fake.alive, *left = &leaves[w->adam];
    float *want = trained_on(w, 0, &n), *got = trained_on(w, 1, &m);
    double off = 0, all = 0;

    for (size_t i = 0; i < n && n == m; i++) {
        double d = (double)got[i] - (double)want[i];
        off += d * d;
        all += (double)want[i] * (double)want[i];
    }
    CHECK_SAYING(n == m && n > 20000 && sqrt(off) < 1e-6 * sqrt(all), "%s: %g of the norm away",
                 w->name, sqrt(off / all));
    *left = *left < 0 ? fake.alive - before : *left;
    CHECK_SAYING(fake.alive - before == *left, "%s: %d things were not given back, and %d before",
                 w->name, fake.alive - before, *left);
    free(want);
    free(got);
}

static void as_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(ways) && !failure[0]; i++) {
        all_well();
        if (has_place(&ways[i])) {
            as_cpu_one(&ways[i]);
        }
    }
    fail_on_all_ranks();
}

/* What a checkpoint keeps: state, and momentum that it names as gradients. */
static void hand_over(struct side *from, struct side *to)
{
    struct cmn_momentum_part a, b;
    struct cmn_state x, y;

    cmn_optimizer_pause(&from->s);
    cmn_optimizer_pause(&to->s);
    for (int i = 0; cmn_optimizer_state(&from->s, i, &x); i++) {
        CHECK(cmn_optimizer_state(&to->s, i, &y) && x.bytes == y.bytes);
        memcpy(y.data, x.data, x.bytes);
    }
    if (cmn_optimizer_replicates(&from->s)) {
        a = cmn_optimizer_momentum(&from->s);
        b = cmn_optimizer_momentum(&to->s);
        memcpy(b.data + b.first, a.data + a.first, a.n * sizeof *a.data);
    }
    cmn_optimizer_restored(&to->s);
    for (int i = 0; i < from->g.tensors; i++) {
        const struct cmn_tensor *t = &from->g.tensor[i];
        if (t->kind == CMN_GRADIENT) {
            memcpy(*to->g.tensor[i].weight, *t->weight, t->n * sizeof(float));
            memcpy(*to->g.tensor[i].at, *t->at, t->n * sizeof(float));
        }
    }
    cmn_gradients_pull(&from->g, CMN_MOMENT);
    for (int i = 0; i < from->g.tensors; i++) {
        const struct cmn_tensor *t = &from->g.tensor[i];
        if (t->kind == CMN_MOMENT) {
            memcpy(*to->g.tensor[i].at, *t->at, t->n * sizeof(float));
        }
    }
    cmn_gradients_push(&to->g, CMN_MOMENT);
    cmn_gradients_push(&to->g, CMN_WEIGHT);
    if (to->s.policy->own_weights) {
        cmn_gradients_push(&to->g, CMN_GRADIENT);
    }
}

static void restarted(const struct way *w)
{
    struct cmn_options o = options_of(w, 1);
    struct side first, second;
    struct way unbroken = *w;
    size_t n;
    float *want, *got;

    unbroken.skips = 0;
    o.nonfinite = CMN_NONFINITE_STOP;
    want = trained_on(&unbroken, 1, &n);
    with_adam = w->adam;
    open_side(&first, place_of(w, 1), &o);
    open_side(&second, place_of(w, 1), &o);
    for (int i = 1; i <= UPDATES; i++) {
        if (i == 5) {
            hand_over(&first, &second);
        }
        step(i < 5 ? &first : &second, i);
    }
    got = weights(&second, &n);
    CHECK_SAYING(!memcmp(want, got, n * sizeof *got), "%s: other bits after a restart", w->name);
    free(want);
    free(got);
    MPI_Barrier(top.world);
    close_side(&first);
    close_side(&second);
    with_adam = 0;
}

static void restarts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(ways) && !failure[0]; i++) {
        all_well();
        if (ways[i].restarts && has_place(&ways[i])) {
            restarted(&ways[i]);
        }
    }
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_cpu),
        cmocka_unit_test(restarts),
    };
    int failed;

    cmn_topology_open(&on_cpu);
    cmn_topology_open_as(&two_on_cpu, top.rank >= (top.size + 1) / 2);
    cmn_topology_open_as(&two, top.rank >= (top.size + 1) / 2);
    on_cpu.device = two_on_cpu.device = -1;
    two.device = 0;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cmn_topology_close(&on_cpu);
    cmn_topology_close(&two_on_cpu);
    cmn_topology_close(&two);
    return failed;
}

int main(void)
{
    return gpu_main(group);
}
