#include "communicators/ordered_sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "communicators/ordered_levels.h"
#include "communicators/ordered_tree.h"
#include "mpi/call.h"

/* A rank has fewer nodes than twice the bits of a count. A chunk of the sums is exchanged at once:
 * it bounds the memory for other ranks' nodes. */
enum { NODES = 64, CHUNK = 1 << 20 };

struct cmn_ordered_sum {
    const struct cmn_topology *topology;
    int micro_batches;
    size_t floats;
    int *deal;            /* each rank's first micro-batch, and the end */
    int first, next, end; /* micro-batch of this rank: the step's first one, the next one */
    struct cmn_subtree own[NODES];
    float *memory[NODES]; /* for own[i]; NULL until it is needed */
    float *at[NODES]; /* where own[i] lies: there, or where the last micro-batch's gradient does */
    int owns;
    size_t filled; /* floats of the step's last micro-batch that are added up */
    int begun;     /* other ranks may have added and sent some of them */

    /* In two levels: all below is for messages between all ranks then; NULL: by them. */
    struct cmn_ordered_levels *levels;
    int shared; /* memory[] is the levels' */

    struct cmn_subtree *all; /* which all ranks have at the end of a step, in order */
    int nodes;
    float *
        received; /* a slice of a chunk of each node of other ranks; all[i].at is there, or this rank's own */
    MPI_Request *request;
    int *count, *place; /* of each rank's slice */
};

int cmn_ordered_sum_first(int micro_batches, int rank, int ranks)
{
    int busy = ranks < micro_batches ? ranks : micro_batches;

    return rank < busy ? (int)((long)micro_batches * rank / busy) : micro_batches;
}

static size_t slice_begin(const struct cmn_ordered_sum *s, size_t n, int rank)
{
    return n * (size_t)rank / (size_t)s->topology->size;
}

static size_t slice_floats(const struct cmn_ordered_sum *s, size_t n, int rank)
{
    return slice_begin(s, n, rank + 1) - slice_begin(s, n, rank);
}

/* ---- whose micro-batches ---- */

static void end_messages(struct cmn_ordered_sum *s)
{
    free(s->received);
    free(s->request);
    s->received = NULL;
    s->request = NULL;
}

static void prepare_messages(struct cmn_ordered_sum *s)
{
    const struct cmn_topology *t = s->topology;
    size_t most = (s->floats < CHUNK ? s->floats : CHUNK) / (size_t)t->size + 1;

    end_messages(s);
    s->nodes = 0;
    for (int rank = 0; rank < t->size; rank++) {
        s->nodes += cmn_subtrees_of_rank(s->all + s->nodes, rank, s->deal[rank], s->deal[rank + 1]);
    }
    s->received = t->size > 1 ? cmn_alloc_floats(most * (size_t)s->nodes) : NULL;
    s->request = cmn_calloc((size_t)s->nodes * (size_t)t->size, sizeof(MPI_Request));
}

static void release_memory(struct cmn_ordered_sum *s)
{
    for (int i = 0; i < NODES; i++) {
        if (!s->shared) {
            free(s->memory[i]);
        }
        s->memory[i] = NULL;
    }
    s->shared = 0;
}

static void take_shared_memory(struct cmn_ordered_sum *s)
{
    s->shared = cmn_ordered_levels_memory(s->levels, 0) != NULL;
    for (int i = 0; i < NODES && s->shared; i++) {
        s->memory[i] = cmn_ordered_levels_memory(s->levels, i);
    }
}

static void end_levels(struct cmn_ordered_sum *s)
{
    release_memory(s);
    cmn_ordered_levels_close(s->levels);
    s->levels = NULL;
}

int cmn_ordered_sum_divide(struct cmn_ordered_sum *s, const int *first)
{
    const struct cmn_topology *t = s->topology;
    size_t bytes = ((size_t)t->size + 1) * sizeof *first;
    int result = 0;

    if (!memcmp(s->deal, first, bytes)) {
        return 0;
    }
    memcpy(s->deal, first, bytes);
    s->first = s->next = first[t->rank];
    s->end = first[t->rank + 1];
    if (s->levels) {
        result = cmn_ordered_levels_divide(s->levels, first);
    }
    if (result) {
        end_levels(s);
    } else if (s->levels) {
        take_shared_memory(s);
    }
    if (!s->levels) {
        prepare_messages(s);
    }
    return result;
}

