/* Each algorithm of sums by messages: closed forms, bytes, and the same bits. (Over each group of
 * ranks, and in shared memory: tests/ranks/communicators. In 16 bits: tests/ranks/compression.) */
#include "ranks/ranks.h"

#include "transports/shm.h"
#include "transports/sums.h"

static void ordered(float *data, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++) {
        data[i] = 1.0F / (float)(i % 997 + 3) / (float)(rank * rank + 1);
    }
}

/* Lengths from one float to more segments than are in flight: every owner adds in the order of the
 * ranks. */
RANK_TEST(pairwise)
{
    const size_t n[] = {1, 97, 1000, 15 * 1024 - 1, 70000, 2000003};
    const size_t most = n[COUNT(n) - 1];
    float *data = malloc(3 * most * sizeof *data), *theirs = data + most, *want = theirs + most;

    options.exchange = CMN_EXCHANGE_PAIRWISE;
    for (size_t j = 0; j < COUNT(n); j++) {
        struct cmn_sums *s = cmn_sums_open(top.world, &options, 1);
        for (int rank = 0; rank < top.size; rank++) {
            ordered(theirs, n[j], rank);
            for (size_t i = 0; i < n[j]; i++) {
                want[i] = rank ? want[i] + theirs[i] : theirs[i];
            }
        }
        ordered(data, n[j], top.rank);
        cmn_sums_run(s, data, n[j]);
        CHECK_SAYING(!memcmp(data, want, n[j] * sizeof *data), "%zu floats", n[j]);
        cmn_sums_close(s);
    }
    options.exchange = CMN_EXCHANGE_AUTO;
    free(data);
}

/* ---- each algorithm of sums ---- */

enum { SUMS = 3 };
static const size_t sum_length[SUMS] = {1003, 500007, 7};

static unsigned long long sent_by_all(const struct cmn_sums *s)
{
    unsigned long long sent = cmn_sums_sent(s);

    MPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, top.world);
    return sent;
}

static float whole(size_t i, int rank)
{
    return (float)((i * 7 + (size_t)rank * 1000) % 65536);
}

/* Several sums at once, of lengths that no number of ranks divides: closed forms, bytes of all
 * ranks together, and the same bits on all ranks and in the next run. */
static void sums_by(const char *name)
{
    struct cmn_sums *s = cmn_sums_open(top.world, &options, 0);
    float *data[SUMS], *first = malloc(sum_length[1] * sizeof *first);
    unsigned long long want = 0;
    size_t others = (size_t)top.size - 1;

    for (int call = 0; call < 3; call++) {
        for (int i = 0; i < SUMS; i++) {
            struct cmn_sum sum = {.n = sum_length[i], .dtype = CMN_FP32};
            data[i] = sum.data = malloc(sum.n * sizeof *sum.data);
            ordered(sum.data, sum.n, top.rank);
            for (size_t k = 0; k < sum.n && call == 0; k++) {
                sum.data[k] = whole(k, top.rank);
            }
            cmn_sums_begin(s, &sum);
            want += 2 * others * sum.n * sizeof(float);
        }
        cmn_sums_progress(s, SUMS * (call + 1));
        for (int i = 0; i < SUMS && call == 0; i++) {
            for (size_t k = 0; k < sum_length[i]; k++) {
                float sum = 0;
                for (int rank = 0; rank < top.size; rank++) {
                    sum += whole(k, rank);
                }
                CHECK_SAYING(data[i][k] == sum, "%s, %zu floats, at %zu: %g, not %g", name,
                             sum_length[i], k, (double)data[i][k], (double)sum);
            }
        }
        CHECK_SAYING(same_everywhere(data[1], sum_length[1] * sizeof *first), "%s", name);
        CHECK_SAYING(call < 2 || !memcmp(first, data[1], sum_length[1] * sizeof *first), "%s",
                     name);
        memcpy(first, data[1], sum_length[1] * sizeof *first);
        for (int i = 0; i < SUMS; i++) {
            free(data[i]);
        }
    }
    CHECK_SAYING(sent_by_all(s) == want, "%s: all ranks sent %llu bytes, not %llu", name,
                 sent_by_all(s), want);
    cmn_sums_close(s);
    free(first);
}

