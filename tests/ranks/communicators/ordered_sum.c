/* Sums in a fixed order (cmn_exact) against the same sums of one process: many counts of
 * micro-batches on the world's ranks, lengths around a slice and a chunk, deals of other lengths, and a last gradient that stays where it lies. */
#include "ranks/ranks.h"

#include <math.h>

#include "communicators/ordered_sum.h"

static size_t messages, bytes; /* of this rank, by MPI_Isend */
static int gathers;

enum { MOST = 40, LARGE = (1 << 20) + 77 };

/* Numbers whose sums depend on the order: magnitudes from 2^-12 to 2^11. */
static float value_of(int step, int micro_batch, size_t i)
{
    uint64_t h = ((uint64_t)step * 1009 + (uint64_t)micro_batch) * 0x9e3779b97f4a7c15U + i;

    h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9U;
    h ^= h >> 29;
    return ldexpf((float)(h >> 40) / (1 << 23) - 1, (int)(h % 24) - 12);
}

/* The definition: a node's left child ends at the largest power of two below its length. */
static float sum_of(int step, int from, int end, size_t i)
{
    int power = 1;

    if (end - from == 1) {
        return value_of(step, from, i);
    }
    while (2 * power < end - from) {
        power *= 2;
    }
    return sum_of(step, from, from + power, i) + sum_of(step, from + power, end, i);
}

static void try_sums_in(int micro_batches, size_t floats, int shared)
{
    static const struct cmn_options options = {.timeout = 60};
    struct cmn_ordered_sum *s = cmn_ordered_sum_open(&top, micro_batches, floats);
    int first = cmn_ordered_sum_first(micro_batches, top.rank, top.size);
    int end = cmn_ordered_sum_first(micro_batches, top.rank + 1, top.size);
    float *x = calloc(floats + 1, sizeof *x), *other = calloc(floats + 1, sizeof *other);
    int *deal = calloc((size_t)top.size + 1, sizeof *deal);

    if (shared) {
        CHECK_SAYING(!cmn_ordered_sum_share(s, &options), "%s", cmn_reason());
    }
    for (int step = 0; step < 6; step++) {
        int stays = step % 2;
        float *sum = stays ? x : other;
        if (step > 1 &&
            !shared) { /* the first ranks have one each, the last one the rest; then the reverse */
            for (int rank = 1; rank < top.size; rank++) {
                int few = rank < micro_batches ? rank : micro_batches, rest = top.size - rank;
                deal[rank] = step < 4 ? few : micro_batches > rest ? micro_batches - rest : 0;
            }
            deal[top.size] = micro_batches;
            cmn_ordered_sum_divide(s, deal);
            first = deal[top.rank];
            end = deal[top.rank + 1];
        }
        for (int m = first; m < end; m++) {
            for (size_t i = 0; i < floats; i++) {
                x[i] = value_of(step, m, i);
            }
            cmn_ordered_sum_add(s, x, stays);
            CHECK_SAYING((stays && m + 1 == end) || (x[0] == 0 && x[floats - 1] == 0),
                         "%d of %d is not taken away", m, micro_batches);
        }
        messages = 0;
        cmn_ordered_sum_complete(s, sum);
        CHECK_SAYING(!shared || !messages, "%zu messages beside shared memory", messages);
        for (size_t i = 0; i < floats; i++) {
            float wanted = sum_of(step, 0, micro_batches, i);
            CHECK_SAYING(!memcmp(&wanted, &sum[i], sizeof wanted),
                         "step %d, %d micro-batches, %zu floats: %zu is %.9g, not %.9g", step,
                         micro_batches, floats, i, (double)sum[i], (double)wanted);
        }
    }
    free(x);
    free(other);
    free(deal);
    cmn_ordered_sum_close(s);
}

static void try_sums(int micro_batches, size_t floats)
{
    try_sums_in(micro_batches, floats, 0);
    try_sums_in(micro_batches, floats, 1);
}

static void has_the_bits_of_the_tree(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        try_sums(n, 37);
    }
    for (size_t floats = 1; floats <= 6; floats++) {
        try_sums(7, floats);
    }
    try_sums(3, LARGE);
    try_sums(257, 5);
    fail_on_all_ranks();
}

/* ---- what an exchange sends ---- */

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    messages++;
    bytes += (size_t)n * sizeof(float);
    return PMPI_Isend(from, n, type, to, tag, comm, request);
}

int MPI_Allgatherv(const void *from, int n, MPI_Datatype type, void *to, const int *count,
                   const int *place, MPI_Datatype of, MPI_Comm comm)
{
    gathers++;
    return PMPI_Allgatherv(from, n, type, to, count, place, of, comm);
}

/* Nodes of [at, end): each the largest power of two that divides its begin and fits. */
static size_t nodes_of(int at, int end)
{
    size_t nodes = 0;

    for (int n; at < end; at += n, nodes++) {
        for (n = 1; at % (2 * n) == 0 && at + 2 * n <= end; n *= 2) {
        }
    }
    return nodes;
}

/* The closed forms of ordered_sum.h, for each number of micro-batches. */
static void sends_what_it_says(void **state)
{
    enum { FLOATS = 60 }; /* divided evenly by each number of ranks */
    float x[FLOATS] = {0};
    size_t others = (size_t)top.size - 1;

    (void)state;
    for (int n = 1; n <= MOST; n++) {
        struct cmn_ordered_sum *s = cmn_ordered_sum_open(&top, n, FLOATS);
        int first = cmn_ordered_sum_first(n, top.rank, top.size);
        int end = cmn_ordered_sum_first(n, top.rank + 1, top.size);
        size_t nodes = nodes_of(first, end);
        for (int m = first; m < end; m++) {
            cmn_ordered_sum_add(s, x, n % 2);
        }
        messages = bytes = 0;
        gathers = 0;
        cmn_ordered_sum_complete(s, x);
        CHECK_SAYING(messages == nodes * others, "%d micro-batches: %zu messages of %zu nodes", n,
                     messages, nodes);
        CHECK_SAYING(bytes == nodes * 4 * FLOATS * others / (size_t)top.size,
                     "%d micro-batches: %zu bytes of %zu nodes", n, bytes, nodes);
        CHECK_SAYING(gathers == (top.size > 1), "%d micro-batches: gathered %d times", n, gathers);
        cmn_ordered_sum_close(s);
    }
    fail_on_all_ranks();
}

/* Each has a rank, in order, and no rank has two more than another. */
static void deals_out_all_micro_batches(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++) {
        for (int n = 1; n <= MOST; n++) {
            CHECK(cmn_ordered_sum_first(n, 0, ranks) == 0);
            CHECK(cmn_ordered_sum_first(n, ranks, ranks) == n);
            for (int rank = 0; rank < ranks; rank++) {
                int has = cmn_ordered_sum_first(n, rank + 1, ranks) -
                          cmn_ordered_sum_first(n, rank, ranks);
                CHECK_SAYING(has >= n / ranks && has <= (n + ranks - 1) / ranks,
                             "rank %d of %d has %d of %d", rank, ranks, has, n);
            }
        }
    }
    fail_on_all_ranks();
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deals_out_all_micro_batches),
        cmocka_unit_test(has_the_bits_of_the_tree),
        cmocka_unit_test(sends_what_it_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(run);
}
