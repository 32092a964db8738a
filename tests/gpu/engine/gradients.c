/* Gradients of a network on a GPU, over the stand-in for CUDA; and which GPUs a job may use.
 * The network is made by hand: Darknet's own layers on a GPU need its kernels. */
#include "gpu/gpu.h"

#include <float.h>
#include <math.h>

#include "darknet.h"

#include "communicators/communicator.h"
#include "mpi/device.h"
#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "engine/replicas.h"
#include "engine/nonfinite.h"
#include "optimizers/gradient_exchange.h"

enum { W = 54, N = 3, IN = 12, OUT = 5 };

static network *net;
static struct cmn_gradients g;

static void update_nothing(layer l, update_args a)
{
    (void)l;
    (void)a;
}

#define PAIR(member)                                           \
    {                                                          \
        offsetof(layer, member), offsetof(layer, member##_gpu) \
    }
static const struct {
    size_t host, device;
} pairs[] = {PAIR(weights),      PAIR(biases),           PAIR(weight_updates),
             PAIR(bias_updates), PAIR(scales),           PAIR(scale_updates),
             PAIR(rolling_mean), PAIR(rolling_variance), PAIR(m)};
enum { PAIRS = COUNT(pairs) };

static float **side_of(layer *l, size_t at)
{
    return (float **)((char *)l + at);
}

/* So many floats of each; on the host `value`, on the GPU value + 0.5, so that it shows which one was
 * taken. */
static void make_layer(layer *l, LAYER_TYPE type, const size_t n[PAIRS], const float value[PAIRS])
{
    l->type = type;
    l->update = type == YOLO ? NULL : update_nothing;
    l->learning_rate_scale = 1;
    for (size_t k = 0; k < PAIRS; k++) {
        float **host = side_of(l, pairs[k].host), **device = side_of(l, pairs[k].device);
        float theirs[W + IN * OUT];
        if (n[k]) {
            *host = malloc(n[k] * sizeof **host);
            for (size_t i = 0; i < n[k]; i++) {
                (*host)[i] = value[k] + (float)(type == YOLO ? 0 : top.rank);
                theirs[i] = (*host)[i] + 0.5F;
            }
            cudaMalloc((void **)device, n[k] * sizeof **device);
            cudaMemcpy(*device, theirs, n[k] * sizeof **device, cudaMemcpyHostToDevice);
        }
    }
}

static void make_net(int on_gpu)
{
    layer *l;

    net = calloc(1, sizeof *net);
    net->n = 3;
    net->layers = l = calloc((size_t)net->n, sizeof *net->layers);
    net->seen = calloc(1, sizeof *net->seen);
    net->t = calloc(1, sizeof *net->t);
    net->gpu_index = on_gpu ? 0 : -1;
    make_layer(&l[0], CONVOLUTIONAL, (size_t[PAIRS]){W, N, W, N, N, N, N, N},
               (float[PAIRS]){10, 11, 12, 13, 20, 21, 22, 23});
    l[0].nweights = W;
    l[0].n = N;
    l[0].clip = 10.25F;
    /* What is called an update here are anchors. */
    make_layer(&l[1], YOLO, (size_t[PAIRS]){0, 0, 0, N}, (float[PAIRS]){0, 0, 0, 30});
    make_layer(&l[2], CONNECTED,
               (size_t[PAIRS]){IN * OUT, OUT, IN * OUT, OUT, [PAIRS - 1] = IN * OUT},
               (float[PAIRS]){40, 41, 42, 43, [PAIRS - 1] = 50});
    l[2].inputs = IN;
    l[2].outputs = OUT;
    l[2].scales = calloc(OUT, sizeof(float)); /* on the host alone, as those of binary weights */
}

static void free_net(void)
{
    for (int i = 0; i < net->n; i++) {
        for (size_t k = 0; k < PAIRS; k++) {
            free(*side_of(&net->layers[i], pairs[k].host));
            cudaFree(*side_of(&net->layers[i], pairs[k].device));
        }
    }
    free(net->layers);
    free(net->seen);
    free(net->t);
    free(net);
    CHECK_SAYING(fake.alive == 0, "%d things were not given back", fake.alive);
    fail_on_all_ranks();
}

static void check_device(const float *device, size_t n, float want, const char *what)
{
    float *host = malloc(n * sizeof *host);

    cmn_device_read(host, device, n);
    for (size_t i = 0; i < n; i++) {
        CHECK_SAYING(host[i] == want, "%s, at %zu: %g, not %g", what, i, (double)host[i],
                     (double)want);
    }
    free(host);
}

static void set_up(void)
{
    all_well();
    make_net(1);
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
}

static void tear_down(void)
{
    cmn_gradients_close(&g);
    free_net();
}

static void flat(void **state)
{
    const layer *l;
    float *conv_host;

    (void)state;
    set_up();
    l = net->layers;
    conv_host = l[0].weight_updates;
    CHECK(g.exchange.tensors == 5);
    CHECK(g.exchange.block.n == 64 + 16 + 64 + 16 + 16);
    CHECK(l[2].weight_updates_gpu == g.exchange.block.data);
    CHECK(l[2].bias_updates_gpu == g.exchange.block.data + 64);
    CHECK(l[0].scale_updates_gpu == g.exchange.tensor[4].data);
    CHECK(g.exchange.metrics.data == g.exchange.block.data + g.exchange.block.n);
    check_device(l[2].weight_updates_gpu, IN * OUT, 42.5F + (float)top.rank, "weight_updates");
    check_device(l[2].weight_updates_gpu + IN * OUT, 4, 0, "padding");
    check_device(l[0].scale_updates_gpu, N, 21.5F + (float)top.rank, "scale_updates");
    check_device(l[1].bias_updates_gpu, N, 30.5F, "anchors");
    CHECK(l[2].weights_gpu == g.exchange.weights && l[2].biases_gpu == g.exchange.weights + 64);
    CHECK(l[2].weights == g.host_weights && l[0].scales == g.host_weights + 64 + 16 + 64 + 16);
    check_device(l[2].weights_gpu, IN * OUT, 40.5F + (float)top.rank, "weights");
    check_device(l[2].weights_gpu + IN * OUT, 4, 0, "padding of weights");
    CHECK(l[2].weights[0] == 40.0F + (float)top.rank &&
          l[0].scales[N - 1] == 20.0F + (float)top.rank);
    CHECK(l[0].weight_updates == conv_host && conv_host[0] == 12.0F + (float)top.rank);
    cmn_gradients_close(&g);
    CHECK(!l[2].weight_updates_gpu && !l[0].scale_updates_gpu && l[1].bias_updates_gpu);
    CHECK(!l[2].weights_gpu && !l[0].scales_gpu && !l[0].weights && !l[0].scales && l[2].m_gpu);
    CHECK(l[0].weight_updates == conv_host && l[0].rolling_mean_gpu && l[2].scales);
    free_net();
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
    float first;

    (void)self;
    CHECK_SAYING(polls > 0, "the host waited for the GPU, and moved nothing on meanwhile");
    cmn_device_read(&first, x->metrics.data, 1);
    CHECK(first == 5);
}

/* What was begun moves on while the host waits for backward, and its failure is noticed there. */
static void moves_on(void **state)
{
    const struct cmn_communicator c = {.allreduce = nothing_left, .poll = count_poll};
    const char *said;

    (void)state;
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
    float *tensor = g.span[0].data, was;
    size_t parts = 2 + at % 3;
    int spans = 0;

    for (int k = 0; k < g.tensors; k++) {
        if (g.tensor[k].kind == CMN_GRADIENT) {
            tensor = k == i ? g.span[spans].data : tensor;
            spans++;
        }
    }
    cmn_device_read(&was, tensor + at, 1);
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

static void nonfinite_gradients(void **state)
{
    const float none[] = {NAN, INFINITY, -INFINITY, -NAN};

    (void)state;
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

static double bounded(double w, const float *limit)
{
    double most = limit ? (double)*limit : 0;

    return most > 0 ? fmax(-most, fmin(most, w)) : w;
}

/* Against the same in double: all that the table says of each tensor; norms in two passes. */
static void updates(void **state)
{
    const float momentum = 0.75F;
    float *velocity, *sum, *weight, *got;
    double *square;

    (void)state;
    set_up();
    velocity = g.ops->memory(g.exchange.block.n);
    sum = calloc(g.exchange.block.n, sizeof *sum);
    weight = calloc(g.exchange.block.n, sizeof *weight);
    got = calloc(g.exchange.block.n, sizeof *got);
    square = calloc((size_t)g.exchange.tensors, sizeof *square);
    cmn_gradients_rates(&g, 4, 0.5F, 0.01F);
    CHECK(g.scale[0] == 1 && g.rate[1] == 0.125F && g.decay[0] == -0.04F && g.decay[1] == 0);
    g.scale[4] = 3;
    for (int i = 0; i < g.exchange.tensors; i++) {
        for (size_t k = 0; k < g.span[i].n; k++) {
            sum[g.span[i].data - g.flat + k] = (float)((int)(k * 7 % 11) - 5 + i);
        }
    }
    cmn_device_write(g.flat, sum, g.exchange.block.n);
    cmn_device_read(weight, g.exchange.weights, g.exchange.block.n);
    g.ops->squares(&g, g.flat, square);
    for (int step = 0; step < 2; step++) {
        g.ops->sgd(&g, velocity, g.flat, momentum);
    }
    cmn_device_read(got, g.exchange.weights, g.exchange.block.n);
    for (int i = 0; i < g.exchange.tensors; i++) {
        size_t at = (size_t)(g.span[i].data - g.flat);
        double squares = 0;
        for (size_t k = at; k < at + g.span[i].n; k++) {
            double w = (double)weight[k], d = (double)g.decay[i], r = (double)g.rate[i];
            double u = (double)(g.scale[i] * sum[k]) + d * w;
            w += r * u;
            w = bounded(w, g.tensor[g.tensor_of[i]].limit);
            w += r * ((double)momentum * u + d * w);
            w = bounded(w, g.tensor[g.tensor_of[i]].limit);
            CHECK_SAYING(fabs((double)got[k] - w) < 1e-5, "tensor %d: %g, not %g", i,
                         (double)got[k], w);
            squares += (double)sum[k] * (double)sum[k];
        }
        CHECK_SAYING(square[i] == squares, "tensor %d: %g, not %g", i, square[i], squares);
    }
    check_device(g.flat, g.exchange.block.n, 0, "the sums that were used");
    g.ops->release(velocity);
    free(sum);
    free(weight);
    free(got);
    free(square);
    tear_down();
}

static int verified(void)
{
    struct cmn_nonfinite bad;

    return cmn_replicas_verify(&g, cmn_net_of(net), &top, &bad);
}

static void replicas(void **state)
{
    const layer *l;
    float other[N] = {1, 2, 3};

    (void)state;
    set_up();
    l = net->layers;
    CHECK((verified() == 0) == (top.size == 1));
    CHECK_SAYING(top.size == 1 || strstr(cmn_reason(), top.size == 2 ? "weights of rank 1@"
                                                                     : "weights of ranks 1@"),
                 "%s", cmn_reason());
    cmn_replicas_average_statistics(&g, &top);
    check_device(l[0].rolling_mean_gpu, N, 22.5F + (float)(top.size - 1) / 2, "mean");
    check_device(l[0].rolling_variance_gpu, N,
                 (float)(23.5 + (top.size - 1) / 2.0 + (top.size * top.size - 1) / 12.0),
                 "variance");
    *net->seen = 7 + (size_t)top.rank;
    cmn_replicas_broadcast(&g, cmn_net_of(net), &top);
    CHECK(*net->seen == 7);
    check_device(l[2].weights_gpu, IN * OUT, 40.5F, "weights");
    check_device(l[2].m_gpu, IN * OUT, 50.5F, "m");
    check_device(l[0].scales_gpu, N, 20.5F, "scales");
    check_device(l[0].weight_updates_gpu, W, 12.5F, "weight_updates");
    CHECK(l[0].weights[0] == 10.5F); /* what is saved later comes from here too */
    CHECK_SAYING(verified() == 0, "%s", cmn_reason());
    if (top.rank == top.size - 1) {
        cmn_device_write(l[0].biases_gpu, other, N);
    }
    CHECK((verified() == 0) == (top.size == 1));
    tear_down();
}

static void without_gpu(void **state)
{
    (void)state;
    all_well();
    make_net(0);
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
    CHECK(net->layers[2].weight_updates == g.exchange.block.data);
    CHECK(g.exchange.block.data[0] == 0);
    check_device(net->layers[2].weight_updates_gpu, IN * OUT, 42.5F + (float)top.rank, "untouched");
    tear_down();
}

static void failures(void **state)
{
    const char *fatal;

    (void)state;
    all_well();
    make_net(1);
    fake.no_memory = 1;
    fatal = fatal_of(cmn_gradients_open(&g, cmn_net_of(net), NULL));
    CHECK_SAYING(fatal && strstr(fatal, "floats on the GPU: cudaMalloc"), "%s",
                 fatal ? fatal : "it was opened");
    fake.no_memory = 0;
    cudaFree(net->layers[0].bias_updates_gpu);
    net->layers[0].bias_updates_gpu = NULL;
    fatal = fatal_of(cmn_gradients_open(&g, cmn_net_of(net), NULL));
    CHECK_SAYING(fatal && strstr(fatal, "layer 0 bias_updates is not on the GPU"), "%s",
                 fatal ? fatal : "it was opened");
    cudaFree(net->layers[2].weights_gpu);
    net->layers[2].weights_gpu = NULL;
    fatal = fatal_of(cmn_gradients_open(&g, cmn_net_of(net), NULL));
    CHECK_SAYING(fatal && strstr(fatal, "layer 2 weights is not on the GPU"), "%s",
                 fatal ? fatal : "it was opened");
    free_net();
}

/* ---- which GPUs ---- */

static void agree(int device, int share, const char *says, const char *what)
{
    const char *fatal;

    setenv("CMN_DEBUG_SHARE_GPUS", share ? "1" : "", 1);
    fatal = fatal_of(cmn_device_agree(&top, device));

    CHECK_SAYING(!fatal == !says, "%s: %s", what, fatal ? fatal : "allowed");
    CHECK_SAYING(!fatal || strstr(fatal, says), "%s: %s", what, fatal);
    CHECK_SAYING(fatal || top.device == device, "%s", what);
}

static void which_gpus(void **state)
{
    int several = top.size > 1, last = top.rank == top.size - 1;

    (void)state;
    all_well();
    agree(0, 0, NULL, "a GPU each, all known as number 0");
    fake.gpus = 8;
    fake.hardware = 0;
    agree(top.rank, 0, NULL, "eight GPUs");
    agree(0, 0, several ? "same GPU, number 0 of 8" : NULL, "all on the first");
    agree(0, 1, NULL, "all on the first, allowed");
    agree(-1, 0, NULL, "CPU");
    agree(last ? -1 : top.rank, 0, several ? (last ? "this one the CPU" : "this one a GPU") : NULL,
          "GPUs and the CPU");
    fail_on_all_ranks();
    if (several) {
        agree(last ? 0 : top.rank, 0, last || top.rank == 0 ? "ranks 0 and" : NULL,
              "two on the first");
    }
    all_well();
    fake.gpus = 0;
    CHECK(cmn_device_count() == 0);
    agree(0, 0, "cudaGetDeviceProperties", "no GPU");
    all_well();
    fail_on_all_ranks();
}

/* Memory is zeroed, and what the host writes is there, also for a stream that waits for nothing. */
static void every_stream(void **state)
{
    enum { FLOATS = 1000 };
    struct cmn_device_mail *mail = cmn_device_mail_open(FLOATS); /* fetches by one of its own */
    float *memory, host[FLOATS], values[FLOATS];

    (void)state;
    all_well();
    for (int i = 0; i < FLOATS; i++) {
        values[i] = whole((size_t)i, top.rank);
    }
    CHECK(cmn_device_memory(&memory, FLOATS) == 0);
    cmn_device_mail_fetch(mail, host, memory, FLOATS);
    for (int i = 0; i < FLOATS; i++) {
        CHECK(host[i] == 0);
    }
    cmn_device_write(memory, values, FLOATS);
    cmn_device_mail_fetch(mail, host, memory, FLOATS);
    CHECK(!memcmp(host, values, sizeof host));
    cmn_device_free(memory);
    cmn_device_mail_close(mail);
    fail_on_all_ranks();
}

/* One behind the other, and what the host had is gone at once. */
static void sends(void **state)
{
    enum { FLOATS = 1000, SENDS = 5 };
    struct cmn_device_mail *mail = cmn_device_mail_open(FLOATS);
    float *memory, host[SENDS * FLOATS];

    (void)state;
    all_well();
    CHECK(cmn_device_memory(&memory, SENDS * FLOATS) == 0);
    for (int k = 0; k < SENDS; k++) {
        for (int i = 0; i < FLOATS; i++) {
            host[i] = whole((size_t)i, k);
        }
        cmn_device_mail_send(mail, memory + k * FLOATS, host, FLOATS);
    }
    cmn_device_read(host, memory, SENDS * FLOATS);
    for (int i = 0; i < SENDS * FLOATS; i++) {
        CHECK(host[i] == whole((size_t)(i % FLOATS), i / FLOATS));
    }
    cmn_device_free(memory);
    cmn_device_mail_close(mail);
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat),
        cmocka_unit_test(moves_on),
        cmocka_unit_test(replicas),
        cmocka_unit_test(without_gpu),
        cmocka_unit_test(failures),
        cmocka_unit_test(which_gpus),
        cmocka_unit_test(nonfinite_gradients),
        cmocka_unit_test(updates),
        cmocka_unit_test(every_stream),
        cmocka_unit_test(sends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
