/* Every compressor over all ranks: what is asked of all of them alike. (That a training continues
 * from what a compressor keeps: tests/ranks/hooks/combinations.c. Which shards are exact:
 * tests/unit/compression.) */
#include "ranks/ranks.h"

#include <math.h>

#include "compression/compressor.h"
#include "mpi/group.h"

enum { MOST = 64, METRICS = 16 };

/* A compressor at work on a block. */
struct work {
    const struct cmn_compressor *compressor;
    void *self;
    struct cmn_compressor_plan plan;
    struct cmn_shards shards;
    struct cmn_span tensor[MOST];
    int tensors;
    size_t floats;
    float *block;
    long ended;
};

struct form {
    size_t n;
    int rows;
};

static void make_work(struct work *w, const struct cmn_compressor *compressor,
                      const struct form *form, int forms)
{
    size_t at[MOST], total = 0;

    *w = (struct work){.compressor = compressor, .tensors = forms};
    for (int i = 0; i < forms; i++) {
        at[i] = total;
        total += (form[i].n + 15) / 16 * 16;
    }
    w->floats = total + METRICS;
    w->block = calloc(w->floats, sizeof *w->block);
    for (int i = 0; i < forms; i++) {
        w->tensor[i] = (struct cmn_span){w->block + at[i], form[i].n, form[i].rows};
    }
    cmn_shards_open(&w->shards, w->tensor, forms, &(struct cmn_span){.data = w->block, .n = total},
                    METRICS, 1, compressor->whole_tensors);
    w->plan = (struct cmn_compressor_plan){.comm = top.world,
                                           .topology = &top,
                                           .options = &options,
                                           .shard = w->shards.shard,
                                           .shards = w->shards.shards,
                                           .block = w->block};
    w->self = compressor->open(&w->plan);
}

static void end_work(struct work *w)
{
    w->compressor->close(w->self);
    cmn_shards_close(&w->shards);
    free(w->block);
}

/* Collective. One exchange of what is in the block. */
static void step(struct work *w)
{
    for (int i = 0; i < w->shards.shards; i++) {
        w->compressor->begin(w->self, i);
    }
    w->ended += w->shards.shards;
    CHECK_SAYING(w->compressor->progress(w->self, w->ended) == w->ended, "%s", w->compressor->name);
}

/* Numbers that depend on `seed` alone, mostly small, a few large, as gradients are. */
static void fill_random(struct work *w, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;

    memset(w->block, 0, w->floats * sizeof *w->block);
    for (int t = 0; t < w->tensors; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            float x = (float)((double)(state >> 11) / 4503599627370496.0 - 1);
            w->tensor[t].data[i] = x * x * x;
        }
    }
}

/* Inputs that each compressor carries: sparse, of rank 1, and small integers. So their sums are
 * known in closed form. Element i of a tensor: one row of four is not zero; which, depends on the
 * rank. */
static float carried(const struct cmn_span *tensor, size_t i, int rank, int turn)
{
    size_t columns = tensor->rows > 1 ? tensor->n / (size_t)tensor->rows : 50, row = i / columns;

    return row % 4 == (size_t)(rank + turn) % 4
               ? (float)((int)(i % columns % 7) - 3) * (float)(row % 3 + 1) * (float)(rank + 1)
               : 0;
}

static void fill_carried(struct work *w, int turn)
{
    for (int t = 0; t < w->tensors; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            w->tensor[t].data[i] = carried(&w->tensor[t], i, top.rank, turn);
        }
    }
    for (size_t i = 0; i < METRICS; i++) {
        w->block[w->floats - METRICS + i] = 123457.0F * (float)(top.rank + 1) + (float)i;
    }
}

static void check_carried(const struct work *w, int turn)
{
    float slack = strcmp(w->compressor->name, "powersgd") ? 0 : 1e-3F;

    for (int t = 0; t < w->tensors; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            float want = 0, is = w->tensor[t].data[i];
            for (int rank = 0; rank < top.size; rank++) {
                want += carried(&w->tensor[t], i, rank, turn);
            }
            CHECK_SAYING(fabsf(is - want) <= slack, "%s, tensor %d, turn %d, at %zu: %g, not %g",
                         w->compressor->name, t, turn, i, (double)is, (double)want);
        }
    }
    for (size_t i = 0; i < METRICS; i++) {
        float is = w->block[w->floats - METRICS + i], want = 0;
        for (int rank = 0; rank < top.size; rank++) {
            want += 123457.0F * (float)(rank + 1) + (float)i;
        }
        CHECK_SAYING(is == want, "%s, metrics: %g, not %g", w->compressor->name, (double)is,
                     (double)want);
    }
}

