/* Batches on their way to a GPU, over the stand-in for CUDA: each arrives whole, however late the GPU
 * is, while the host writes on in its own memory. The network is made by hand. */
#include "gpu/gpu.h"

#include <pthread.h>

#include "darknet.h"

#include "engine/gpu_batch.h"
#include "mpi/device.h"

enum { IMAGES = 4, IN = 300, OUT = 7, TIMES = 40, WHOLE = IMAGES * (IN + OUT) };

static network net;
static float in[2 * IMAGES * IN], out[2 * IMAGES * OUT];
static float *seen; /* the GPU's: what a kernel found there, each time */

static float value(int time, int i)
{
    return (float)(time * 100000 + i);
}

static void fill(float *x, int n, int time)
{
    for (int i = 0; i < n; i++) {
        x[i] = value(time, i);
    }
}

/* Darknet frees what the network has, and takes other memory for it. */
static void give_memory(int images)
{
    cudaFree(net.input_gpu);
    cudaFree(net.truth_gpu);
    CHECK(!cudaMalloc((void **)&net.input_gpu, (size_t)(images * IN) * sizeof(float)));
    CHECK(!cudaMalloc((void **)&net.truth_gpu, (size_t)(images * OUT) * sizeof(float)));
}

static void begin(void)
{
    net = (network){.gpu_index = 0};
    give_memory(IMAGES);
    CHECK_SAYING(cmn_device_memory(&seen, (size_t)TIMES * WHOLE) == 0, "%s", cmn_reason());
}

static void end(void)
{
    cmn_gpu_batch_close();
    cudaFree(net.input_gpu);
    cudaFree(net.truth_gpu);
    cmn_device_free(seen);
}

/* A micro-batch that reads its input and labels, some time later. */
static void compute(int time, int images)
{
    size_t inputs = (size_t)(images * IN), truths = (size_t)(images * OUT);

    CHECK(cmn_gpu_batch_send(&net, (struct cmn_host_floats){in, inputs},
                             (struct cmn_host_floats){out, truths}) == 1);
    cmn_device_copy(seen + time * WHOLE, net.input_gpu, inputs);
    cmn_device_copy(seen + time * WHOLE + IMAGES * IN, net.truth_gpu, truths);
}

/* The same, written just now. */
static void write_and_compute(int time, int images)
{
    fill(in, images * IN, time);
    fill(out, images * OUT, time);
    compute(time, images);
}

/* What the micro-batch of that time found is its own. */
static void check_seen(int time, int images)
{
    static float found[WHOLE];

    cmn_device_read(found, seen + time * WHOLE, WHOLE);
    for (int i = 0; i < images * (IN + OUT); i++) {
        int k = i - images * IN, at = k < 0 ? i : IMAGES * IN + k;
        CHECK_SAYING(found[at] == value(time, k < 0 ? i : k), "micro-batch %d, at %d: %g", time, at,
                     (double)found[at]);
    }
}

GPU_TEST(arrives)
{
    begin();
    for (int t = 0; t < 2 * TIMES; t++) {
        (t < TIMES ? write_and_compute : check_seen)(t % TIMES, IMAGES);
    }
    end();
}

/* ---- a loader's thread ---- */

struct load {
    int time, images, each;
    size_t number;
};

static void *loads(void *arguments)
{
    struct load *l = arguments;
    float *input = malloc(sizeof *input * (size_t)(l->images * (l->each + OUT)));
    float *truth = input + l->images * l->each, *of_input[2 * IMAGES], *of_truth[2 * IMAGES];

    fill(input, l->images * l->each, l->time);
    fill(truth, l->images * OUT, l->time);
    for (int i = 0; i < l->images; i++) {
        of_input[i] = input + i * l->each;
        of_truth[i] = truth + i * OUT;
    }
    l->number =
        cmn_gpu_batch_ahead((struct cmn_host_rows){of_input, (size_t)l->images, (size_t)l->each},
                            (struct cmn_host_rows){of_truth, (size_t)l->images, OUT});
    free(input);
    return NULL;
}