/* Rank 0 does not come: the others end the job and name a rank; then it comes after all. */
static void stalls(const char *name)
{
    float data[100];
    struct cmn_sum sum = {.data = data, .n = 100, .dtype = CMN_FP32};
    struct cmn_options impatient = options;
    struct cmn_sums *s;

    impatient.timeout = 1;
    s = cmn_sums_open(top.world, &impatient, 0);
    ordered(data, 100, top.rank);
    if (top.rank) {
        cmn_sums_begin(s, &sum);
        CHECK_FATAL(cmn_sums_progress(s, 1), "nothing came from rank ", 1);
        CHECK_SAYING(strstr(check_message, "cmn_timeout"), "%s: %.500s", name, check_message);
    }
    MPI_Barrier(top.world);
    if (top.rank == 0) {
        cmn_sums_begin(s, &sum);
    }
    while (cmn_sums_progress(s, 0) < 1) {
        usleep(100);
    }
    cmn_sums_close(s);
}

RANK_TEST(algorithms)
{
    static const char *const names[] = {"auto", "pairwise", "halving", "ring"};

    for (options.exchange = CMN_EXCHANGE_AUTO; options.exchange <= CMN_EXCHANGE_RING;
         options.exchange++) {
        const char *name = names[options.exchange];
        sums_by(name);
        stalls(name);
    }
    options.exchange = CMN_EXCHANGE_AUTO;
}

/* Data elsewhere than in the memory that shm gave is a mistake of the caller. */
RANK_TEST(memory_of_the_caller)
{
    struct cmn_group group = {top.intra, "intra", &top, &options};
    float data[16] = {0};
    void *self;

    CHECK(cmn_shm_open(&self, &group) == 0);
    CHECK_FATAL(cmn_shm_counterparts(self, data, 16), "shared memory", 0);
    cmn_shm_close(self);
}

/* More than the list of sums holds at first, which grows twice; its first ones have ended. Some are
 * empty, and end all the same. */
RANK_TEST(many_at_once)
{
    enum { MANY = 70, ENDED = 5 };
    struct cmn_sums *s = cmn_sums_open(top.world, &options, 0);
    float data[MANY];

    for (int i = 0; i < MANY; i++) {
        struct cmn_sum sum = {.data = &data[i], .n = i % 7 != 3, .dtype = CMN_FP32};
        data[i] = (float)(i * (top.rank + 1));
        cmn_sums_begin(s, &sum);
        if (i + 1 == ENDED) {
            CHECK(cmn_sums_progress(s, ENDED) == ENDED);
        }
    }
    CHECK(cmn_sums_progress(s, MANY) == MANY);
    for (int i = 0; i < MANY; i++) {
        int ranks = i % 7 == 3 ? top.rank + 1 : top.size * (top.size + 1) / 2;
        CHECK_SAYING(data[i] == (float)(i * ranks), "%d: %g", i, (double)data[i]);
    }
    cmn_sums_close(s);
}

RANK_TEST(slices)
{
    const size_t n[] = {0, 1, 15, 16, 17, 100, 1000, ((size_t)1 << 40) + 5};

    for (size_t j = 0; j < COUNT(n); j++) {
        for (int k = 1; k < 40; k++) {
            size_t end = 0, most = 0, least = SIZE_MAX;
            for (int i = 0; i < k; i++) {
                size_t at, count;
                cmn_slice(n[j], k, i, &at, &count);
                CHECK(at == end && (at % 16 == 0 || at == n[j]));
                end = at + count;
                most = count > most ? count : most;
                least = count < least ? count : least;
            }
            CHECK(end == n[j] && most - least <= 31);
        }
    }
}

RANK_TESTS(NULL, NULL)
