/* Update policies on a GPU, over the stand-in, give the weights of the CPU; the same bits on all
 * ranks, and after a restart. */
#include "gpu/gpu.h"

#include <math.h>

#include "ranks/optimizers/sides.h"

/* Ways to train: a communicator, and words that stand for keys. `nodes`: the ranks stand for two
 * nodes. */
static const char *const ways[] = {
    "pure_nccl",
    "single_node",
    "pure_nccl lars",
    "hierarchical clip",
    "pure_nccl skip",
    "pure_nccl lars clip skip",
    "pure_nccl local",
    "single_node local",
    "pure_nccl delayed",
    "single_node delayed",
    "flat delayed powersgd",
    "pure_nccl delayed lars skip",
    "pure_nccl delayed clip",
    "flat delayed ring",
    "pure_nccl delayed adam",
    "single_node delayed adam clip",
    "flat delayed adam powersgd",
    "hierarchical nodes delayed",
    "two_dimensional nodes delayed",
    "hierarchical nodes delayed powersgd",
    "hierarchical nodes delayed adam",
    "flat delayed local",
    "pure_nccl delayed local",
    "flat powersgd",
    "flat local powersgd",
};

static int has(const char *way, const char *word)
{
    return strstr(way, word) != NULL;
}

static struct cmn_topology on_cpu, two_on_cpu, two;

static const struct cmn_topology *place_of(const char *way, int gpu)
{
    return has(way, "nodes") ? (gpu ? &two : &two_on_cpu) : (gpu ? &top : &on_cpu);
}

static struct cmn_options options_of(const char *way, int gpu)
{
    struct cmn_options o;

    cmn_options_default(&o);
    sscanf(way, "%31s", o.communicator);
    if (!gpu && !has(way, "nodes delayed powersgd")) { /* where it matters which ranks are a node */
        snprintf(o.communicator, sizeof o.communicator, "flat");
    }
    o.lars = has(way, "lars") ? 0.01 : 0;
    o.clip = has(way, "clip") ? 2.5 : 0;
    o.nonfinite = has(way, "skip") ? CMN_NONFINITE_SKIP : CMN_NONFINITE_STOP;
    o.compress = has(way, "powersgd") ? CMN_COMPRESS_POWERSGD : CMN_COMPRESS_OFF;
    o.double_buffering = has(way, "delayed");
    o.exchange = gpu && has(way, "ring") ? CMN_EXCHANGE_RING : CMN_EXCHANGE_AUTO;
    o.local_steps = has(way, "local") ? EVERY : 1;
    return o;
}

/* All weights, after UPDATES steps, on the CPU or on GPUs; the caller frees them. With `skips` a step
 * that is left out comes after the third. */
static float *trained_on(const char *way, int skips, int gpu, size_t *n)
{
    struct cmn_options o = options_of(way, gpu);
    struct cmn_rule rule = {IMAGES / top.size, RATE, MOMENTUM, DECAY, 0};
    struct side s;
    float *result;

    with_adam = has(way, "adam");
    open_side(&s, place_of(way, gpu), &o);
    CHECK_SAYING(s.g.on_gpu == gpu, "%s", way);
    for (int i = 1; i <= UPDATES; i++) {
        step(&s, i);
        if (skips && i == 3) {
            int fresh = cmn_optimizer_update(&s.s, &rule, IMAGES, 1);
            CHECK(rule.done && fresh == has(way, "delayed"));
            s.told += fresh ? (double)s.s.metrics[0] : 0;
        }
    }
    check_told(&s, s.told);
    result = weights(&s, n);
    CHECK_SAYING(same_everywhere(result, *n * sizeof *result), "%s: ranks differ", way);
    MPI_Barrier(top.world);
    close_side(&s);
    with_adam = 0;
    return result;
}

/* Darknet itself gives not all back of such a network; each way leaves the same. */
static void as_cpu_one(const char *way)
{
    static int leaves[] = {-1, -1};
    size_t n, m;
    int skips = has(way, "skip"), before = fake.alive, *left = &leaves[has(way, "adam")];
    float *want = trained_on(way, skips, 0, &n), *got = trained_on(way, skips, 1, &m);
    double off = 0, all = 0;

    for (size_t i = 0; i < n && n == m; i++) {
        double d = (double)got[i] - (double)want[i];
        off += d * d;
        all += (double)want[i] * (double)want[i];
    }
    CHECK_SAYING(n == m && n > 20000 && sqrt(off) < 1e-6 * sqrt(all), "%s: %g of the norm away",
                 way, sqrt(off / all));
    *left = *left < 0 ? fake.alive - before : *left;
    CHECK_SAYING(fake.alive - before == *left, "%s: %d things were not given back, and %d before",
                 way, fake.alive - before, *left);
    free(want);
    free(got);
}

static void each_way(void (*test)(const char *way))
{
    for (size_t i = 0; i < COUNT(ways) && !failure[0]; i++) {
        all_well();
        if (!has(ways[i], "nodes") || two.inter_size == 2) {
            test(ways[i]);
        }
    }
    fail_on_all_ranks();
}

static void as_cpu(void **state)
{
    (void)state;
    each_way(as_cpu_one);
}

static void restarted(const char *way)
{
    struct cmn_options o = options_of(way, 1);

    o.nonfinite = CMN_NONFINITE_STOP;
    with_adam = has(way, "adam");
    restart(place_of(way, 1), &o, way, NULL);
    with_adam = 0;
}

static void restarts(void **state)
{
    (void)state;
    each_way(restarted);
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
