#include "trainer/recompute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "engine/inference.h"
#include "engine/recurrent_state.h"
#include "mpi/call.h"

enum { TAG = 1 };

static const struct cmn_topology *topology(const struct cmn_recompute *r)
{
    return &r->feed->session->topology;
}

/* ---- this rank's own ---- */

/* Of this rank's micro-batches of this step; -1 where it has none. */
static int draw(const struct cmn_recompute *r)
{
    uint64_t number = cmn_random_hash(r->feed->session->seed, (uint64_t)r->iteration,
                                      (uint64_t)topology(r)->rank, CMN_RANDOM_MICRO_BATCH);

    return r->feed->share.spare ? -1 : (int)(number % (uint64_t)r->feed->share.micro_batches);
}

/* Its number in the step; -1 without one. */
static int number_of_drawn(const struct cmn_recompute *r)
{
    return r->drawn < 0 ? -1 : r->feed->share.first + r->drawn;
}

/* Input and labels, and behind them what its recurrent layers begin with. */
static size_t floats(const struct cmn_recompute *r)
{
    return cmn_net_batch_floats(r->model->net) + cmn_recurrent_state_floats(r->model->net);
}

void cmn_recompute_begin_step(struct cmn_recompute *r, long iteration, size_t seen)
{
    long every = r->feed->session->options.verify;

    r->iteration = iteration;
    r->seen = seen;
    r->due = every && iteration % every == 0 && cmn_feed_exact(r->feed) && topology(r)->size > 1;
    r->drawn = r->due ? draw(r) : -1;
}

void cmn_recompute_before_micro_batch(struct cmn_recompute *r, int i)
{
    if (i == r->drawn) {
        r->batch = cmn_malloc(floats(r), sizeof *r->batch);
        cmn_net_copy_batch(r->model->net, r->batch);
        cmn_recurrent_state_copy(r->model->net, r->batch + cmn_net_batch_floats(r->model->net));
    }
}

static uint64_t hash_result(const struct cmn_recompute *r)
{
    const struct cmn_gradients *g = &r->model->gradients;
    const struct cmn_span *block = &g->exchange.block;
    float loss = cmn_net_loss(r->model->net), *host = NULL;
    uint64_t hash;

    if (g->on_gpu) {
        host = cmn_malloc(block->n + 1, sizeof *host);
        g->ops->read(host, block->data, block->n);
    }
    hash = XXH3_64bits_withSeed(host ? host : block->data, block->n * sizeof *block->data,
                                XXH3_64bits(&loss, sizeof loss));
    free(host);
    return hash;
}

void cmn_recompute_after_micro_batch(struct cmn_recompute *r, int i)
{
    if (i == r->drawn) {
        r->hash = hash_result(r);
    }
}

/* ---- another rank's ---- */

static uint64_t recompute(struct cmn_recompute *r, float *batch, int number)
{
    const struct cmn_gradients *g = &r->model->gradients;
    const struct cmn_span *block = &g->exchange.block;
    uint64_t hash;
    float *state;

    cmn_status_compute("a micro-batch of another rank");
    cmn_feed_seed_micro_batch(r->seen, number);
    state = cmn_recurrent_state_clear(r->model->net);
    cmn_recurrent_state_set(r->model->net, batch + cmn_net_batch_floats(r->model->net));
    r->runs = 1;
    cmn_net_learn(r->model->net, batch, r->seen,
                  r->seen + (size_t)(number + 1) * (size_t)r->feed->share.seen_each);
    r->runs = 0;
    cmn_recurrent_state_restore(r->model->net, state);
    cmn_random_common();
    hash = hash_result(r);
    g->ops->zero(block->data, block->n);
    return hash;
}

/* Each rank's batch goes to the next one, which may be idle; 0 comes of one that has none. */
static uint64_t recompute_before(struct cmn_recompute *r)
{
    const struct cmn_topology *t = topology(r);
    int from = (t->rank + t->size - 1) % t->size, to = (t->rank + 1) % t->size, n = (int)floats(r);
    int mine = number_of_drawn(r), number;
    float *batch;
    uint64_t hash = 0;

    MPI_CALL(MPI_Sendrecv(&mine, 1, MPI_INT, to, TAG, &number, 1, MPI_INT, from, TAG, t->world,
                          MPI_STATUS_IGNORE));
    batch = number < 0 ? NULL : cmn_malloc((size_t)n, sizeof *batch);
    MPI_CALL(MPI_Sendrecv(r->batch, r->batch ? n : 0, MPI_FLOAT, to, TAG, batch, batch ? n : 0,
                          MPI_FLOAT, from, TAG, t->world, MPI_STATUS_IGNORE));
    if (batch) {
        hash = recompute(r, batch, number);
    }
    free(batch);
    return hash;
}