static size_t load(int time, int images, int each)
{
    struct load l = {time, images, each, 0};
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, loads, &l) == 0);
    pthread_join(thread, NULL);
    return l.number;
}

/* As a trainer does: the loader is one batch ahead, and a step has two micro-batches, or three. */
GPU_TEST(ahead)
{
    size_t next, number;
    int t = 0;

    begin();
    CHECK(load(0, 2 * IMAGES, IN) == 0); /* there is no memory yet */
    write_and_compute(t++, IMAGES);
    CHECK(load(1, IMAGES - 1, IN) == 0); /* less than a micro-batch */
    CHECK(load(1, IMAGES, IN + 1) == 0); /* other images */
    next = load(1, 2 * IMAGES, IN);
    CHECK(next != 0);
    while (t + 3 < TIMES) {
        int step = t;
        number = next;
        next = load(t + 3, 2 * IMAGES, IN); /* before its forerunner computes */
        CHECK(next != 0);
        memset(in, 0, sizeof in);
        cmn_gpu_batch_take(number);
        compute(t++, IMAGES);
        write_and_compute(t++, IMAGES);
        if (step % 2) { /* the next one is thrown away, and loaded again */
            next = load(step + 3, 2 * IMAGES, IN);
        }
        write_and_compute(t++, IMAGES);
    }
    for (int i = 0; i < t; i++) {
        check_seen(i, IMAGES);
    }
    end();
}

GPU_TEST(other_size)
{
    begin();
    for (int t = 0; t < 8; t++) {
        int images = 1 + t % IMAGES;
        size_t number = load(99, 2 * IMAGES, IN); /* of the size before */
        give_memory(images);
        fill(in, images * IN, t);
        fill(out, images * OUT, t);
        cmn_gpu_batch_take(number);
        compute(t, images);
        check_seen(t, images);
    }
    write_and_compute(8, 1); /* the same memory, of which less is used */
    check_seen(8, 1);
    end();
}

/* What comes back is that of its own time, and its sum; the loss is the mean of two. */
GPU_TEST(answers)
{
    float cost[2] = {0}, loss = 0, back[4][IN];
    layer layers[2] = {{.cost = &cost[0]}, {.cost = &cost[1]}};

    begin();
    net.layers = layers;
    net.n = 2;
    net.cost = &loss;
    CHECK(cmn_gpu_batch_ask(seen, back[0], IN, cost) == 0); /* nothing was sent */
    for (int t = 0; t < 6; t++) {
        write_and_compute(t, IMAGES);
        memset(back, 0xff, sizeof back);
        for (int i = 0; i < 4; i++) {
            CHECK(cmn_gpu_batch_ask(net.truth_gpu, back[i], OUT, &cost[i / 2]) == 1);
        }
        CHECK(cmn_gpu_batch_ask(net.truth_gpu, back[0], OUT, cost) == 0); /* they are too many */
        cmn_device_zero(net.truth_gpu, OUT);                              /* as backward would */
        cmn_gpu_batch_answer(&net);
        for (int i = 0; i < 4 * OUT; i++) {
            CHECK(back[i / OUT][i % OUT] == value(t, i % OUT));
        }
        CHECK(cost[0] == sum_array(back[1], OUT) && cost[1] == cost[0] && loss == cost[0]);
    }
    end();
}

/* Darknet copies then; with memory of its own again the places come with the next size. */
GPU_TEST(memory_is_missing)
{
    struct cmn_host_floats input = {in, IMAGES * IN}, truth = {out, IMAGES * OUT};

    needs_the_stand_in();
    begin();
    fake.no_memory = 1;
    for (int i = 0; i < 2; i++) {
        float *kept = net.input_gpu;
        CHECK(cmn_gpu_batch_send(&net, input, truth) == 0);
        CHECK(net.input_gpu == kept);
        CHECK(load(1, 2 * IMAGES, IN) == 0);
    }
    fake.no_memory = 0;
    CHECK(cmn_gpu_batch_send(&net, input, truth) == 0); /* it is not tried each time */
    give_memory(1);
    write_and_compute(0, 1);
    check_seen(0, 1);
    end();
}

RANK_TESTS(NULL, NULL)
