/* The gradients of a network of Darknet's on a GPU, over the stand-in for CUDA. */
#include "gpu/gpu.h"

#include <float.h>
#include <math.h>

#include "communicators/communicator.h"
#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "nets.h"
#include "optimizers/gradient_exchange.h"

enum { OUT = 5 };
#define NET "[net]\nbatch=2\nheight=4\nwidth=4\nchannels=2\nclip=0.0625\n"
#define LAYERS                                                       \
    "[convolutional]\nfilters=3\nsize=3\npad=1\nbatch_normalize=1\n" \
    "[convolutional]\nfilters=18\nsize=1\nactivation=linear\n"       \
    "[connected]\noutput=5\n"
static const char *cfg = NET LAYERS;

static network *net;
static struct cmn_gradients g;

/* Darknet itself gives not all back of such a network: each time the same. */
static int darknets;

static void make_net(void)
{
    int before = fake.alive;

    nets_free(nets_parse(cfg));
    darknets = fake.alive - before;
    fake.alive = before;
    net = nets_parse(cfg);
}

static void set_up(void)
{
    make_net();
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
}

static void tear_down(void)
{
    cmn_gradients_close(&g);
    nets_free(net);
    fake.alive -= darknets;
}

static float read_one(const float *device)
{
    float value;

    cmn_device_read(&value, device, 1);
    return value;
}

/* What Darknet has on the GPU is there in the blocks, and what it has on the host is in the host's. */
GPU_TEST(flat)
{
    const float theirs = 40.5F;
    layer *l;

    make_net();
    l = &net->layers[2];
    l->weights[0] = 40;
    cmn_device_write(l->weights_gpu, &theirs, 1);
    cmn_device_write(l->bias_updates_gpu, &theirs, 1);
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
    CHECK(l->weights[0] == 40 && read_one(l->weights_gpu) == theirs);
    CHECK(read_one(l->bias_updates_gpu) == theirs && read_one(l->bias_updates_gpu + OUT) == 0);
    tear_down();
}

static int polls, poll_fails;

static void count_poll(void *self)
{
    (void)self;
    polls++;
    if (poll_fails) {
        cmn_fatal("what was begun failed");
    }
}

static void nothing_left(void *self, const struct cmn_exchange *x)
{
    (void)self;
    CHECK_SAYING(polls > 0, "the host waited for the GPU, and moved nothing on meanwhile");
    CHECK(read_one(x->metrics.data) == 5);
}

/* What was begun moves on while the host waits for backward, and its failure is noticed there. */
GPU_TEST(moves_on)
{
    const struct cmn_communicator c = {.allreduce = nothing_left, .poll = count_poll};
    const char *said;

    set_up();
    g.metrics[0] = 5;
    cmn_gradient_exchange_sum(&g, &c, NULL);
    poll_fails = 1;
    said = fatal_of(cmn_gradient_exchange_sum(&g, &c, NULL));
    CHECK_SAYING(said && !strcmp(said, "what was begun failed"), "%s", said);
    poll_fails = polls = 0;
    fake.alive--; /* the event of the wait that ended the job */
    tear_down();
}

/* Puts x in the place `at` of gradient i, has all looked at in some parts, and puts back what was
 * there. */
static int found_with(int i, size_t at, float x)
{
    float *tensor = *g.tensor[i].device, was = read_one(tensor + at);
    size_t parts = 2 + at % 3;

    cmn_device_write(tensor + at, &x, 1);
    CHECK(g.ops->nonfinite(&g, g.flat) == (isfinite(x) ? -1 : i));
    cmn_device_write(tensor + at, &was, 1);
    CHECK(g.ops->nonfinite(&g, g.flat) == -1);
    cmn_device_write(tensor + at, &x, 1);
    for (size_t part = 0; part < parts; part++) {
        g.ops->check(&g, part * g.exchange.block.n / (parts - 1));
    }
    cmn_device_write(tensor + at, &was, 1);
    g.ops->ask(&g);
    return g.ops->answer(&g);
}

GPU_TEST(nonfinite_gradients)
{
    const float none[] = {NAN, INFINITY, -INFINITY, -NAN};

    set_up();
    for (int i = 0; i < g.tensors; i++) {
        size_t n = g.tensor[i].n;
        if (g.tensor[i].kind == CMN_GRADIENT) {
            CHECK(found_with(i, 0, FLT_MAX) == -1);
            CHECK(found_with(i, 0, none[i % 4]) == i);
            CHECK(found_with(i, n / 2, none[(i + 1) % 4]) == i);
            CHECK(found_with(i, n - 1, none[(i + 2) % 4]) == i);
            CHECK(found_with(i, n - 1, -FLT_MIN / 2) == -1);
        }
    }
    tear_down();
}

/* What the cfg's `clip` bounds, and nothing else, in both rules. All other numbers of an update are held
 * against the CPU's (optimizers/policies.c). */
GPU_TEST(limits)
{
    float *got;
    int t = 1, bounded[2] = {0, 0};

    cfg = NET "adam=1\n" LAYERS;
    set_up();
    g.adam.t = &t;
    got = calloc(g.exchange.block.n, sizeof *got);
    for (int adam = 0; adam < 2; adam++) {
        for (size_t k = 0; k < g.exchange.block.n; k++) {
            got[k] = k % 2 ? 1000 : -1000;
        }
        cmn_device_write(g.flat, got, g.exchange.block.n);
        if (adam) {
            cmn_gradients_adam(&g, g.flat, 2, 0.5F, 0);
        } else {
            cmn_gradients_rates(&g, 2, 0.5F, 0);
            g.ops->sgd(&g, NULL, g.flat, 0.5F);
        }
        cmn_device_read(got, g.exchange.weights, g.exchange.block.n);
        for (int i = 0; i < g.exchange.tensors; i++) {
            const float *limit = g.tensor[g.tensor_of[i]].limit;
            for (size_t k = 0; k < g.span[i].n; k++) {
                float w = got[g.span[i].data - g.flat + (long)k];
                CHECK_SAYING(limit && *limit > 0 ? fabsf(w) == *limit : fabsf(w) > 0.1F,
                             "tensor %d: %g", i, (double)w);
            }
            bounded[limit && *limit > 0]++;
        }
    }
    CHECK(bounded[0] && bounded[1]);
    free(got);
    tear_down();
    cfg = NET LAYERS;
    fake.alive = 0; /* Darknet does not give Adam's moments back */
}

static void refuses_to_open(const char *says)
{
    const char *fatal = fatal_of(cmn_gradients_open(&g, cmn_net_of(net), NULL));

    CHECK_SAYING(fatal && strstr(fatal, says), "%s", fatal ? fatal : "it was opened");
}

/* Without memory, or where Darknet has a tensor on the host alone. */
GPU_TEST(failures)
{
    needs_the_stand_in();
    make_net();
    fake.no_memory = 1;
    refuses_to_open("floats on the GPU: cudaMalloc");
    fake.no_memory = 0;
    cudaFree(net->layers[0].bias_updates_gpu);
    net->layers[0].bias_updates_gpu = NULL;
    refuses_to_open("layer 0 bias_updates is not on the GPU");
    cudaFree(net->layers[2].weights_gpu);
    net->layers[2].weights_gpu = NULL;
    refuses_to_open("layer 2 weights is not on the GPU");
    nets_free(net);
    fake.alive -= darknets;
}

RANK_TESTS(NULL, NULL)
