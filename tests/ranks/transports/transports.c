/* Sums in shared memory and by messages × groups × lengths; run.sh adds × numbers of ranks. Values are
 * small integers, so sums are exact whatever the order of the additions, and known in closed
 * form. */
#include "ranks/ranks.h"

#include <math.h>
#include <stdint.h>

#include "config/options.h"
#include "mpi/call.h"
#include "transports/shm.h"
#include "transports/sums.h"

enum { GUARD = 32, LENGTHS = 10 };
static const size_t length[LENGTHS] = {0, 1, 3, 15, 16, 17, 33, 80, 1000, 70001};

/* Sums in a group, in shared memory or by messages in memory of the caller's. */
struct bench {
    int shared;
    void *self;
    const char *group;
    int rank, ranks, call;
    float *memory, *data;
    size_t most;
};

static const char *name_of(const struct bench *b)
{
    return b->shared ? "shm" : "messages";
}

static void allreduce(const struct bench *b, size_t n)
{
    if (b->shared) {
        cmn_shm_allreduce(b->self, b->data, n);
    } else {
        cmn_sums_run(b->self, b->data, n);
    }
}

static float value(const struct bench *b, size_t i, int rank)
{
    return (float)((i + (size_t)b->call * 7) % 1000) + (float)(1000 * rank);
}

static float sum(const struct bench *b, size_t i)
{
    return value(b, i, 0) * (float)b->ranks + (float)(1000 * b->ranks * (b->ranks - 1) / 2);
}

static void fill(struct bench *b, size_t n)
{
    b->call++;
    for (size_t i = 0; i < b->most + 2 * GUARD; i++) {
        b->memory[i] = -77;
    }
    for (size_t i = 0; i < n; i++) {
        b->data[i] = value(b, i, b->rank);
    }
}

static void check_sums(const struct bench *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CHECK_SAYING(b->data[i] == sum(b, i), "%s over %s, %zu floats, at %zu: %g, not %g",
                     name_of(b), b->group, n, i, (double)b->data[i], (double)sum(b, i));
    }
}

static void check_guards(const struct bench *b, size_t n)
{
    const float *end = b->memory + b->most + 2 * GUARD;

    for (const float *p = b->memory; p < end; p++) {
        CHECK_SAYING((p >= b->data && p < b->data + n) || *p == -77,
                     "%s over %s, %zu floats, wrote at %td", name_of(b), b->group, n, p - b->data);
    }
}

static int opened(struct bench *b, int shared, const struct cmn_group *group)
{
    size_t floats;

    memset(b, 0, sizeof *b);
    b->shared = shared;
    b->group = group->name;
    b->most = length[LENGTHS - 1];
    MPI_Comm_rank(group->comm, &b->rank);
    MPI_Comm_size(group->comm, &b->ranks);
    floats = b->most + 2 * GUARD;
    if (!shared) {
        b->self = cmn_sums_open(group->comm, group->options, 1);
        b->memory = malloc(floats * sizeof *b->memory);
    } else if (cmn_shm_open(&b->self, group) || cmn_shm_memory(b->self, floats, &b->memory)) {
        CHECK_SAYING(0, "%s", cmn_reason());
        return 0;
    }
    for (size_t i = 0; i < floats && shared; i++) {
        CHECK(b->memory[i] == 0);
    }
    CHECK(!shared || (uintptr_t)b->memory % 64 == 0);
    b->data = b->memory + GUARD;
    return 1;
}

static void end(struct bench *b)
{
    if (b->shared) {
        cmn_shm_close(b->self);
    } else {
        cmn_sums_close(b->self);
        free(b->memory);
    }
}

static void exercise(int shared, const struct cmn_group *group)
{
    struct bench b;

    if (!opened(&b, shared, group)) {
        return;
    }
    for (int i = 0; i < LENGTHS; i++) {
        for (int call = 0; call < 2; call++) {
            fill(&b, length[i]);
            allreduce(&b, length[i]);
            check_sums(&b, length[i]);
            check_guards(&b, length[i]);
        }
    }
    end(&b);
}

/* Ranks of several real nodes share no memory. */
static int connects(int shared, const char *group)
{
    return !shared || top.inter_size == 1 || !strcmp(group, "intra");
}

WORLD_TEST(groups)
{
    struct cmn_group group[] = {
        {t->world, "world", t, &options},
        {t->intra, "intra", t, &options},
        {t->inter, "inter", t, &options},
    };

    for (int shared = 0; shared < 2; shared++) {
        for (size_t i = t == &top ? 0 : 1; i < COUNT(group); i++) {
            struct cmn_group one = group[i];
            char text[64];
            snprintf(text, sizeof text, "%s of %s", group[i].name, shape);
            one.name = text;
            if (connects(shared, group[i].name)) {
                exercise(shared, &one);
            }
        }
    }
}