/* OF_EACH(name) { … } is a test of each `compressor`. */
#define OF_EACH(test)                                          \
    static void test(const struct cmn_compressor *compressor); \
    RANK_TEST(test##_of_each)                                  \
    {                                                          \
        for (int i = 0; cmn_compressor_at(i); i++) {           \
            test(cmn_compressor_at(i));                        \
        }                                                      \
    }                                                          \
    static void test(const struct cmn_compressor *compressor)

/* Small ones, matrices of several forms, a large vector, none at all. */
static const struct form few[] = {{10, 0},         {64 * 100, 64}, {300, 0},     {200 * 350, 200},
                                  {40 * 1000, 40}, {66000, 0},     {4096, 4096}, {4100, 1}};

/* A step in which this rank polls now and then, at times of its own. */
static void step_in_pieces(struct work *w, unsigned *random)
{
    const struct cmn_compressor *c = w->compressor;
    long begun = w->ended, before = w->ended;

    for (int i = 0; i < w->shards.shards; i++) {
        c->begin(w->self, i);
        begun++;
        *random = *random * 1664525U + 1013904223U;
        if (*random >> 30 == 0) {
            long until = *random >> 28 == 0 ? begun - (*random >> 20) % 8 : 0;
            long ended = c->progress(w->self, until);
            CHECK_SAYING(ended >= before && ended <= begun && ended >= until,
                         "%s: %ld of %ld, before %ld, asked for %ld", c->name, ended, begun, before,
                         until);
            before = ended;
        }
        if (*random >> 29 == 1) {
            usleep(*random % 1000);
        }
    }
    w->ended = begun;
    CHECK_SAYING(c->progress(w->self, begun) == begun, "%s", c->name);
}

/* powersgd: the directions in which all ranks look are the same, else a sum of what they see means
 * nothing. */
static void check_directions(const struct work *w)
{
    struct cmn_state state;

    for (int i = 0; w->compressor->state(w->self, i, &state); i++) {
        CHECK(!strstr(state.name, "directions") || same_everywhere(state.data, state.bytes));
    }
}

/* Few shards, and many in flight. */
OF_EACH(carries)
{
    struct form many[MOST];
    unsigned random = (unsigned)top.rank + 1;

    for (int i = 0; i < MOST; i++) {
        many[i] = (struct form){i % 5 ? 50 * (size_t)(100 + 37 * i % 301) : 130,
                                i % 5 ? 100 + 37 * i % 301 : 0};
    }
    for (int are_many = 0; are_many < 2; are_many++) {
        struct work w;
        make_work(&w, compressor, are_many ? many : few, are_many ? MOST : (int)COUNT(few));
        step(&w); /* first nothing at all: no direction may be lost by that */
        check_directions(&w);
        for (int turn = 0; turn < 4; turn++) {
            fill_carried(&w, turn);
            step_in_pieces(&w, &random);
            check_carried(&w, turn);
            check_directions(&w);
        }
        end_work(&w);
    }
}

/* What all ranks have with these seeds is added to `all`; the block then holds this rank's. */
static void give(struct work *w, uint64_t seed, double *all)
{
    for (int rank = 0; rank < top.size; rank++) {
        fill_random(w, seed + (uint64_t)rank);
        for (size_t i = 0; i < w->floats; i++) {
            all[i] += (double)w->block[i];
        }
    }
    fill_random(w, seed + (uint64_t)top.rank);
}

/* What is not sent is sent later: with gradients of zero nothing is left over after a while, and
 * all has come. */
static void send_all(const struct cmn_compressor *compressor)
{
    static const struct form small[] = {{24 * 300, 24}, {20, 0}, {5000, 0}, {300 * 20, 300}};
    struct work w;
    double *given, *got, worst = 0;

    make_work(&w, compressor, small, COUNT(small));
    given = calloc(w.floats, sizeof *given);
    got = calloc(w.floats, sizeof *got);
    for (int s = 0; s < 24; s++) {
        if (s < 6) {
            give(&w, (uint64_t)(s * 16), given);
        } else {
            memset(w.block, 0, w.floats * sizeof *w.block);
        }
        step(&w);
        for (size_t i = 0; i < w.floats; i++) {
            got[i] += (double)w.block[i];
        }
    }
    for (size_t i = 0; i < w.floats; i++) {
        worst = fmax(worst, fabs(given[i] - got[i]));
    }
    CHECK_SAYING(worst < 1e-4, "%s, exchange %ld: %g is missing", compressor->name,
                 (long)options.exchange, worst);
    free(given);
    free(got);
    end_work(&w);
}

OF_EACH(loses_nothing)
{
    for (options.exchange = CMN_EXCHANGE_AUTO; options.exchange <= CMN_EXCHANGE_RING;
         options.exchange++) {
        send_all(compressor);
    }
    options.exchange = CMN_EXCHANGE_AUTO;
}

/* Rank `rank` has `count` values that are not finite, from the one at `at` on. They arrive, and
 * all others come sooner or later: in a step without gradients nothing is left of what was not
 * finite. */
static void shows(const struct cmn_compressor *compressor, float bad, size_t at, size_t count,
                  int rank)
{
    static const struct form form = {32 * 200, 32};
    int exact = strcmp(compressor->name, "powersgd") != 0, there = 0;
    size_t from = exact ? at : at / 200 * 200,
           to = exact ? at + count : (at + count + 199) / 200 * 200;
    double *missing, worst = 0;
    struct work w;

    make_work(&w, compressor, &form, 1);
    missing = calloc(w.floats, sizeof *missing);
    give(&w, 0, missing);
    for (size_t i = at; i < at + count && top.rank == rank; i++) {
        w.block[i] = bad;
    }
    for (int s = 0; s < 16; s++) {
        step(&w);
        for (size_t i = 0; i < form.n; i++) {
            int finite = isfinite(w.block[i]);
            there += !finite;
            CHECK_SAYING(finite || (s == 0 && i >= from && i < to), "%s: %g at %zu in step %d",
                         compressor->name, (double)w.block[i], i, s);
            missing[i] -= finite ? (double)w.block[i] : 0;
        }
        CHECK_SAYING(same_everywhere(w.block, w.floats * sizeof *w.block), "%s: not the same bits",
                     compressor->name);
        memset(w.block, 0, w.floats * sizeof *w.block);
    }
    for (size_t i = 0; i < form.n; i++) {
        worst = i >= at && i < at + count ? worst : fmax(worst, fabs(missing[i]));
    }
    CHECK_SAYING(there > 0, "%s: %g is hidden", compressor->name, (double)bad);
    CHECK_SAYING(worst < 1e-4, "%s: beside %g %g is missing", compressor->name, (double)bad, worst);
    free(missing);
    end_work(&w);
}

OF_EACH(shows_what_is_not_finite)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t i = 0; i < COUNT(bad); i++) {
        shows(compressor, bad[i], 0, 1, 0);
        shows(compressor, bad[i], 6399, 1, top.size - 1);
        shows(compressor, bad[i], 3333, 1500, top.size - 1);
        shows(compressor, bad[i], 0, 6400, 0);
    }
}