/* The lowest rank that is neither. */
static int third_of(int a, int b)
{
    int third = 0;

    while (third == a || third == b) {
        third++;
    }
    return third;
}

/* The third rank computes the micro-batch of rank `whose`; all ranks get the hash. */
static uint64_t ask_third(struct cmn_recompute *r, int third, int whose, int number)
{
    const struct cmn_topology *t = topology(r);
    int n = (int)floats(r);
    uint64_t hash = 0;

    if (t->rank == whose) {
        MPI_CALL(MPI_Send(r->batch, n, MPI_FLOAT, third, TAG, t->world));
    }
    if (t->rank == third) {
        float *batch = cmn_malloc((size_t)n, sizeof *batch);
        MPI_CALL(MPI_Recv(batch, n, MPI_FLOAT, whose, TAG, t->world, MPI_STATUS_IGNORE));
        hash = recompute(r, batch, number);
        free(batch);
    }
    cmn_status_wait("a third rank's opinion");
    MPI_CALL(MPI_Bcast(&hash, 1, MPI_UINT64_T, third, t->world));
    return hash;
}

/* ---- who is wrong ---- */

struct result {
    uint64_t own, other; /* hashes: of this rank's micro-batch, and of the rank before's */
    int number;          /* of this rank's; -1: it has none */
};

struct name {
    char host[sizeof((struct cmn_topology *)0)->host];
};

static struct name *gather_names(const struct cmn_topology *t)
{
    struct name *all = cmn_calloc((size_t)t->size, sizeof *all), here = {""};

    memcpy(here.host, t->host, sizeof here.host);
    MPI_CALL(MPI_Allgather(&here, sizeof here, MPI_BYTE, all, sizeof here, MPI_BYTE, t->world));
    return all;
}

static int say_both(const struct cmn_recompute *r, const struct result *all,
                    const struct name *name, int a, int b, const char *why)
{
    return cmn_fail("iteration %ld: rank %d@%s and rank %d@%s compute other bits from the same "
                    "micro-batch (%d), and %s: suspect memory or processor of both",
                    r->iteration, a, name[a].host, b, name[b].host, all[a].number, why);
}

/* Rank b has recomputed a's micro-batch, and its result is another one. */
static int name_wrong(struct cmn_recompute *r, const struct result *all, const struct name *name,
                      int a, int b)
{
    int third = third_of(a, b), wrong, right;
    uint64_t hash;

    if (topology(r)->size < 3) {
        return say_both(r, all, name, a, b, "two ranks cannot tell which of them is wrong");
    }
    hash = ask_third(r, third, a, all[a].number);
    if (hash != all[a].own && hash != all[b].other) {
        return say_both(r, all, name, a, b, "a third one agrees with neither");
    }
    wrong = hash == all[a].own ? b : a;
    right = hash == all[a].own ? a : b;
    return cmn_fail("iteration %ld: rank %d@%s computes other bits from micro-batch %d than rank "
                    "%d@%s and rank %d@%s: suspect its memory or processor",
                    r->iteration, wrong, name[wrong].host, all[a].number, right, name[right].host,
                    third, name[third].host);
}

static int compare(struct cmn_recompute *r, uint64_t other)
{
    const struct cmn_topology *t = topology(r);
    struct result *all = cmn_calloc((size_t)t->size, sizeof *all);
    struct result here = {r->hash, other, number_of_drawn(r)};
    struct name *name = NULL;
    int failed = 0;

    MPI_CALL(MPI_Allgather(&here, sizeof here, MPI_BYTE, all, sizeof here, MPI_BYTE, t->world));
    for (int a = 0; a < t->size && !failed; a++) {
        int b = (a + 1) % t->size;
        if (all[a].number >= 0 && all[a].own != all[b].other) {
            name = gather_names(t);
            failed = name_wrong(r, all, name, a, b);
        }
    }
    free(name);
    free(all);
    return failed;
}

int cmn_recompute_compare(struct cmn_recompute *r)
{
    uint64_t other;
    int failed;

    if (!r->due) {
        return 0;
    }
    cmn_status_wait("a micro-batch of another rank");
    other = recompute_before(r);
    cmn_status_wait("the comparison of a micro-batch");
    failed = compare(r, other);
    cmn_recompute_close(r);
    return failed;
}

void cmn_recompute_close(struct cmn_recompute *r)
{
    free(r->batch);
    r->batch = NULL;
}
