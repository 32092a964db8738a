/* Which GPUs a job may use, and the mails between host and GPU, over the stand-in for CUDA. */
#include "gpu/gpu.h"

/* Each rank takes a GPU of its own NUMA node where there is one; what is left goes in order. */
GPU_TEST(next_to_the_cores)
{
    static const struct {
        int ranks, gpus, near_rank[4], near_gpu[4], takes[4];
    } row[] = {
        {4, 4, {-1, -1, -1, -1}, {0, 0, 1, 1}, {0, 1, 2, 3}}, /* not bound */
        {4, 4, {1, 0, 1, 0}, {0, 0, 1, 1}, {2, 0, 3, 1}},
        {3, 4, {1, 1, 1}, {0, 1, 0, 1}, {1, 3, 0}}, /* one finds none of its own */
        {2, 2, {0, 1}, {-1, -1}, {0, 1}},           /* a machine that does not say */
        {4, 2, {1, 1, 0, 0}, {0, 1}, {1, 1, 0, 1}}, /* two for each */
        {2, 1, {0, 0}, {0}, {0, 0}},                /* each rank sees one of its own */
    };

    for (size_t i = 0; i < COUNT(row); i++) {
        for (int r = 0; r < row[i].ranks; r++) {
            int takes =
                cmn_device_near(r, row[i].near_rank, row[i].ranks, row[i].near_gpu, row[i].gpus);
            CHECK_SAYING(takes == row[i].takes[r], "row %zu, rank %d: %d", i, r, takes);
        }
    }
}

static void agree(int device, int share, const char *says, const char *what)
{
    const char *fatal;

    setenv("CMN_DEBUG_SHARE_GPUS", share ? "1" : "", 1);
    fatal = fatal_of(cmn_device_agree(&top, device));

    CHECK_SAYING(!fatal == !says, "%s: %s", what, fatal ? fatal : "allowed");
    CHECK_SAYING(!fatal || strstr(fatal, says), "%s: %s", what, fatal);
    CHECK_SAYING(fatal || top.device == device, "%s", what);
}

GPU_TEST(which_gpus)
{
    int several = top.size > 1, last = top.rank == top.size - 1;

    agree(0, 0, NULL, "a GPU each, all known as number 0");
    fake.gpus = 8;
    fake.hardware = 0;
    agree(top.rank, 0, NULL, "eight GPUs");
    agree(0, 0, several ? "same GPU, number 0 of 8" : NULL, "all on the first");
    agree(0, 1, NULL, "all on the first, allowed");
    agree(-1, 0, NULL, "CPU");
    agree(last ? -1 : top.rank, 0, several ? (last ? "this one the CPU" : "this one a GPU") : NULL,
          "GPUs and the CPU");
    if (several) {
        agree(last ? 0 : top.rank, 0, last || top.rank == 0 ? "ranks 0 and" : NULL,
              "two on the first");
    }
    all_well();
    fake.gpus = 0;
    CHECK(cmn_device_count() == 0);
    agree(0, 0, "cudaGetDeviceProperties", "no GPU");
}

enum { FLOATS = 1000, TIMES = 20 }; /* now and then a copy has ended by chance */

/* Memory is zeroed, and what the host writes is there, also for a stream that waits for nothing. */
GPU_TEST(every_stream)
{
    struct cmn_device_mail mail = {0};
    void *stream = cmn_device_stream_open();
    float *memory, values[FLOATS] = {0};

    cmn_device_mail_room(&mail, FLOATS);
    CHECK(cmn_device_memory(&memory, FLOATS) == 0);
    for (int k = 0; k < TIMES; k++) {
        cmn_device_mail_ask(&mail, stream, memory, FLOATS);
        CHECK(!memcmp(cmn_device_mail_answer(&mail), values, sizeof values));
        for (int i = 0; i < FLOATS; i++) {
            values[i] = whole((size_t)i, k);
        }
        cmn_device_write(memory, values, FLOATS);
    }
    cmn_device_free(memory);
    cmn_device_stream_close(stream);
    cmn_device_mail_close(&mail);
}

/* One behind the other, and what the host had is gone at once. */
GPU_TEST(sends)
{
    struct cmn_device_mail mail = {0};
    float *memory, *host = calloc(TIMES * FLOATS, sizeof *host);

    cmn_device_mail_room(&mail, FLOATS);
    CHECK(cmn_device_memory(&memory, TIMES * FLOATS) == 0);
    for (int k = 0; k < TIMES; k++) {
        for (int i = 0; i < FLOATS; i++) {
            host[i] = whole((size_t)i, k);
        }
        cmn_device_mail_send(&mail, memory + k * FLOATS, host, FLOATS);
    }
    cmn_device_read(host, memory, TIMES * FLOATS);
    for (int i = 0; i < TIMES * FLOATS; i++) {
        CHECK(host[i] == whole((size_t)(i % FLOATS), i / FLOATS));
    }
    cmn_device_free(memory);
    cmn_device_mail_close(&mail);
    free(host);
}

RANK_TESTS(NULL, NULL)
