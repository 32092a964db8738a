/* Update policies on a GPU, over the stand-in, give the weights of the CPU; the same bits on all
 * ranks, and after a restart. */
#include "gpu/gpu.h"

#include <math.h>

#include "ranks/optimizers/sides.h"

/* Ways to train: a communicator, and words that stand for keys. `nodes`: the ranks stand for two
 * nodes. */
static const char *const ways[] = {
    "pure_nccl",
    "pure_nccl lars",
    "hierarchical clip",
    "pure_nccl skip",
    "pure_nccl lars clip skip",
    "pure_nccl local",
    "pure_nccl delayed",
    "flat delayed powersgd",
    "pure_nccl delayed lars skip",
    "pure_nccl delayed clip",
    "flat delayed ring",
    "pure_nccl delayed adam",
    "pure_nccl delayed adam clip skip",
    "flat delayed adam powersgd",
    "hierarchical nodes delayed",
    "hierarchical nodes delayed powersgd",
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

static struct cmn_options options_of_way(const char *way, int gpu)
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

/* The weights of the CPU, and those again after a restart. Darknet itself gives not all back of such a
 * network; each way leaves the same. */
static void try_way(const char *way)
{
    static int leaves[] = {-1, -1};
    struct cmn_options here = options_of_way(way, 1), there = options_of_way(way, 0);
    int before = fake.alive, *left = &leaves[has(way, "adam")];
    size_t n, m;
    float *want, *got;
    double off = 0, all = 0;

    with_adam = has(way, "adam");
    /* A step whose update is Darknet's own cannot be left out by a side: then the sums are only looked
     * at before they are used. */
    skip_after = has(way, "skip") && !with_adam ? 3 : 0;
    want = trained(place_of(way, 0), &there, &n);
    got = trained(place_of(way, 1), &here, &m);
    for (size_t i = 0; i < n && n == m; i++) {
        double d = (double)got[i] - (double)want[i];
        off += d * d;
        all += (double)want[i] * (double)want[i];
    }
    CHECK_SAYING(n == m && n > 20000 && sqrt(off) < 1e-6 * sqrt(all), "%s: %g of the norm away",
                 way, sqrt(off / all));
    free(want);
    restart(place_of(way, 1), &here, way, got);
    *left = *left < 0 ? fake.alive - before : *left;
    CHECK_SAYING(fake.alive - before == *left, "%s: %d things were not given back, and %d before",
                 way, fake.alive - before, *left);
    with_adam = skip_after = 0;
}

RANK_TEST(as_cpu)
{
    cmn_topology_open(&on_cpu);
    cmn_topology_open_as(&two_on_cpu, top.rank >= (top.size + 1) / 2);
    cmn_topology_open_as(&two, top.rank >= (top.size + 1) / 2);
    on_cpu.device = two_on_cpu.device = -1;
    two.device = 0;
    for (size_t i = 0; i < COUNT(ways) && !failure[0]; i++) {
        all_well();
        if (!has(ways[i], "nodes") || two.inter_size == 2) {
            try_way(ways[i]);
        }
    }
    cmn_topology_close(&on_cpu);
    cmn_topology_close(&two_on_cpu);
    cmn_topology_close(&two);
}

RANK_TESTS(NULL, NULL)
