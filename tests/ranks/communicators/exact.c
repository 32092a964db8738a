/* Sums along the tree of cmn_exact against the same sums of one process: many counts of micro-batches on the
 * world's ranks, by each communicator that has them, on each shape of nodes, lengths around a slice and a
 * chunk, begun during backward or not, and deals of other lengths. */
#include "ranks/ranks.h"

#include <math.h>

#include "base/memory.h"
#include "communicators/communicator.h"
#include "optimizers/accumulation.h"
#include "transports/sum_tree.h"

static size_t messages, bytes; /* of this rank, by MPI_Isend */
static int to_neighbours;      /* of them to ranks of the same node */

static const char *const names[] = {"flat", "shm", "two_dimensional", "hierarchical"};

/* Where that happens: the world, or nodes that it stands for. */
static const struct cmn_topology *at;
static const char *where;

enum { MOST = 40, METRICS = 16, LARGE = (1 << 20) + 77 };

/* What sums: a communicator with a block of gradients and metrics, and this rank's addends. */
struct sums {
    const struct cmn_communicator *by;
    void *self;
    struct cmn_accumulation *accumulation;
    float *own; /* the block, where the communicator gives no memory */
    struct cmn_span tensor;
    struct cmn_exchange x;
};

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

static size_t block_of(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

static void open_sums(struct sums *s, const char *name, int micro_batches, size_t floats)
{
    size_t n = block_of(floats);
    float *block = NULL;

    memset(s, 0, sizeof *s);
    cmn_options_default(&options);
    options.exact = 1;
    s->by = cmn_communicator_find(name);
    CHECK_SAYING(!s->by->open(&s->self, s->by, at, &options), "%s", cmn_reason());
    CHECK_SAYING(!s->by->memory || !s->by->memory(s->self, n + METRICS, &block), "%s",
                 cmn_reason());
    block = block ? block : (s->own = cmn_alloc_floats(n + METRICS));
    s->tensor = (struct cmn_span){.data = block, .n = floats};
    s->accumulation = cmn_accumulation_open(at, s->by, s->self, micro_batches, n + METRICS);
    s->x = (struct cmn_exchange){.tensor = &s->tensor,
                                 .tensors = 1,
                                 .block = {.data = block, .n = n},
                                 .metrics = {.data = block + n, .n = METRICS},
                                 .addends = cmn_accumulation_addends(s->accumulation)};
}

static void close_sums(struct sums *s)
{
    cmn_accumulation_close(s->accumulation);
    s->by->close(s->self);
    free(s->own);
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
        deal[rank] = cmn_sum_tree_first(micro_batches, rank, top.size);
    }
    return deal;
}

/* A micro-batch's gradients and metrics, in all floats that are exchanged. */
static void fill(const struct sums *s, int step, int micro_batch, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        s->x.block.data[i] =
            i < s->tensor.n || i >= s->x.block.n ? value_of(step, micro_batch, i) : 0;
    }
}

/* The gradient's floats become final one after the other, and are not looked at before. */
static void fill_early(struct sums *s, int step, int micro_batch)
{
    size_t n = s->x.block.n;

    memset(s->x.block.data, 0xff, n * sizeof(float));
    for (size_t part = 1; part <= 7; part++) {
        fill(s, step, micro_batch, n * (part - 1) / 7, n * part / 7);
        if (part < 7) {
            s->by->begin(s->self, &s->x, n * part / 7);
        }
        s->by->poll(s->self);
    }
    fill(s, step, micro_batch, n, n + METRICS);
}

/* What another rank begins, which has a micro-batch. */
static void begin_nothing(struct sums *s)
{
    for (size_t part = 1; part < 7; part++) {
        s->by->begin(s->self, &s->x, s->x.block.n * part / 7);
    }
}

static void check_step(const struct sums *s, int step, int micro_batches)
{
    size_t n = s->x.block.n;

    for (size_t i = 0; i < n + METRICS; i++) {
        float wanted = sum_of(step, 0, micro_batches, i), is = s->x.block.data[i];
        CHECK_SAYING((i >= s->tensor.n && i < n) || !memcmp(&wanted, &is, sizeof is),
                     "nodes %s, %s, step %d, %d micro-batches, %zu floats: %zu is %.9g, not %.9g",
                     where, s->by->name, step, micro_batches, s->tensor.n, i, (double)is,
                     (double)wanted);
    }
}

/* This rank's micro-batches, and the sum of all. */
static void take_step(struct sums *s, int step, const int *deal)
{
    int end = deal[top.rank + 1];
    int early = step % 2 && !cmn_communicator_no_begin(s->by, s->self);

    for (int m = deal[top.rank]; m < end; m++) {
        if (early && m + 1 == end) {
            fill_early(s, step, m);
        } else {
            fill(s, step, m, 0, s->x.block.n + METRICS);
        }
        cmn_accumulation_add(s->accumulation, s->x.block.data);
        CHECK_SAYING(m + 1 == end ||
                         (s->x.block.data[0] == 0 && s->x.metrics.data[METRICS - 1] == 0),
                     "%d of %d is not taken away", m, deal[top.size]);
    }
    if (early && deal[top.rank] == end) {
        begin_nothing(s);
    }
    to_neighbours = 0;
    cmn_accumulation_end_step(s->accumulation);
    s->by->allreduce(s->self, &s->x);
    CHECK_SAYING(!strcmp(s->by->name, "flat") || !to_neighbours,
                 "nodes %s, %s: %d messages within a node", where, s->by->name, to_neighbours);
    check_step(s, step, deal[top.size]);
}