/* MPI's allreduce with at most so many floats in a call. */
RANK_TEST(chunks)
{
    const size_t chunk[] = {1, 3, 64, 999, 1000, 1001, CMN_MPI_CHUNK};
    struct cmn_group group = {top.world, "world", &top, &options};
    struct bench b;

    for (size_t j = 0; j < COUNT(chunk) && opened(&b, 0, &group); j++) {
        for (int i = 0; i < LENGTHS && length[i] < 1000 * chunk[j]; i++) {
            fill(&b, length[i]);
            cmn_mpi_allreduce(b.data, length[i], chunk[j], top.world);
            check_sums(&b, length[i]);
            check_guards(&b, length[i]);
        }
        end(&b);
    }
}

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
    float *data = malloc(most * sizeof *data), *theirs = malloc(most * sizeof *data),
          *want = malloc(most * sizeof *data);

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
    free(theirs);
    free(want);
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
            if (call == 0) {
                for (size_t k = 0; k < sum.n; k++) {
                    sum.data[k] = (float)((k * 7 + (size_t)top.rank * 1000) % 65536);
                }
            } else {
                ordered(sum.data, sum.n, top.rank);
            }
            cmn_sums_begin(s, &sum);
            want += 2 * others * sum.n * sizeof(float);
        }
        cmn_sums_progress(s, SUMS * (call + 1));
        for (int i = 0; i < SUMS && call == 0; i++) {
            for (size_t k = 0; k < sum_length[i]; k++) {
                float sum = 0;
                for (int rank = 0; rank < top.size; rank++) {
                    sum += (float)((k * 7 + (size_t)rank * 1000) % 65536);
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

/* 16 bits: what all steps gave and what all ranks still keep is what was put in. */
static void feeds_back(const char *name, enum cmn_dtype dtype)
{
    enum { N = 30011, STEPS = 6 };
    struct cmn_sums *s = cmn_sums_open(top.world, &options, 0);
    float *data = malloc(N * sizeof *data), *error = calloc(N, sizeof *error);
    double *out = calloc(N, sizeof *out), *in = calloc(N, sizeof *in);
    unsigned long long want = (unsigned long long)(top.size - 1) * 2 * N * 2 * STEPS;
    size_t rounded = 0;

    for (int step = 0; step < STEPS; step++) {
        struct cmn_sum sum = {.data = data, .n = N, .dtype = dtype, .error = error};
        for (int rank = 0; rank < top.size; rank++) {
            ordered(data, N, rank);
            for (int i = 0; i < N; i++) {
                in[i] += (double)data[i];
            }
        }
        ordered(data, N, top.rank);
        cmn_sums_begin(s, &sum);
        cmn_sums_progress(s, step + 1);
        CHECK_SAYING(same_everywhere(data, N * sizeof *data), "%s", name);
        for (int i = 0; i < N; i++) {
            out[i] += (double)data[i];
        }
    }
    for (int i = 0; i < N; i++) {
        rounded += error[i] != 0;
    }
    for (int i = 0; i < N; i++) {
        in[i] -= out[i];
        out[i] = (double)error[i];
    }
    MPI_Allreduce(MPI_IN_PLACE, out, N, MPI_DOUBLE, MPI_SUM, top.world);
    for (int i = 0; i < N && top.size > 1; i++) {
        CHECK_SAYING(fabs(in[i] - out[i]) < 1e-5, "%s, at %d: %g are missing, %g are kept", name, i,
                     in[i], out[i]);
    }
    CHECK_SAYING(rounded > 0 || top.size == 1, "%s: nothing was rounded", name);
    CHECK_SAYING(sent_by_all(s) == want, "%s: all ranks sent %llu bytes, not %llu", name,
                 sent_by_all(s), want);
    cmn_sums_close(s);
    free(data);
    free(error);
    free(in);
    free(out);
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
        const char *said;
        cmn_sums_begin(s, &sum);
        said = fatal_of(cmn_sums_progress(s, 1));
        CHECK_SAYING(said && check_lost && strstr(said, "nothing came from rank ") &&
                         strstr(said, "cmn_timeout"),
                     "%s: %s", name, said);
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
        feeds_back(name, CMN_BF16);
        feeds_back(name, CMN_FP16);
        stalls(name);
    }
    options.exchange = CMN_EXCHANGE_AUTO;
}

/* Data elsewhere than in the memory that shm gave is a mistake of the caller. */
RANK_TEST(memory_of_the_caller)
{
    struct cmn_group group = {top.intra, "intra", &top, &options};
    const char *said;
    float data[16] = {0};
    void *self;

    CHECK(cmn_shm_open(&self, &group) == 0);
    said = fatal_of(cmn_shm_counterparts(self, data, 16));
    CHECK_SAYING(said && strstr(said, "shared memory") && !check_lost, "%s", said);
    cmn_shm_close(self);
}

RANK_TEST(two_at_once)
{
    struct cmn_sums *first = cmn_sums_open(top.world, &options, 1),
                    *second = cmn_sums_open(top.intra, &options, 1);
    float a[10], b[10];
    const struct cmn_sum sum[] = {{.data = a, .n = 10, .dtype = CMN_FP32},
                                  {.data = b, .n = 10, .dtype = CMN_FP32}};

    for (int i = 0; i < 10; i++) {
        a[i] = 1;
        b[i] = 2;
    }
    cmn_sums_begin(first, &sum[0]);
    cmn_sums_begin(second, &sum[1]);
    cmn_sums_progress(second, 1);
    cmn_sums_progress(first, 1);
    for (int i = 0; i < 10; i++) {
        CHECK(a[i] == (float)top.size);
        CHECK(b[i] == 2 * (float)top.intra_size);
    }
    cmn_sums_close(first);
    cmn_sums_close(second);
}

/* More than the list of sums holds at first, which grows twice; its first ones have ended. */
RANK_TEST(many_at_once)
{
    enum { MANY = 70, ENDED = 5 };
    struct cmn_sums *s = cmn_sums_open(top.world, &options, 0);
    float data[MANY];

    for (int i = 0; i < MANY; i++) {
        struct cmn_sum sum = {.data = &data[i], .n = 1, .dtype = CMN_FP32};
        data[i] = (float)(i * (top.rank + 1));
        cmn_sums_begin(s, &sum);
        if (i + 1 == ENDED) {
            CHECK(cmn_sums_progress(s, ENDED) == ENDED);
        }
    }
    CHECK(cmn_sums_progress(s, MANY) == MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_SAYING(data[i] == (float)(i * top.size * (top.size + 1) / 2), "%d: %g", i,
                     (double)data[i]);
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
