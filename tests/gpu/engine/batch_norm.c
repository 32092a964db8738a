/* tests/ranks/engine/batch_norm.c, whose statistics are on GPUs here and come late, while
 * gradients' sums are under way. */
#include "gpu/gpu.h"

#include "engine/batch_norm.h"
#include "transports/nccl.h"

enum { SUMS = 3, PART = 1001, FLOATS = SUMS * PART };

static struct cmn_group group = {.name = "world", .topology = &top, .options = &options};
static void *gradients;

static void begin_some(float *sums)
{
    for (size_t i = 0; i < SUMS; i++) {
        cmn_nccl_begin(gradients, sums + i * PART, PART, CMN_FP32, 0);
    }
}

/* Gradients' parts are begun before, between and behind two passes, of which only the second
 * counts. */
static void exchange(void (*pass)(struct cmn_batch_norm *s, float *a, float *b, size_t n,
                                  double values),
                     struct cmn_batch_norm *norm, float *a, float *b, size_t n, double values)
{
    struct gpu_block v[2], sums;

    group.comm = top.world;
    CHECK_SAYING(gradients || cmn_nccl_open(&gradients, &group) == 0, "%s", cmn_reason());
    make_block(&v[0], 2 * n);
    make_block(&v[1], 2 * n);
    make_block(&sums, 3 * FLOATS);
    fill_block(&sums, top.rank);
    begin_some(sums.data);
    for (int i = 0; i < 2; i++) {
        memcpy(v[i].host, a, n * sizeof *a);
        memcpy(v[i].host + n, b, n * sizeof *b);
        fake_later(v[i].data, v[i].host, 2 * n);
        pass(norm, v[i].data, v[i].data + n, n, values);
        begin_some(sums.data + (1 + i) * FLOATS);
    }
    cmn_batch_norm_await(norm);
    cmn_nccl_end(gradients, NULL, NULL);
    read_block(&v[1]);
    memcpy(a, v[1].host, n * sizeof *a);
    memcpy(b, v[1].host + n, n * sizeof *b);
    read_block(&sums);
    for (size_t i = 0; i < sums.n; i++) {
        CHECK(sums.host[i] == whole(i, 0) * (float)(top.size * (top.size + 1) / 2));
    }
    free_block(&v[0]);
    free_block(&v[1]);
    free_block(&sums);
}
#define EXCHANGE

#include "ranks/engine/batch_norm.c"

/* The host's wait ends where another rank never comes. */
GPU_TEST(nobody_comes)
{
    struct cmn_batch_norm *norm;
    struct gpu_block b;
    const char *said;

    cmn_nccl_close(gradients);
    options.timeout = 1;
    norm = cmn_batch_norm_open(&top, &options, FILTERS, 1);
    make_block(&b, 2 * FILTERS);
    fill_block(&b, top.rank);
    fake.stuck = 1;
    cmn_batch_norm_forward(norm, b.data, b.data + FILTERS, FILTERS, 10);
    said = fatal_of(cmn_batch_norm_await(norm));
    CHECK(said && check_lost == 1);
    CHECK_SAYING(said && strstr(said, "nccl: cmn_sync_bn: allgather of 2001 floats"), "%s", said);
    cmn_batch_norm_close(norm);
    free_block(&b);
}
