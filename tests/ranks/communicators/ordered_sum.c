/* Sums in a fixed order (cmn_exact) against the same sums of one process: many counts of
 * micro-batches on the world's ranks, by messages between all ranks and in two levels on each shape of nodes, lengths around a slice and
 * a chunk, and deals of other lengths. */
#include "ranks/ranks.h"

#include <math.h>
#include <sys/resource.h>

#include "communicators/ordered_sum.h"

static size_t messages, bytes; /* of this rank, by MPI_Isend */
static int to_neighbours;      /* of them to ranks of the same node */

/* How ranks exchange. */
enum way { BY_MESSAGES, BY_SLICES, BY_FIRST, EARLY, WAYS };

static const char *const way_name[] = {"by messages", "by slices", "by the first rank",
                                       "by slices during backward"};
static const struct cmn_options options = {.timeout = 60};
static const struct cmn_options early = {
    .timeout = 60, .overlap = CMN_OVERLAP_ON, .bucket_mb = 0.01};

/* Where that happens: the world, or nodes that it stands for. */
static const struct cmn_topology *at;
static const char *shape;

enum { MOST = 40, LARGE = (2 << 20) + 77 };

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

static struct cmn_ordered_sum *open_sums(enum way way, int micro_batches, size_t floats)
{
    struct cmn_ordered_sum *s = cmn_ordered_sum_open(at, micro_batches, floats);

    if (way != BY_MESSAGES) {
        CHECK_SAYING(!cmn_ordered_sum_share(s, way == EARLY ? &early : &options, way == BY_FIRST),
                     "%s", cmn_reason());
    }
    return s;
}

/* The first ranks have one each, the last one the rest; later the reverse, and at last all is the last rank's. */
static void set_deal(int *deal, int micro_batches, int step)
{
    for (int rank = 1; rank < top.size; rank++) {
        int few = rank < micro_batches ? rank : micro_batches, rest = top.size - rank;
        deal[rank] = step == 6              ? 0
                     : step < 4             ? few
                     : micro_batches > rest ? micro_batches - rest
                                            : 0;
    }
    deal[top.size] = micro_batches;
}

static int *equal_deal(int micro_batches)
{
    int *deal = calloc((size_t)top.size + 1, sizeof *deal);

    for (int rank = 0; rank <= top.size; rank++) {
        deal[rank] = cmn_ordered_sum_first(micro_batches, rank, top.size);
    }
    return deal;
}

/* The gradient's floats become final one after the other, and are not looked at before. */
static void fill_early(struct cmn_ordered_sum *s, float *x, int step, int micro_batch,
                       size_t floats)
{
    size_t upto = 0;

    memset(x, 0xff, floats * sizeof *x);
    for (size_t part = 1; part <= 7; part++) {
        for (; upto < floats * part / 7; upto++) {
            x[upto] = value_of(step, micro_batch, upto);
        }
        if (part < 7) {
            cmn_ordered_sum_fill(s, x, upto);
        }
        cmn_ordered_sum_poll(s);
    }
}

/* This rank's micro-batches, and the sum of all. */
static void take_step(struct cmn_ordered_sum *s, enum way way, int step, const int *deal,
                      size_t floats)
{
    int micro_batches = deal[top.size], end = deal[top.rank + 1];
    float *x = calloc(floats, sizeof *x);

    for (int m = deal[top.rank]; m < end; m++) {
        for (size_t i = 0; i < floats; i++) {
            x[i] = value_of(step, m, i);
        }
        if (way == EARLY && step % 2 && m + 1 == end) {
            messages = 0;
            fill_early(s, x, step, m, floats);
            /* Nobody else of the node has to fill anything. */
            CHECK_SAYING(floats < LARGE || at->intra_size > 1 || at->inter_size == 1 || messages,
                         "nodes %s: nothing is sent before the end", shape);
        }
        cmn_ordered_sum_add(s, x);
        CHECK_SAYING(m + 1 == end || (x[0] == 0 && x[floats - 1] == 0),
                     "%d of %d is not taken away", m, micro_batches);
    }
    to_neighbours = 0;
    cmn_ordered_sum_complete(s, x);
    CHECK_SAYING(way == BY_MESSAGES || !to_neighbours, "nodes %s, %s: %d messages within a node",
                 shape, way_name[way], to_neighbours);
    for (size_t i = 0; i < floats; i++) {
        float wanted = sum_of(step, 0, micro_batches, i);
        CHECK_SAYING(!memcmp(&wanted, &x[i], sizeof wanted),
                     "nodes %s, %s, step %d, %d micro-batches, %zu floats: %zu is %.9g, not %.9g",
                     shape, way_name[way], step, micro_batches, floats, i, (double)x[i],
                     (double)wanted);
    }
    free(x);
}

