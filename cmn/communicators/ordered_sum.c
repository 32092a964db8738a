#include "communicators/ordered_sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "communicators/node_groups.h"
#include "communicators/ordered_levels.h"
#include "communicators/ordered_tree.h"

/* A rank has fewer nodes than twice the bits of a count. */
enum { NODES = 64 };

struct cmn_ordered_sum {
    const struct cmn_topology *topology;
    struct cmn_topology alone; /* each rank a node of its own: all send to all */
    size_t floats;
    int *deal;            /* each rank's first micro-batch, and the end */
    int first, next, end; /* micro-batch of this rank: the step's first one, the next one */
    struct cmn_subtree own[NODES];
    float *memory[NODES]; /* for own[i]; NULL until it is needed */
    float *at[NODES]; /* where own[i] lies: there, or where the last micro-batch's gradient does */
    int owns;
    size_t filled; /* floats of the step's last micro-batch that are added up */
    int begun;     /* other ranks may have added and sent some of them */

    struct cmn_ordered_levels *levels; /* over the nodes, or over `alone` */
    int shared;                        /* memory[] is the levels' */
};

int cmn_ordered_sum_first(int micro_batches, int rank, int ranks)
{
    int busy = ranks < micro_batches ? ranks : micro_batches;

    return rank < busy ? (int)((long)micro_batches * rank / busy) : micro_batches;
}

/* ---- whose micro-batches ---- */

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

static void send_to_all(struct cmn_ordered_sum *s)
{
    static const struct cmn_options none = {.overlap = CMN_OVERLAP_OFF};

    /* Nothing is shared, so nothing can be lacking. */
    if (cmn_ordered_levels_open(&s->levels, &s->alone, &none, 0, s->deal, s->floats)) {
        cmn_fatal_reason();
    }
}

static void take_deal(struct cmn_ordered_sum *s, const int *first)
{
    const struct cmn_topology *t = s->topology;

    memcpy(s->deal, first, ((size_t)t->size + 1) * sizeof *first);
    s->first = s->next = first[t->rank];
    s->end = first[t->rank + 1];
}

int cmn_ordered_sum_divide(struct cmn_ordered_sum *s, const int *first)
{
    size_t bytes = ((size_t)s->topology->size + 1) * sizeof *first;
    int result;

    if (!memcmp(s->deal, first, bytes)) {
        return 0;
    }
    take_deal(s, first);
    result = cmn_ordered_levels_divide(s->levels, first);
    if (result) {
        end_levels(s);
        send_to_all(s);
    }
    take_shared_memory(s);
    return result;
}

struct cmn_ordered_sum *cmn_ordered_sum_open(const struct cmn_topology *t, int micro_batches,
                                             size_t floats)
{
    struct cmn_ordered_sum *s = cmn_calloc(1, sizeof *s);
    int *first = cmn_calloc((size_t)t->size + 1, sizeof *first);

    s->topology = t;
    s->alone = cmn_node_groups_alone(t);
    s->floats = floats;
    s->deal = cmn_calloc((size_t)t->size + 1, sizeof *s->deal);
    for (int rank = 0; rank <= t->size; rank++) {
        first[rank] = cmn_ordered_sum_first(micro_batches, rank, t->size);
    }
    take_deal(s, first);
    free(first);
    send_to_all(s);
    return s;
}

int cmn_ordered_sum_share(struct cmn_ordered_sum *s, const struct cmn_options *options,
                          int first_alone)
{
    struct cmn_ordered_levels *shared;

    if (cmn_ordered_levels_open(&shared, s->topology, options, first_alone, s->deal, s->floats)) {
        return -1;
    }
    end_levels(s);
    s->levels = shared;
    take_shared_memory(s);
    return 0;
}

const char *cmn_ordered_sum_how(const struct cmn_ordered_sum *s)
{
    return s->topology->size == 1 ? NULL : cmn_ordered_levels_how(s->levels);
}

void cmn_ordered_sum_close(struct cmn_ordered_sum *s)
{
    if (!s) {
        return;
    }
    end_levels(s);
    free(s->deal);
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
    if (s->owns == 0 && s->filled == 0) {
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
    cmn_ordered_levels_poll(s->levels);
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

void cmn_ordered_sum_complete(struct cmn_ordered_sum *s, float *sum)
{
    if (s->next != s->end) {
        cmn_fatal("cmn_exact: %d micro-batches of this step are added up, and its next one is "
                  "missing: an error of the program",
                  s->next - s->first);
    }
    cmn_ordered_levels_complete(s->levels, s->at, sum);
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
