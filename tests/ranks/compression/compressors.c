/* Every compressor over all ranks: what is asked of all of them alike. */
#include "compressors.h"

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
        for (int turn = 0; turn < 4; turn++) {
            fill_carried(&w, turn);
            step_in_pieces(&w, &random);
            check_carried(&w, turn);
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
OF_EACH(loses_nothing)
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
    CHECK_SAYING(worst < 1e-4, "%s: %g is missing", compressor->name, worst);
    free(given);
    free(got);
    end_work(&w);
}

/* The same gradient again and again: what has come is that gradient on the average, the more the
 * longer. */
OF_EACH(follows_a_constant)
{
    static const struct form small[] = {{40 * 150, 40}, {9000, 0}};
    double *want, *got, size = 0, off = 0;
    struct work w;
    int steps = 50;

    make_work(&w, compressor, small, COUNT(small));
    want = calloc(w.floats, sizeof *want);
    got = calloc(w.floats, sizeof *got);
    give(&w, 77, want);
    for (int s = 0; s < steps; s++) {
        fill_random(&w, (uint64_t)top.rank + 77);
        step(&w);
        for (size_t i = 0; i < w.floats; i++) {
            got[i] += (double)w.block[i] / steps;
        }
    }
    for (size_t i = 0; i < w.floats; i++) {
        size += want[i] * want[i];
        off += (want[i] - got[i]) * (want[i] - got[i]);
    }
    CHECK_SAYING(sqrt(off / size) < 0.2, "%s: after %d steps off by %g of it", compressor->name,
                 steps, sqrt(off / size));
    free(want);
    free(got);
    end_work(&w);
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

/* Three steps, a copy of the state, three more; they come out the same when begun from the copy. */
OF_EACH(continues_from_its_state)
{
    struct cmn_state state;
    struct work w;
    float *first;
    void *copy[8] = {0};

    make_work(&w, compressor, few, COUNT(few));
    first = malloc(3 * w.floats * sizeof *first);
    for (int s = 0; s < 9; s++) {
        if (s == 6) {
            compressor->close(w.self);
            open_compressor(&w);
        }
        for (int i = 0; (s == 3 || s == 6) && i < 8 && compressor->state(w.self, i, &state); i++) {
            CHECK(state.name && state.bytes);
            if (s == 3) {
                copy[i] = malloc(state.bytes);
            }
            memcpy(s == 3 ? copy[i] : state.data, s == 3 ? state.data : copy[i], state.bytes);
        }
        fill_random(&w, (uint64_t)((s < 6 ? s : s - 3) * 16 + top.rank));
        step(&w);
        CHECK_SAYING(same_everywhere(w.block, w.floats * sizeof *w.block),
                     "%s: not the same bits, step %d", compressor->name, s);
        if (s >= 3 && s < 6) {
            memcpy(first + (size_t)(s - 3) * w.floats, w.block, w.floats * sizeof *first);
        }
        CHECK_SAYING(
            s < 6 || !memcmp(first + (size_t)(s - 6) * w.floats, w.block, w.floats * sizeof *first),
            "%s: other bits after a restart, step %d", compressor->name, s);
    }
    for (int i = 0; i < 8; i++) {
        free(copy[i]);
    }
    free(first);
    end_work(&w);
}

RANK_TESTS(NULL, NULL)
