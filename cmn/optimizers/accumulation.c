#include "optimizers/accumulation.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "transports/sum_tree.h"

/* A rank has fewer subtrees than twice the number of bits of an int. */
enum { SUMS = 64 };

struct cmn_accumulation {
    const struct cmn_topology *topology;
    const struct cmn_communicator *communicator;
    void *self;
    size_t floats;
    int *deal;          /* [rank]: its first micro-batch; [size]: their number */
    int next, end;      /* this rank's next micro-batch, and the end of its range */
    float *sum[SUMS];   /* `sums` places */
    float *owned[SUMS]; /* [i]: memory to free that begins with sum[i], or NULL */
    int sums;
    struct cmn_subtree own[SUMS]; /* own[i] is the subtree whose sum lies in sum[i] */
    int owns;
    struct cmn_addends addends;
};

/* Gives each rank room for the largest number of sums that any rank needs: memory of the
 * communicator must lie at the same place on all ranks. */
static void make_room(struct cmn_accumulation *a)
{
    const struct cmn_communicator *c = a->communicator;
    size_t stride = (a->floats + 15) / 16 * 16;
    int had = a->sums, room = had;
    float *memory = NULL;

    for (int rank = 0; rank < a->topology->size; rank++) {
        int most = cmn_sum_tree_most(a->deal[rank], a->deal[rank + 1]);
        room = most > room ? most : room;
    }
    if (room == had) {
        return;
    }
    if (c->memory && c->memory(a->self, (size_t)(room - had) * stride, &memory)) {
        cmn_fatal_reason();
    }
    memory = memory ? memory : (a->owned[had] = cmn_alloc_floats((size_t)(room - had) * stride));
    for (int i = had; i < room; i++) {
        a->sum[i] = memory + (size_t)(i - had) * stride;
    }
    a->sums = room;
}

void cmn_accumulation_deal(struct cmn_accumulation *a, const int *deal)
{
    const struct cmn_topology *t = a->topology;

    memcpy(a->deal, deal, ((size_t)t->size + 1) * sizeof *deal);
    a->next = deal[t->rank];
    a->end = deal[t->rank + 1];
    make_room(a);
}

struct cmn_accumulation *cmn_accumulation_open(const struct cmn_topology *t,
                                               const struct cmn_communicator *c, void *self,
                                               int micro_batches, size_t floats)
{
    struct cmn_accumulation *a = cmn_calloc(1, sizeof *a);
    int *deal = cmn_calloc((size_t)t->size + 1, sizeof *deal);

    a->topology = t;
    a->communicator = c;
    a->self = self;
    a->floats = floats;
    a->deal = cmn_calloc((size_t)t->size + 1, sizeof *a->deal);
    a->addends = (struct cmn_addends){.deal = a->deal, .sum = a->sum};
    for (int rank = 0; rank <= t->size; rank++) {
        deal[rank] = cmn_sum_tree_first(micro_batches, rank, t->size);
    }
    cmn_accumulation_deal(a, deal);
    free(deal);
    return a;
}

const struct cmn_addends *cmn_accumulation_addends(const struct cmn_accumulation *a)
{
    return &a->addends;
}

int cmn_accumulation_idle(const struct cmn_accumulation *a)
{
    int idle = 0;

    for (int rank = 0; rank < a->topology->size; rank++) {
        idle += a->deal[rank] == a->deal[rank + 1];
    }
    return idle;
}

/* Adds x like 1 to a binary counter: two subtrees of one size become their parent, which may then
 * join the one before it. All of these are added in one pass, because (x + a) + b has the same bits
 * as b + (a + x). */
void cmn_accumulation_add(struct cmn_accumulation *a, float *x)
{
    struct cmn_subtree sum = {.first = a->next, .n = 1};
    float *added[SUMS + 1] = {x};
    int n = 1, i = a->owns;

    if (a->next == a->end) {
        cmn_fatal("cmn_exact: a micro-batch too many in a step: an error of the program");
    }
    if (++a->next == a->end) {
        return;
    }
    for (; i > 0 && a->own[i - 1].n == sum.n && a->own[i - 1].first % (2 * sum.n) == 0; i--) {
        added[n++] = a->sum[i - 1];
        sum.first = a->own[i - 1].first;
        sum.n *= 2;
    }
    cmn_reduce_away(a->sum[i], added, n, a->floats);
    a->own[i] = sum;
    a->owns = i + 1;
}

void cmn_accumulation_end_step(struct cmn_accumulation *a)
{
    if (a->next != a->end) {
        cmn_fatal("cmn_exact: %d micro-batches of this rank are missing in a step: an error of the "
                  "program",
                  a->end - a->next);
    }
    a->next = a->deal[a->topology->rank];
    a->owns = 0;
}

void cmn_accumulation_close(struct cmn_accumulation *a)
{
    for (int i = 0; a && i < SUMS; i++) {
        free(a->owned[i]);
    }
    if (a) {
        free(a->deal);
    }
    free(a);
}