struct cmn_ordered_sum *cmn_ordered_sum_open(const struct cmn_topology *t, int micro_batches,
                                             size_t floats)
{
    struct cmn_ordered_sum *s = cmn_calloc(1, sizeof *s);
    int *first = cmn_calloc((size_t)t->size + 1, sizeof *first);

    s->topology = t;
    s->micro_batches = micro_batches;
    s->floats = floats;
    s->deal = cmn_calloc((size_t)t->size + 1, sizeof *s->deal);
    s->all = cmn_calloc((size_t)micro_batches + 1, sizeof *s->all);
    for (int rank = 0; rank <= t->size; rank++) {
        first[rank] = cmn_ordered_sum_first(micro_batches, rank, t->size);
    }
    cmn_ordered_sum_divide(s, first);
    free(first);
    s->count = cmn_calloc((size_t)t->size, sizeof *s->count);
    s->place = cmn_calloc((size_t)t->size, sizeof *s->place);
    return s;
}

int cmn_ordered_sum_share(struct cmn_ordered_sum *s, const struct cmn_options *options,
                          int first_alone)
{
    if (cmn_ordered_levels_open(&s->levels, s->topology, options, first_alone, s->deal,
                                s->floats)) {
        return -1;
    }
    end_messages(s);
    take_shared_memory(s);
    return 0;
}

const char *cmn_ordered_sum_how(const struct cmn_ordered_sum *s)
{
    if (s->topology->size == 1) {
        return NULL;
    }
    return s->levels ? cmn_ordered_levels_how(s->levels) : "by messages between all ranks";
}

void cmn_ordered_sum_close(struct cmn_ordered_sum *s)
{
    if (!s) {
        return;
    }
    end_levels(s);
    end_messages(s);
    free(s->deal);
    free(s->all);
    free(s->count);
    free(s->place);
    free(s);
}

/* ---- a rank's own ---- */

/* What a micro-batch is added to, and where their sum lies then: own[i]. */
struct merge {
    struct cmn_subtree node;
    float *added[NODES + 1];
    int n, i;
};

/* As in a counter: two nodes of a size become their parent, and that perhaps the next one. All are
 * added in one pass: (x + a) + b has the bits of b + (a + x). */
static struct merge next_merge(const struct cmn_ordered_sum *s, float *x)
{
    struct merge m = {{s->next, 1, s->topology->rank, NULL}, {x}, 1, s->owns};

    for (; m.i > 0 && s->own[m.i - 1].n == m.node.n && s->own[m.i - 1].first % (2 * m.node.n) == 0;
         m.i--) {
        m.added[m.n++] = s->memory[m.i - 1];
        m.node.first = s->own[m.i - 1].first;
        m.node.n *= 2;
    }
    if (s->levels && s->owns == 0 && s->filled == 0) {
        cmn_ordered_levels_wait(s->levels);
    }
    return m;
}

/* The floats up to there of the step's last micro-batch, which stays where it is. */
static void add_last(struct cmn_ordered_sum *s, struct merge *m, float *x, size_t upto)
{
    float *into = s->shared ? s->memory[m->i] : x;

    for (int i = 0; i < m->n; i++) {
        m->added[i] += s->filled;
    }
    if (s->shared || m->n > 1) {
        cmn_reduce(into + s->filled, m->added, m->n, 0, upto - s->filled);
    }
    s->at[m->i] = into;
    s->filled = upto;
}

void cmn_ordered_sum_fill(struct cmn_ordered_sum *s, float *x, size_t upto)
{
    struct merge m;

    upto = upto / 16 * 16;
    if (s->next + 1 == s->end && upto > s->filled) {
        m = next_merge(s, x);
        add_last(s, &m, x, upto);
        s->begun = 1;
        cmn_ordered_levels_filled(s->levels, s->at, x, upto);
    }
}

