/* What each rank draws: for jobs of several ranks, in one process. */
#include "threads.h"

#include "data/sampler.h"

/* `batch` images of a step over `size` ranks; shares differ by at most one, as cmn_batch=global
 * makes them. */
static struct cmn_sampler_plan plan_of(enum cmn_scatter_mode mode, size_t images, int size,
                                       int rank, size_t batch)
{
    size_t offset = batch * (size_t)rank / (size_t)size;
    return (struct cmn_sampler_plan){
        .mode = mode,
        .seed = 7,
        .rank = rank,
        .size = size,
        .images = images,
        .step = batch,
        .offset = offset,
        .mine = batch * ((size_t)rank + 1) / (size_t)size - offset,
    };
}

static struct cmn_sample *draw(const struct cmn_sampler_plan *plan, size_t first, size_t n)
{
    struct cmn_sampler *s = cmn_sampler_open(plan);
    struct cmn_sample *sample = calloc(n + 1, sizeof *sample);

    assert_done(s);
    cmn_sampler_next(s, first, n, sample);
    cmn_sampler_close(s);
    return sample;
}

/* What all ranks together take in steps 0 … steps-1, step by step and rank by rank. */
static struct cmn_sample *stream_of(struct cmn_sampler_plan plan, size_t steps)
{
    struct cmn_sample *stream = calloc(plan.step * steps, sizeof *stream);
    size_t origin = plan.origin;

    for (int rank = 0; rank < plan.size; rank++) {
        struct cmn_sampler_plan p = plan_of(plan.mode, plan.images, plan.size, rank, plan.step);
        struct cmn_sample *mine;
        p.origin = origin;
        p.seed = plan.seed;
        mine = draw(&p, 0, p.mine * steps);
        for (size_t s = 0; s < steps; s++) {
            memcpy(stream + s * p.step + p.offset, mine + s * p.mine, p.mine * sizeof *mine);
        }
        free(mine);
    }
    return stream;
}

struct job {
    size_t images;
    int size;
    size_t batch; /* of all ranks */
};

static const struct job jobs[] = {
    {60000, 7, 700}, {60000, 7, 1000}, {10, 3, 3}, {10, 3, 4}, {10, 3, 11}, {3, 5, 5},    {3, 5, 8},
    {1, 1, 1},       {1, 1, 3},        {7, 2, 2},  {7, 2, 5},  {7, 2, 14},  {100, 4, 10}, {5, 5, 5},
};

/* Steps of several ranks are those of one: every image stands once in each epoch, and each rank finds
 * its samples there. */
TEST(global_ranks_draw_as_one)
{
    enum { EPOCHS = 3 };

    for (size_t j = 0; j < COUNT(jobs); j++) {
        size_t n = jobs[j].images, batch = jobs[j].batch;
        size_t steps = (EPOCHS * n + batch - 1) / batch;
        struct cmn_sampler_plan single = plan_of(CMN_SCATTER_GLOBAL, n, 1, 0, batch);
        struct cmn_sample *one = draw(&single, 0, steps * batch);
        struct cmn_sample *many =
            stream_of(plan_of(CMN_SCATTER_GLOBAL, n, jobs[j].size, 0, batch), steps);
        size_t *seen = calloc(n, sizeof *seen);
        assert_memory_equal(many, one, steps * batch * sizeof *one);
        for (size_t i = 0; i < EPOCHS * n; i++) {
            assert_true(one[i].image < n && one[i].pass == i / n && one[i].place == i % n);
            assert_int_equal(seen[one[i].image]++, i / n);
        }
        free(seen);
        free(many);
        free(one);
    }
}

/* Four images have 24 orders; of 24000 passes each order gets about 1000. */
TEST(orders_are_equally_likely)
{
    enum { PASSES = 24000 };
    struct cmn_sampler_plan plan = plan_of(CMN_SCATTER_GLOBAL, 4, 1, 0, 4);
    struct cmn_sample *sample = draw(&plan, 0, 4 * PASSES);
    int count[256] = {0};
    int orders = 0;

    for (int p = 0; p < PASSES; p++) {
        const struct cmn_sample *s = sample + 4 * p;
        count[s[0].image << 6 | s[1].image << 4 | s[2].image << 2 | s[3].image]++;
    }
    for (int i = 0; i < 256; i++) {
        assert_true(count[i] == 0 || (count[i] > 840 && count[i] < 1160)); /* 5 sigma */
        orders += count[i] > 0;
    }
    assert_int_equal(orders, 24);
    free(sample);
}

static int by_ticket(const void *a, const void *b)
{
    uint64_t x = ((const struct cmn_sample *)a)->seed;
    uint64_t y = ((const struct cmn_sample *)b)->seed;

    return (x > y) - (x < y);
}

/* Equal tickets draw equal augmentations: no two samples may share one, of other ranks, steps or
 * seeds; and another seed draws other images. */
TEST(tickets_are_unique)
{
    enum { N = 3000 };

    for (int mode = CMN_SCATTER_GLOBAL; mode <= CMN_SCATTER_NONE; mode++) {
        struct cmn_sampler_plan plan = plan_of((enum cmn_scatter_mode)mode, 1000, 3, 0, 30);
        struct cmn_sample *of[2], *both = calloc(2 * N, sizeof *both);
        int same = 0;
        for (int i = 0; i < 2; i++, plan.seed++) {
            of[i] = stream_of(plan, N / 30);
            memcpy(both + i * N, of[i], N * sizeof *both);
        }
        for (int i = 0; i < N; i++) {
            same += of[0][i].image == of[1][i].image;
        }
        assert_true(same < N / 10);
        qsort(both, 2 * N, sizeof *both, by_ticket);
        for (int i = 1; i < 2 * N; i++) {
            assert_true(both[i].seed != both[i - 1].seed);
        }
        free(of[0]);
        free(of[1]);
        free(both);
    }
}

