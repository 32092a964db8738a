/* Transports × operations × groups × lengths × slices; run.sh adds × numbers of ranks. Values are small
 * integers, so sums are exact whatever the order of the additions, and known in closed form. */
#include "ranks/ranks.h"

#include <stdint.h>

#include "config/options.h"
#include "transports/pairwise.h"
#include "transports/transport.h"

static const struct cmn_transport *const transports[] = {&cmn_mpi, &cmn_shm};
static struct cmn_options options;

enum { GUARD = 32, LENGTHS = 10 };
static const size_t length[LENGTHS] = {0, 1, 3, 15, 16, 17, 33, 80, 1000, 70001};

/* A transport at work in a group, with memory of the caller's or of its own. */
struct bench {
    const struct cmn_transport *t;
    void *self;
    const char *group;
    int rank, ranks, call;
    float *memory, *data;
    size_t most;
};

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

/* [from, to) holds the sums, or, with `of` a rank, that rank's values. */
static void check_range(const struct bench *b, const char *op, size_t n, size_t from, size_t to,
                        int of)
{
    for (size_t i = from; i < to; i++) {
        float want = of < 0 ? sum(b, i) : value(b, i, of);
        CHECK_SAYING(b->data[i] == want, "%s %s over %s, %zu floats, at %zu: %g, not %g",
                     b->t->name, op, b->group, n, i, (double)b->data[i], (double)want);
    }
}

static void check_guards(const struct bench *b, const char *op, size_t n)
{
    const float *end = b->memory + b->most + 2 * GUARD;

    for (const float *p = b->memory; p < end; p++) {
        CHECK_SAYING((p >= b->data && p < b->data + n) || *p == -77,
                     "%s %s over %s, %zu floats, wrote at %td", b->t->name, op, b->group, n,
                     p - b->data);
    }
}

static void whole_block(struct bench *b, size_t n)
{
    fill(b, n);
    CHECK_SAYING(b->t->allreduce(b->self, b->data, n) == 0, "%s", cmn_reason());
    check_range(b, "allreduce", n, 0, n, -1);
    check_guards(b, "allreduce", n);
    fill(b, n);
    CHECK_SAYING(b->t->reduce(b->self, b->data, n) == 0, "%s", cmn_reason());
    check_range(b, "reduce", n, 0, b->rank == 0 ? n : 0, -1);
    check_guards(b, "reduce", n);
    fill(b, n);
    CHECK_SAYING(b->t->bcast(b->self, b->data, n) == 0, "%s", cmn_reason());
    check_range(b, "bcast", n, 0, n, 0);
    check_guards(b, "bcast", n);
}

static void in_slices(struct bench *b, size_t n, int slices)
{
    size_t at, count;

    fill(b, n);
    CHECK_SAYING(b->t->reduce_scatter(b->self, b->data, n, slices) == 0, "%s", cmn_reason());
    if (b->rank < slices) {
        cmn_slice(n, slices, b->rank, &at, &count);
        check_range(b, "reduce_scatter", n, at, at + count, -1);
    }
    check_guards(b, "reduce_scatter", n);
    fill(b, n);
    CHECK_SAYING(b->t->allgather(b->self, b->data, n, slices) == 0, "%s", cmn_reason());
    for (int i = 0; i < slices; i++) {
        cmn_slice(n, slices, i, &at, &count);
        check_range(b, "allgather", n, at, at + count, i);
    }
    check_guards(b, "allgather", n);
}

static int opened(struct bench *b, const struct cmn_transport *t, const struct cmn_group *group)
{
    memset(b, 0, sizeof *b);
    b->t = t;
    b->group = group->name;
    b->most = length[LENGTHS - 1];
    MPI_Comm_rank(group->comm, &b->rank);
    MPI_Comm_size(group->comm, &b->ranks);
    CHECK_SAYING(t->open(&b->self, group) == 0, "%s", cmn_reason());
    return b->self != NULL;
}

