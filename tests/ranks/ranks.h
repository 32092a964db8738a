/* cmocka under mpiexec. A failed cmocka assertion leaves its test at once, and with it the other
 * ranks in a collective call: so tests here note failures with CHECK and continue, and at the end of a
 * RANK_TEST all ranks learn of the first failure and fail alike. Rank 0 alone
 * prints, into the file RANKS_TAP where that is set: Open MPI 5's mpiexec may lose the end of what
 * ranks print. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "check.h"

#include <mpi.h>

#include "config/options.h"
#include "mpi/topology.h"

static struct cmn_topology top;
static struct cmn_options options;
static char failure[1024];

#define CHECK(condition) CHECK_SAYING(condition, "%s", "")
#define CHECK_SAYING(condition, ...)                                                              \
    do {                                                                                          \
        if (!(condition) && !failure[0]) {                                                        \
            int used =                                                                            \
                snprintf(failure, sizeof failure, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            snprintf(failure + used, sizeof failure - (size_t)used, __VA_ARGS__);                 \
        }                                                                                         \
    } while (0)

/* The statement ends the job with a message that has this part, by cmn_fatal_lost() if `lost`. */
#define CHECK_FATAL(statement, part, lost)                                        \
    do {                                                                          \
        const char *fatal_ = fatal_of(statement);                                 \
        CHECK_SAYING(fatal_ &&strstr(fatal_, part) && check_lost == (lost), "%s", \
                     fatal_ ? fatal_ : "it went on");                             \
    } while (0)

/* Collective. Fails the test on all ranks when a CHECK failed on any. */
static inline void fail_on_all_ranks(void)
{
    int bad = failure[0] ? top.rank : top.size;
    char text[sizeof failure];

    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MIN, top.world);
    memcpy(text, failure, sizeof text);
    failure[0] = '\0';
    if (bad < top.size) {
        MPI_Bcast(text, sizeof text, MPI_CHAR, bad, top.world);
        fail_msg("rank %d of %d: %s", bad, top.size, text);
    }
}

/* Nodes that one machine stands for: the node of each rank. */
static const struct shape {
    const char *name;
    int size, nodes;
    int node[5];
} shapes[] = {
    {"1+1", 2, 2, {0, 1}},
    {"2+1", 3, 2, {0, 0, 1}},
    {"2+1, ranks in turns", 3, 2, {0, 1, 0}},
    {"1+1+1", 3, 3, {0, 1, 2}},
    {"2+2", 4, 2, {0, 0, 1, 1}},
    {"2+2, ranks in turns", 4, 2, {0, 1, 0, 1}},
    {"1+3", 4, 2, {0, 1, 1, 1}},
    {"1+1+1+1", 4, 4, {0, 1, 2, 3}},
    {"3+2", 5, 2, {0, 0, 0, 1, 1}},
    {"1+4", 5, 2, {0, 1, 1, 1, 1}},
    {"2+2+1, ranks in turns", 5, 3, {0, 1, 2, 0, 1}},
    {"1+1+1+1+1", 5, 5, {0, 1, 2, 3, 4}},
};

/* Collective. Calls `test` with the world as it is and, when that is one node, once for each
 * shape of its size. */
static inline void in_every_world(void (*test)(const struct cmn_topology *t, const char *name))
{
    test(&top, "as it is");
    for (size_t i = 0; i < COUNT(shapes) && top.inter_size == 1; i++) {
        struct cmn_topology t;
        if (shapes[i].size != top.size) {
            continue;
        }
        cmn_topology_open_as(&t, shapes[i].node[top.rank]);
        test(&t, shapes[i].name);
        cmn_topology_close(&t);
    }
}

/* Collective. Whether the n bytes are the same on all ranks. */
static inline int same_everywhere(const void *bytes, size_t n)
{
    void *theirs = malloc(n + 1);
    int same;

    memcpy(theirs, bytes, n);
    MPI_Bcast(theirs, (int)n, MPI_CHAR, 0, top.world);
    same = !memcmp(theirs, bytes, n);
    free(theirs);
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, top.world);
    return same;
}

/* Collective. Everything around the tests of a program; `run` returns what main is to return. */
static inline int ranks_main(int (*run)(void))
{
    const char *tap = getenv("RANKS_TAP");
    int result;

    MPI_Init(NULL, NULL);
    cmn_topology_open(&top);
    cmn_options_default(&options);
    tap = top.rank ? "/dev/null" : tap;
    if (tap && !freopen(tap, "w", stdout)) {
        return 1;
    }
    result = run();
    cmn_topology_close(&top);
    MPI_Finalize();
    return result;
}

/* RANK_TEST(name) { … } is a test, which fails on all ranks alike, and WORLD_TEST(name) { … } one that
 * runs in every world `t`, whose name is `shape`. */
#define RANK_TEST(test)                                                   \
    static void test(void);                                               \
    IS_A_TEST(test, test##_on_all_ranks)                                  \
    static void test##_on_all_ranks(void **state __attribute__((unused))) \
    {                                                                     \
        test();                                                           \
        fail_on_all_ranks();                                              \
    }                                                                     \
    static void test(void)
#define WORLD_TEST(test)                                                   \
    static void test(const struct cmn_topology *t, const char *shape);     \
    RANK_TEST(test##_in_every_world)                                       \
    {                                                                      \
        in_every_world(test);                                              \
    }                                                                      \
    static void test(const struct cmn_topology *t __attribute__((unused)), \
                     const char *shape __attribute__((unused)))

#define RANK_TESTS(before, after)        \
    static int between(void)             \
    {                                    \
        return check_run(before, after); \
    }                                    \
    int main(void)                       \
    {                                    \
        return ranks_main(between);      \
    }

#endif