static const struct form forms_of_all_kinds[] = {
    {10, 0}, {64 * 100, 64}, {300, 0}, {200 * 350, 200}, {5000, 0}, {66000 * 2, 0}, {4096, 4096}};

/* Bytes that this rank sends in a sum of n values of `bytes`: its part of the others' slices, and
 * its own slice to each. */
static unsigned long long dense_bytes(size_t n, size_t bytes)
{
    size_t at, own;

    cmn_slice(n, top.size, top.rank, &at, &own);
    return (unsigned long long)(bytes * (n - own + (size_t)(top.size - 1) * own));
}

/* What docs and the tops of the files say. */
static unsigned long long documented(const char *name, const struct cmn_shard *shard)
{
    size_t rows = (size_t)shard->rows, rank = (size_t)options.compress_rank;
    size_t columns = rows ? shard->n / rows : 0;

    if (!strcmp(name, "powersgd") && !shard->exact && rows && (rows + columns) * rank < shard->n) {
        return dense_bytes(rows * rank, 4) + dense_bytes(columns * rank, 4);
    }
    return dense_bytes(shard->n, strstr(name, "16") && !shard->exact ? 2 : 4);
}

OF_EACH(sends_what_it_says)
{
    enum { STEPS = 8 };
    const long rank = options.compress_rank;
    unsigned long long want, is;
    struct work w;

    for (int turn = 0; turn < 2; turn++) {
        options.compress_rank = turn ? 1 : rank;
        make_work(&w, compressor, forms_of_all_kinds, COUNT(forms_of_all_kinds));
        want = 0;
        for (int i = 0; i < w.shards.shards; i++) {
            want += STEPS * documented(compressor->name, &w.shards.shard[i]);
        }
        for (int s = 0; s < STEPS; s++) {
            fill_random(&w, (uint64_t)(s * 16 + top.rank));
            step(&w);
        }
        is = compressor->sent(w.self);
        CHECK_SAYING(is == want, "%s: sent %llu bytes, not %llu", compressor->name, is, want);
        end_work(&w);
    }
    options.compress_rank = rank;
}

/* Rank 0 does not come. The others would end the job, and say why; when it comes after all, all
 * is summed. */
OF_EACH(does_not_wait_for_ever)
{
    struct work w;
    long timeout = options.timeout, ended;

    options.timeout = top.rank ? 1 : timeout;
    make_work(&w, compressor, forms_of_all_kinds, COUNT(forms_of_all_kinds));
    fill_carried(&w, 0);
    if (top.rank) {
        for (int i = 0; i < w.shards.shards; i++) {
            compressor->begin(w.self, i);
        }
        CHECK(compressor->progress(w.self, 0) == 0);
        CHECK_FATAL(compressor->progress(w.self, w.shards.shards), "nothing came from rank ", 1);
        CHECK_SAYING(strstr(check_message, "cmn_timeout"), "%s: %.500s", compressor->name,
                     check_message);
    }
    MPI_Barrier(top.world);
    options.timeout = timeout;
    if (top.rank == 0) {
        step(&w);
    }
    ended = 0;
    for (int i = 0; i < 600000 && ended < w.shards.shards; i++) {
        ended = compressor->progress(w.self, 0);
        usleep(100);
    }
    CHECK_SAYING(ended == w.shards.shards, "%s: %ld", compressor->name, ended);
    check_carried(&w, 0);
    MPI_Barrier(top.world);
    end_work(&w);
}

RANK_TESTS(NULL, NULL)