static void try_sums_in(enum way way, int micro_batches, size_t floats)
{
    struct cmn_ordered_sum *s = open_sums(way, micro_batches, floats);
    int *deal = equal_deal(micro_batches);

    for (int step = 0; step < (floats < LARGE ? 8 : 3); step++) {
        if (step > 1 && step < 7) {
            set_deal(deal, micro_batches, step);
            CHECK_SAYING(!cmn_ordered_sum_divide(s, deal), "%s", cmn_reason());
        }
        take_step(s, way, step, deal, floats);
    }
    free(deal);
    cmn_ordered_sum_close(s);
}

static void try_sums(int micro_batches, size_t floats)
{
    for (enum way way = at == &top ? BY_MESSAGES : BY_SLICES; way < WAYS; way++) {
        if (floats < LARGE || way != BY_FIRST) {
            try_sums_in(way, micro_batches, floats);
        }
    }
}

/* Of the numbers of micro-batches from 1 to MOST: all in the world as it is, and some on the shapes. */
static int next_count(int n)
{
    return n + (at == &top || n < 8 ? 1 : 8);
}

static void try_sums_at(const struct cmn_topology *t, const char *name)
{
    at = t;
    shape = name;
    for (int n = 1; n <= MOST; n = next_count(n)) {
        try_sums(n, 37);
    }
    for (size_t floats = 1; floats <= 6; floats++) {
        try_sums(7, floats);
    }
    try_sums(7, 1000);
    try_sums(3, LARGE);
    try_sums(257, 5);
}

static void has_the_bits_of_the_tree(void **state)
{
    (void)state;
    in_every_world(try_sums_at);
    fail_on_all_ranks();
}

/* ---- without shared memory ---- */

/* On one node of those that have several ranks: none is to be had there. Returns whether there is one. */
static int limit_memory(int limited)
{
    static rlim_t most;
    struct rlimit limit;
    int node = at->intra_size > 1 ? at->inter_rank : -1, last;

    MPI_Allreduce(&node, &last, 1, MPI_INT, MPI_MAX, at->world);
    getrlimit(RLIMIT_FSIZE, &limit);
    most = limited ? limit.rlim_cur : most;
    limit.rlim_cur = limited && at->inter_rank == last ? 4096 : most;
    setrlimit(RLIMIT_FSIZE, &limit);
    return last >= 0;
}

static void check_reason(int result, int lacks)
{
    char why[512] = "";

    CHECK_SAYING(result == (lacks ? -1 : 0), "nodes %s: %d", shape, result);
    if (lacks && result) {
        snprintf(why, sizeof why, "%s", cmn_reason());
        CHECK_SAYING(strstr(why, "the limit of a file's size"), "%s", why);
        CHECK_SAYING(same_everywhere(why, sizeof why), "not on all ranks: %s", why);
    }
}

static void sends_messages_at(const struct cmn_topology *t, const char *name)
{
    enum { MICRO_BATCHES = 16, FLOATS = 3000 };
    struct cmn_ordered_sum *s = cmn_ordered_sum_open(t, MICRO_BATCHES, FLOATS);
    int *deal = equal_deal(MICRO_BATCHES), lacks;

    at = t;
    shape = name;
    lacks = limit_memory(1);
    check_reason(cmn_ordered_sum_share(s, &options, 0), lacks);
    limit_memory(0);
    take_step(s, BY_MESSAGES, 0, deal, FLOATS);
    cmn_ordered_sum_close(s);

    s = open_sums(BY_SLICES, MICRO_BATCHES, FLOATS);
    take_step(s, BY_SLICES, 1, deal, FLOATS);
    limit_memory(1);
    set_deal(deal, MICRO_BATCHES, 2);
    check_reason(cmn_ordered_sum_divide(s, deal), lacks);
    limit_memory(0);
    for (int step = 2; step < 4; step++) {
        take_step(s, BY_MESSAGES, step, deal, FLOATS);
    }
    cmn_ordered_sum_close(s);
    free(deal);
}

static void sends_messages_where_one_node_has_no_memory(void **state)
{
    (void)state;
    in_every_world(sends_messages_at);
    fail_on_all_ranks();
}

