/* A compressor at work, for the tests of compressors. */
#ifndef TESTS_RANKS_COMPRESSORS_H
#define TESTS_RANKS_COMPRESSORS_H

#include "ranks/ranks.h"

#include <math.h>

#include "compression/compressor.h"

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

static inline void open_compressor(struct work *w)
{
    w->ended = 0;
    w->self = w->compressor->open(&w->plan);
}

static inline void make_work(struct work *w, const struct cmn_compressor *compressor,
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
    open_compressor(w);
}

static inline void end_work(struct work *w)
{
    w->compressor->close(w->self);
    cmn_shards_close(&w->shards);
    free(w->block);
}

/* Collective. One exchange of what is in the block. */
static inline void step(struct work *w)
{
    for (int i = 0; i < w->shards.shards; i++) {
        w->compressor->begin(w->self, i);
    }
    w->ended += w->shards.shards;
    CHECK_SAYING(w->compressor->progress(w->self, w->ended) == w->ended, "%s", w->compressor->name);
}

/* Numbers that depend on `seed` alone, mostly small, a few large, as gradients are. */
static inline void fill_random(struct work *w, uint64_t seed)
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
static inline float carried(const struct cmn_span *tensor, size_t i, int rank, int turn)
{
    size_t columns = tensor->rows > 1 ? tensor->n / (size_t)tensor->rows : 50, row = i / columns;

    return row % 4 == (size_t)(rank + turn) % 4
               ? (float)((int)(i % columns % 7) - 3) * (float)(row % 3 + 1) * (float)(rank + 1)
               : 0;
}

static inline void fill_carried(struct work *w, int turn)
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

static inline void check_carried(const struct work *w, int turn)
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

/* Runs `test` for every compressor. */
static inline void for_all(void (*test)(const struct cmn_compressor *compressor))
{
    const struct cmn_compressor *compressor;

    for (int i = 0; (compressor = cmn_compressor_at(i)); i++) {
        test(compressor);
    }
}

/* OF_EACH(name) { … } is a test of each `compressor`. */
#define OF_EACH(test)                                          \
    static void test(const struct cmn_compressor *compressor); \
    RANK_TEST(test##_of_each)                                  \
    {                                                          \
        for_all(test);                                         \
    }                                                          \
    static void test(const struct cmn_compressor *compressor)

#endif
