/* cmn_sync_bn on GPUs: statistics that NCCL gathers, against the host's exchange of the same floats,
 * with gradients' sums under way. */
#include "gpu/gpu.h"

#include "engine/batch_norm.h"
#include "transports/nccl.h"

enum { FILTERS = 300, TURNS = 4, SUMS = 3, FLOATS = SUMS * 10001 };

static double count_of_turn(int turn)
{
    return (turn == 0 && top.size > 1 ? 1 : 100) + top.rank; /* one value has no variance */
}

static void values_of_turn(float *x, int turn)
{
    for (int i = 0; i < 2 * FILTERS; i++) {
        x[i] = (float)(1 + (i * 7919 + turn * 104729 + top.rank * 1299709) % 1000) / 64;
    }
}

/* All turns' results, one behind the other, through the host: what must come out. */
static void on_host(float *to, double less)
{
    struct cmn_topology here = top;
    struct cmn_batch_norm *norm;

    here.device = -1;
    norm = cmn_batch_norm_open(&here, &options, FILTERS, less);
    for (int turn = 0; turn < TURNS; turn++, to += 2 * FILTERS) {
        size_t n = turn % 2 ? FILTERS : 3;
        values_of_turn(to, turn);
        (turn < 2 ? cmn_batch_norm_forward : cmn_batch_norm_backward)(norm, to, to + FILTERS, n,
                                                                      count_of_turn(turn));
    }
    cmn_batch_norm_close(norm);
}

static void check_turns(const struct gpu_block *b, const float *want)
{
    for (size_t i = 0; i < b->n; i++) {
        float near = 1e-6F * (want[i] < 0 ? -want[i] : want[i]);
        CHECK_SAYING(b->host[i] >= want[i] - near && b->host[i] <= want[i] + near,
                     "float %zu: %g, not %g", i, (double)b->host[i], (double)want[i]);
    }
    for (size_t i = 0; i < TURNS; i++) {
        const float *x = b->host + i * 2 * FILTERS;
        CHECK_SAYING(i > 1 || same_everywhere(x, (i % 2 ? FILTERS : 3) * sizeof *x), "turn %zu", i);
    }
}

static void begin_some(void *gradients, float *sums)
{
    for (size_t i = 0; i < FLOATS; i += FLOATS / SUMS) {
        cmn_nccl_begin(gradients, sums + i, FLOATS / SUMS, CMN_FP32, 0);
    }
}

/* Gradients' parts are begun before, between and behind; values come late. */
static void try_less(double less)
{
    float want[TURNS * 2 * FILTERS], values[2 * FILTERS];
    struct cmn_group group = {top.world, "world", &top, &options};
    struct gpu_block b, sums;
    struct cmn_batch_norm *norm;
    void *gradients = NULL;

    on_host(want, less);
    CHECK_SAYING(cmn_nccl_open(&gradients, &group) == 0, "%s", cmn_reason());
    norm = cmn_batch_norm_open(&top, &options, FILTERS, less);
    make_block(&b, TURNS * 2 * FILTERS);
    make_block(&sums, FLOATS * (TURNS + 1));
    fill_block(&sums, top.rank);
    for (int turn = 0; turn < TURNS; turn++) {
        size_t n = turn % 2 ? FILTERS : 3;
        float *at = b.data + (size_t)turn * 2 * FILTERS;
        values_of_turn(values, turn);
        fake_later(at, values, 2 * FILTERS);
        begin_some(gradients, sums.data + (size_t)turn * FLOATS);
        (turn < 2 ? cmn_batch_norm_forward : cmn_batch_norm_backward)(norm, at, at + FILTERS, n,
                                                                      count_of_turn(turn));
    }
    begin_some(gradients, sums.data + (size_t)TURNS * FLOATS);
    cmn_batch_norm_await(norm);
    cmn_nccl_end(gradients, NULL, NULL);
    read_block(&b);
    check_turns(&b, want);
    read_block(&sums);
    for (size_t i = 0; i < sums.n; i++) {
        CHECK(sums.host[i] == whole(i, 0) * (float)(top.size * (top.size + 1) / 2));
    }
    cmn_batch_norm_close(norm);
    cmn_nccl_close(gradients);
    free_block(&b);
    free_block(&sums);
}

GPU_TEST(as_on_the_host)
{
    try_less(0);
    try_less(1);
}

/* The host's wait ends where another rank never comes. */
GPU_TEST(nobody_comes)
{
    struct cmn_batch_norm *norm;
    struct gpu_block b;
    const char *said;

    needs_the_stand_in();
    options.timeout = 1;
    norm = cmn_batch_norm_open(&top, &options, FILTERS, 1);
    make_block(&b, 2 * FILTERS);
    fill_block(&b, top.rank);
    fake.stuck = 1;
    cmn_batch_norm_forward(norm, b.data, b.data + FILTERS, FILTERS, 10);
    said = fatal_of(cmn_batch_norm_await(norm));
    CHECK(said && check_lost == 1);
    CHECK_SAYING(said && strstr(said, "nccl: cmn_sync_bn: allgather of 601 floats"), "%s", said);
    cmn_batch_norm_close(norm);
    free_block(&b);
}

RANK_TESTS(NULL, NULL)