static void exercise(const struct cmn_transport *t, const struct cmn_group *group)
{
    struct bench b;

    for (int own = 0; own < (t->memory ? 2 : 1); own++) {
        if (!opened(&b, t, group)) {
            return;
        }
        if (own) {
            CHECK_SAYING(t->memory(b.self, b.most + 2 * GUARD, &b.memory) == 0, "%s", cmn_reason());
            CHECK((uintptr_t)b.memory % 64 == 0);
            for (size_t i = 0; i < b.most + 2 * GUARD; i++) {
                CHECK(b.memory[i] == 0);
            }
        } else {
            b.memory = malloc((b.most + 2 * GUARD) * sizeof *b.memory);
        }
        b.data = b.memory + GUARD;
        for (int i = 0; i < LENGTHS; i++) {
            for (int call = 0; call < 2; call++) {
                whole_block(&b, length[i]);
            }
            for (int slices = 1; slices <= b.ranks; slices++) {
                in_slices(&b, length[i], slices);
            }
        }
        t->close(b.self);
        if (!own) {
            free(b.memory);
        }
    }
}

/* Ranks of several real nodes share no memory. */
static int connects(const struct cmn_transport *t, const struct cmn_topology *topology,
                    const char *group)
{
    return !t->refuses(topology, &options) &&
           (top.inter_size == 1 || !strcmp(group, "intra") || t == &cmn_mpi);
}

static void groups_of(const struct cmn_topology *topology, const char *name)
{
    struct cmn_group group[] = {
        {topology->world, "world", topology, &options, 0},
        {topology->intra, "intra", topology, &options, 0},
        {topology->inter, "inter", topology, &options, 0},
    };

    for (size_t t = 0; t < COUNT(transports); t++) {
        for (size_t i = topology == &top ? 0 : 1; i < COUNT(group); i++) {
            char text[64];
            if (connects(transports[t], topology, group[i].name)) {
                snprintf(text, sizeof text, "%s of %s", group[i].name, name);
                group[i].name = text;
                exercise(transports[t], &group[i]);
            }
        }
    }
}

static void operations(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(transports); t++) {
        const char *why = transports[t]->refuses(&top, &options);
        if (why) {
            printf("# %s is left out: %s\n", transports[t]->name, why);
        }
    }
    in_every_world(groups_of);
    settle();
}

/* What `chunk` asks of mpi: calls of MPI with at most so many floats. */
static void chunks(void **state)
{
    const size_t chunk[] = {1, 3, 64, 999, 1000, 1001, (size_t)1 << 40};
    struct bench b;

    (void)state;
    for (size_t j = 0; j < COUNT(chunk); j++) {
        struct cmn_group group = {top.world, "world", &top, &options, chunk[j]};
        if (!opened(&b, &cmn_mpi, &group)) {
            break;
        }
        b.memory = malloc((b.most + 2 * GUARD) * sizeof *b.memory);
        b.data = b.memory + GUARD;
        for (int i = 0; i < LENGTHS && length[i] < 1000 * chunk[j]; i++) {
            whole_block(&b, length[i]);
            in_slices(&b, length[i], top.size);
        }
        cmn_mpi.close(b.self);
        free(b.memory);
    }
    settle();
}

static void ordered(float *data, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++) {
        data[i] = 1.0F / (float)(i % 997 + 3) / (float)(rank * rank + 1);
    }
}

/* Many chunks under way, slices that end in the middle of one, and the order of the additions. */
static void pairwise(void **state)
{
    const size_t chunk[] = {1, 5, 16, 40, 0}, n[] = {1, 97, 1000};
    float data[1000], theirs[1000], want[1000];

    (void)state;
    for (size_t j = 0; j < COUNT(chunk) * COUNT(n); j++) {
        struct cmn_pairwise *p;
        size_t count = n[j / COUNT(chunk)], at, mine;
        CHECK_SAYING(cmn_pairwise_open(&p, top.world, chunk[j % COUNT(chunk)]) == 0, "%s",
                     cmn_reason());
        for (int rank = 0; rank < top.size; rank++) {
            ordered(theirs, count, rank);
            for (size_t i = 0; i < count; i++) {
                want[i] = rank ? want[i] + theirs[i] : theirs[i];
            }
        }
        for (int slices = 1; slices <= top.size; slices++) {
            ordered(data, count, top.rank);
            CHECK(cmn_pairwise_run(p, data, count, slices, CMN_SCATTER | CMN_GATHER) == 0);
            CHECK_SAYING(!memcmp(data, want, count * sizeof *data), "%zu floats, %d slices", count,
                         slices);
            ordered(data, count, top.rank);
            CHECK(cmn_pairwise_run(p, data, count, slices, CMN_SCATTER | CMN_GATHER_FIRST) == 0);
            CHECK(top.rank != 0 || !memcmp(data, want, count * sizeof *data));
            cmn_slice(count, slices, top.rank < slices ? top.rank : 0, &at, &mine);
            CHECK(top.rank >= slices || !memcmp(data + at, want + at, mine * sizeof *data));
        }
        cmn_pairwise_close(p);
    }
    settle();
}