static void try_sums_in(const char *name, int micro_batches, size_t floats)
{
    int *deal = equal_deal(micro_batches);
    struct sums s;

    open_sums(&s, name, micro_batches, floats);
    for (int step = 0; step < (floats < LARGE ? 8 : 3); step++) {
        if (step > 1 && step < 7) {
            set_deal(deal, micro_batches, step);
            cmn_accumulation_deal(s.accumulation, deal);
        }
        take_step(&s, step, deal);
    }
    free(deal);
    close_sums(&s);
}

static void try_sums(int micro_batches, size_t floats)
{
    for (size_t i = at == &top ? 0 : 1; i < COUNT(names); i++) {
        if (floats < LARGE || i < 2) {
            try_sums_in(names[i], micro_batches, floats);
        }
    }
}

/* Of the numbers of micro-batches from 1 to MOST: all in the world as it is, and some on the shapes. */
static int next_count(int n)
{
    return n + (at == &top || n < 8 ? 1 : 8);
}

WORLD_TEST(has_the_bits_of_the_tree)
{
    at = t;
    where = shape;
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

/* ---- what an exchange sends ---- */

/* Whether rank `rank` of comm is of this rank's node. */
static int is_neighbour(MPI_Comm comm, int rank)
{
    MPI_Group world, node;
    int number;

    MPI_Comm_group(comm, &world);
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
    to_neighbours += is_neighbour(comm, to);
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

/* The closed form of sums.c: what all ranks of this node send together, gradients and metrics. */
static void count_node(const char *name, int n)
{
    enum { FLOATS = 16 * 60 }; /* divided evenly by each number of nodes */
    struct sums s;
    int ours[MOST] = {0};
    unsigned long sent;
    size_t k, nodes = (size_t)at->inter_size;

    open_sums(&s, name, n, FLOATS);
    for (int m = cmn_sum_tree_first(n, top.rank, top.size);
         m < cmn_sum_tree_first(n, top.rank + 1, top.size); m++) {
        cmn_accumulation_add(s.accumulation, s.x.block.data);
        ours[m] = 1;
    }
    MPI_Allreduce(MPI_IN_PLACE, ours, MOST, MPI_INT, MPI_SUM, at->intra);
    k = subtrees_of(ours, 0, n);
    messages = bytes = 0;
    to_neighbours = 0;
    cmn_accumulation_end_step(s.accumulation);
    s.by->allreduce(s.self, &s.x);
    CHECK_SAYING(!to_neighbours, "nodes %s: ranks of a node send each other", where);
    CHECK_SAYING(strcmp(name, "hierarchical") || at->intra_rank == 0 || !messages,
                 "nodes %s: rank %d of a node sends, too", where, at->intra_rank);
    sent = bytes;
    MPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_UNSIGNED_LONG, MPI_SUM, at->intra);
    /* Slices end at multiples of 16, so the metrics, 16 floats, are one node's; */
    if (nodes > 1 && at->inter_rank > 0) {
        unsigned long least = (nodes - 1) * 4 * FLOATS / nodes * (k + 1);
        CHECK_SAYING(sent >= least && sent <= least + 4 * METRICS * (nodes * (k + 1)),
                     "nodes %s, %s, %d micro-batches: %lu bytes of %zu subtrees, not %lu", where,
                     name, n, sent, k, least);
    }
    CHECK(nodes > 1 || !sent);
    close_sums(&s);
}

WORLD_TEST(nodes_send_what_it_says)
{
    at = t;
    where = shape;
    for (int n = 1; n <= MOST; n = next_count(n)) {
        count_node("two_dimensional", n);
        count_node("hierarchical", n);
    }
}

/* A step ends with all of its micro-batches. */
RANK_TEST(misses_no_micro_batch)
{
    enum { FLOATS = 160 };
    struct sums s;

    at = &top;
    open_sums(&s, "shm", 2 * top.size, FLOATS);
    cmn_accumulation_add(s.accumulation, s.x.block.data);
    assert_fatal(cmn_accumulation_end_step(s.accumulation),
                 "1 micro-batches of this rank are missing");
    cmn_accumulation_add(s.accumulation, s.x.block.data);
    assert_fatal(cmn_accumulation_add(s.accumulation, s.x.block.data), "a micro-batch too many");
    close_sums(&s);
}

/* Each has a rank, in order, and no rank has two more than another. */
RANK_TEST(deals_out_all_micro_batches)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        for (int n = 1; n <= MOST; n++) {
            int first = cmn_sum_tree_first(n, 0, ranks);
            CHECK(first == 0);
            for (int rank = 0, end; rank < ranks; rank++, first = end) {
                end = cmn_sum_tree_first(n, rank + 1, ranks);
                CHECK_SAYING(end - first >= n / ranks && end - first <= (n + ranks - 1) / ranks,
                             "rank %d of %d has %d of %d", rank, ranks, end - first, n);
            }
            CHECK(first == n);
        }
    }
}

RANK_TESTS(NULL, NULL)