void cmn_ordered_sum_poll(struct cmn_ordered_sum *s)
{
    if (s->levels) {
        cmn_ordered_levels_poll(s->levels);
    }
}

void cmn_ordered_sum_add(struct cmn_ordered_sum *s, float *x)
{
    struct merge m = next_merge(s, x);

    s->next++;
    if (s->next == s->end) {
        add_last(s, &m, x, s->floats);
    } else {
        if (!s->memory[m.i]) {
            s->memory[m.i] = cmn_alloc_floats(s->floats);
        }
        cmn_reduce_away(s->memory[m.i], m.added, m.n, s->floats);
        s->at[m.i] = s->memory[m.i];
    }
    s->own[m.i] = m.node;
    s->owns = m.i + 1;
}

/* ---- between ranks ---- */

/* Each node's slice of this rank, of the n floats behind `at`: s->all[i].at. */
static void scatter(struct cmn_ordered_sum *s, size_t at, size_t n)
{
    const struct cmn_topology *t = s->topology;
    size_t begin = at + slice_begin(s, n, t->rank), mine = slice_floats(s, n, t->rank);
    float *room = s->received;
    int requests = 0, own = 0;

    for (int i = 0; i < s->nodes; i++) {
        const float *from;
        if (s->all[i].holder != t->rank) {
            s->all[i].at = room;
            MPI_CALL(MPI_Irecv(room, (int)mine, MPI_FLOAT, s->all[i].holder, i, t->world,
                               &s->request[requests++]));
            room += mine;
            continue;
        }
        from = s->at[own] + at;
        for (int rank = 0; rank < t->size; rank++) {
            if (rank != t->rank) {
                MPI_CALL(MPI_Isend(from + slice_begin(s, n, rank), (int)slice_floats(s, n, rank),
                                   MPI_FLOAT, rank, i, t->world, &s->request[requests++]));
            }
        }
        s->all[i].at = s->at[own++] + begin;
    }
    MPI_CALL(MPI_Waitall(requests, s->request, MPI_STATUSES_IGNORE));
}

static void gather(struct cmn_ordered_sum *s, float *sum, size_t n)
{
    for (int rank = 0; rank < s->topology->size; rank++) {
        s->count[rank] = (int)slice_floats(s, n, rank);
        s->place[rank] = (int)slice_begin(s, n, rank);
    }
    MPI_CALL(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sum, s->count, s->place, MPI_FLOAT,
                            s->topology->world));
}

static void add(float *into, float *const *both, size_t n)
{
    cmn_reduce(into, both, 2, 0, n);
}

static void complete_by_messages(struct cmn_ordered_sum *s, float *sum)
{
    int rank = s->topology->rank;

    for (size_t at = 0; at < s->floats; at += CHUNK) {
        size_t n = s->floats - at < CHUNK ? s->floats - at : CHUNK;
        size_t mine = slice_floats(s, n, rank);
        float *into = sum + at + slice_begin(s, n, rank), *there;
        struct cmn_subtree_sum up = {.next = s->all, .n = mine, .add = add};
        scatter(s, at, n);
        there = cmn_subtrees_add_up(&up, 0, s->micro_batches, into);
        if (there != into) {
            memcpy(into, there, mine * sizeof *into);
        }
        if (s->topology->size > 1) {
            gather(s, sum + at, n);
        }
    }
}

void cmn_ordered_sum_complete(struct cmn_ordered_sum *s, float *sum)
{
    if (s->next != s->end) {
        cmn_fatal("cmn_exact: %d micro-batches of this step are added up, and its next one is "
                  "missing: an error of the program",
                  s->next - s->first);
    }
    if (s->levels) {
        cmn_ordered_levels_complete(s->levels, s->at, sum);
    } else {
        complete_by_messages(s, sum);
    }
    s->begun = 0;
    cmn_ordered_sum_drop(s);
}

void cmn_ordered_sum_drop(struct cmn_ordered_sum *s)
{
    if (s->begun) {
        cmn_fatal(
            "cmn_exact: a step is left out whose sums the ranks exchange already: an error of "
            "the program");
    }
    s->owns = 0;
    s->filled = 0;
    s->next = s->first;
}