/* ---- what an exchange sends ---- */

/* Whether rank `rank` of the world is of this rank's node. */
static int is_neighbour(int rank)
{
    MPI_Group world, node;
    int number;

    MPI_Comm_group(at->world, &world);
    MPI_Comm_group(at->intra, &node);
    MPI_Group_translate_ranks(world, 1, &rank, node, &number);
    MPI_Group_free(&world);
    MPI_Group_free(&node);
    return number != MPI_UNDEFINED;
}

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    messages++;
    bytes += (size_t)n * sizeof(float);
    to_neighbours += is_neighbour(to);
    return PMPI_Isend(from, n, type, to, tag, comm, request);
}

/* Subtrees of [from, end) whose micro-batches are all this node's, while those around them are not. */
static size_t subtrees_of(const int *ours, int from, int end)
{
    int have = 0, power = 1;

    for (int i = from; i < end; i++) {
        have += ours[i];
    }
    if (have == 0 || have == end - from) {
        return have > 0;
    }
    while (2 * power < end - from) {
        power *= 2;
    }
    return subtrees_of(ours, from, from + power) + subtrees_of(ours, from + power, end);
}

/* The closed form of ordered_levels.h: what all ranks of this node send together. */
static void count_node(enum way way, int n)
{
    enum { FLOATS = 16 * 60 }; /* divided evenly by each number of nodes */
    static float x[FLOATS];
    struct cmn_ordered_sum *s = open_sums(way, n, FLOATS);
    int ours[MOST] = {0};
    unsigned long sent;
    size_t k, nodes = (size_t)at->inter_size;

    for (int m = cmn_ordered_sum_first(n, top.rank, top.size);
         m < cmn_ordered_sum_first(n, top.rank + 1, top.size); m++) {
        cmn_ordered_sum_add(s, x);
        ours[m] = 1;
    }
    MPI_Allreduce(MPI_IN_PLACE, ours, MOST, MPI_INT, MPI_SUM, at->intra);
    k = subtrees_of(ours, 0, n);
    messages = bytes = 0;
    to_neighbours = 0;
    cmn_ordered_sum_complete(s, x);
    CHECK_SAYING(!to_neighbours, "nodes %s: ranks of a node send each other", shape);
    CHECK_SAYING(way == BY_SLICES || at->intra_rank == 0 || !messages,
                 "nodes %s: rank %d of a node sends, too", shape, at->intra_rank);
    CHECK_SAYING(way == BY_FIRST || nodes == 1 || messages, "nodes %s: rank %d of a node is idle",
                 shape, at->intra_rank);
    sent = bytes;
    MPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_UNSIGNED_LONG, MPI_SUM, at->intra);
    CHECK_SAYING(sent == (nodes - 1) * 4 * FLOATS / nodes * (k + 1),
                 "nodes %s, %s, %d micro-batches: %lu bytes of %zu subtrees", shape, way_name[way],
                 n, sent, k);
    cmn_ordered_sum_close(s);
}

static void count_nodes(const struct cmn_topology *t, const char *name)
{
    at = t;
    shape = name;
    for (int n = 1; n <= MOST; n = next_count(n)) {
        count_node(BY_SLICES, n);
        count_node(BY_FIRST, n);
    }
}

static void nodes_send_what_it_says(void **state)
{
    (void)state;
    in_every_world(count_nodes);
    fail_on_all_ranks();
}

/* What other ranks may have added and sent is not called back. */
static void leaves_out_no_step_that_is_exchanged(void **state)
{
    enum { FLOATS = 160 };
    static float x[FLOATS];
    struct cmn_ordered_sum *s;

    (void)state;
    at = &top;
    if (top.size == 1) {
        return; /* there is no exchange */
    }
    s = open_sums(EARLY, top.size, FLOATS);
    cmn_ordered_sum_fill(s, x, FLOATS / 2);
    assert_fatal(cmn_ordered_sum_drop(s), "a step is left out whose sums the ranks exchange");
    cmn_ordered_sum_add(s, x);
    cmn_ordered_sum_complete(s, x);
    cmn_ordered_sum_drop(s);
    cmn_ordered_sum_close(s);
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
        cmocka_unit_test(sends_messages_where_one_node_has_no_memory),
        cmocka_unit_test(nodes_send_what_it_says),
        cmocka_unit_test(leaves_out_no_step_that_is_exchanged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(run);
}