TEST(refused)
{
    struct cmn_sampler_plan few = plan_of(CMN_SCATTER_SHARD, 3, 5, 0, 5);
    struct cmn_sampler_plan none = plan_of(CMN_SCATTER_GLOBAL, 0, 2, 0, 4);

    assert_fatal(cmn_sampler_open(&few), "3 images cannot be cut into shards for 5 ranks");
    assert_fatal(cmn_sampler_open(&none), "empty");
}

TEST(none_is_in_range)
{
    enum { N = 20000 };
    struct cmn_sample *both = stream_of(plan_of(CMN_SCATTER_NONE, 10, 2, 0, 2), N / 2);
    int count[10] = {0};
    int equal = 0;

    for (int i = 0; i < N; i++) {
        assert_true(both[i].image < 10);
        count[both[i].image]++;
        equal += i % 2 && both[i].image == both[i - 1].image;
    }
    for (int i = 0; i < 10; i++) {
        assert_true(count[i] > 1700 && count[i] < 2300);
    }
    assert_true(equal < 1500);
    free(both);
}

TEST(resume_continues)
{
    for (int mode = CMN_SCATTER_GLOBAL; mode <= CMN_SCATTER_NONE; mode++) {
        for (int rank = 0; rank < 3; rank++) {
            struct cmn_sampler_plan plan = plan_of((enum cmn_scatter_mode)mode, 50, 3, rank, 10);
            struct cmn_sample *all = draw(&plan, 0, plan.mine * 40);
            struct cmn_sample *rest;
            plan.origin = 13 * plan.step;
            rest = draw(&plan, 0, plan.mine * 27);
            assert_memory_equal(rest, all + 13 * plan.mine, plan.mine * 27 * sizeof *rest);
            free(all);
            free(rest);
        }
    }
}

/* 3 steps of 8 on 2 ranks, then 4 steps of 9 on 3 ranks: the samples of one process. */
TEST(resume_on_other_ranks)
{
    struct cmn_sampler_plan later = plan_of(CMN_SCATTER_GLOBAL, 15, 3, 0, 9);
    struct cmn_sampler_plan single = plan_of(CMN_SCATTER_GLOBAL, 15, 1, 0, 60);
    struct cmn_sample *first = stream_of(plan_of(CMN_SCATTER_GLOBAL, 15, 2, 0, 8), 3), *rest;
    struct cmn_sample *whole = draw(&single, 0, 60);

    later.origin = 24;
    rest = stream_of(later, 4);
    assert_memory_equal(first, whole, 24 * sizeof *whole);
    assert_memory_equal(rest, whole + 24, 36 * sizeof *whole);
    free(first);
    free(rest);
    free(whole);
}

/* ---- parts of the list, and threads ---- */

/* In each pass a rank draws the images of its part, each once, in another order; each image is of one
 * part, and parts differ by at most one image. */
TEST(shard_parts)
{
    enum { PASSES = 3 };

    for (size_t j = 0; j < COUNT(jobs); j++) {
        size_t images = jobs[j].images, size = (size_t)jobs[j].size, covered = 0, moved = 0;
        size_t *drawn = calloc(images, sizeof *drawn); /* how often */
        for (size_t rank = 0; rank < size && images >= size; rank++) {
            struct cmn_sampler_plan plan =
                plan_of(CMN_SCATTER_SHARD, images, jobs[j].size, (int)rank, size * 4);
            size_t n = images * (rank + 1) / size - images * rank / size;
            struct cmn_sample *s = draw(&plan, 0, n * PASSES);
            for (size_t i = 0; i < n * PASSES; i++) {
                assert_true(s[i].image < images && s[i].pass == i / n && s[i].place == i % n);
                assert_int_equal(drawn[s[i].image]++, i / n); /* PASSES: it is another rank's */
                moved += s[i].image != s[i % n].image;
            }
            covered += n;
            free(s);
        }
        assert_int_equal(covered, images < size ? 0 : images);
        assert_true(images < 20 || moved > images);
        free(drawn);
    }
}

enum { THREADS = 4, ROUNDS = 300, PIECE = 17, LIST = 500 };

static struct cmn_sampler *common;
static const struct cmn_sample *want;
static int bad[THREADS];

/* Threads ask for passes two apart: those whose orders lie in the same memory. */
static void draw_pieces(int thread)
{
    struct cmn_sample got[PIECE];

    for (int i = 0; i < ROUNDS; i++) {
        size_t first = (size_t)(thread * 2 % 8) * LIST + (size_t)(i * 31 % LIST);
        cmn_sampler_next(common, first, PIECE, got);
        bad[thread] |= memcmp(got, want + first, sizeof got) != 0;
    }
}

/* Any samples, asked for at any time and in any order, are what they are in the stream. */
TEST(draws_have_no_history)
{
    for (int mode = CMN_SCATTER_GLOBAL; mode <= CMN_SCATTER_NONE; mode++) {
        struct cmn_sampler_plan plan = plan_of((enum cmn_scatter_mode)mode, LIST, 2, 1, 34);
        struct cmn_sample *stream = draw(&plan, 0, 8 * LIST);
        want = stream;
        common = cmn_sampler_open(&plan);
        in_threads(THREADS, draw_pieces);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(bad[i], 0);
        }
        cmn_sampler_close(common);
        free(stream);
    }
}

TESTS(NULL, NULL)