/* The same call twice gives the same bits, on all ranks. */
static void same_bits(void **state)
{
    const size_t n = 50000;
    float *first = malloc(n * sizeof *first), *second = malloc(n * sizeof *second);

    (void)state;
    for (size_t t = 0; t < COUNT(transports); t++) {
        struct cmn_group group = {top.world, "world", &top, &options, 0};
        void *self = NULL;
        if (!connects(transports[t], &top, "world")) {
            continue;
        }
        ordered(first, n, top.rank);
        ordered(second, n, top.rank);
        CHECK_SAYING(transports[t]->open(&self, &group) == 0, "%s", cmn_reason());
        CHECK_SAYING(transports[t]->allreduce(self, first, n) == 0, "%s", cmn_reason());
        CHECK_SAYING(transports[t]->allreduce(self, second, n) == 0, "%s", cmn_reason());
        CHECK_SAYING(!memcmp(first, second, n * sizeof *first), "%s", transports[t]->name);
        CHECK_SAYING(same_everywhere(first, n * sizeof *first), "%s", transports[t]->name);
        transports[t]->close(self);
    }
    free(first);
    free(second);
    settle();
}

static void two_at_once(void **state)
{
    const struct cmn_group world = {top.world, "world", &top, &options, 0};
    const struct cmn_group intra = {top.intra, "intra", &top, &options, 0};
    float a[10], b[10];
    void *first = NULL, *second = NULL;

    (void)state;
    for (int i = 0; i < 10; i++) {
        a[i] = 1;
        b[i] = 2;
    }
    CHECK(cmn_mpi.open(&first, &world) == 0);
    CHECK(cmn_mpi.open(&second, &intra) == 0);
    CHECK(cmn_mpi.allreduce(first, a, 10) == 0);
    CHECK(cmn_mpi.reduce_scatter(second, b, 10, 1) == 0);
    CHECK(cmn_mpi.allgather(second, b, 10, 1) == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(a[i] == (float)top.size);
        CHECK(b[i] == 2 * (float)top.intra_size);
    }
    cmn_mpi.close(first);
    cmn_mpi.close(second);
    settle();
}

static void slices(void **state)
{
    const size_t n[] = {0, 1, 15, 16, 17, 100, 1000, ((size_t)1 << 40) + 5};

    (void)state;
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
    settle();
}

/* What transports refuse, and what cmn_intra makes of it. */
static void choice(void **state)
{
    const struct cmn_transport *t;

    (void)state;
    CHECK(!cmn_mpi.refuses(&top, &options));
    for (int word = CMN_INTRA_AUTO; word <= CMN_INTRA_NCCL; word++) {
        const char *name;
        options.intra = word;
        name = cmn_options_word(&options, "cmn_intra");
        t = cmn_transport_intra(&top, &options);
        if (t) {
            CHECK_SAYING(!strcmp(name, "auto") || !strcmp(name, t->name), "%s gave %s", name,
                         t->name);
            CHECK_SAYING(!t->refuses(&top, &options), "%s", t->name);
        } else {
            CHECK_SAYING(strstr(cmn_reason(), name), "%s: %s", name, cmn_reason());
        }
        CHECK_SAYING(t || word == CMN_INTRA_NCCL || word == CMN_INTRA_SHM, "%s", name);
        CHECK_SAYING(!t || word != CMN_INTRA_NCCL, "nccl on the CPU");
    }
    options.intra = CMN_INTRA_AUTO;
    settle();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices),      cmocka_unit_test(choice),   cmocka_unit_test(operations),
        cmocka_unit_test(chunks),      cmocka_unit_test(pairwise), cmocka_unit_test(same_bits),
        cmocka_unit_test(two_at_once),
    };

    cmn_options_default(&options);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(group);
}
