/* What each rank draws: for jobs of several ranks, in one process. */
#include "check.h"

#include <pthread.h>

#include "base/log.h"
#include "data/sampler.h"

/* `batch` images of a step over `size` ranks; shares differ by at most one, as cmn_batch=global
 * makes them. */
static struct cmn_sampler_plan plan_of(enum cmn_scatter_mode mode, size_t images, int size,
                                       int rank, size_t batch)
{
    size_t offset = batch * (size_t)rank / (size_t)size;
    struct cmn_sampler_plan plan = {
        .mode = mode,
        .seed = 7,
        .rank = rank,
        .size = size,
        .images = images,
        .step = batch,
        .offset = offset,
        .mine = batch * ((size_t)rank + 1) / (size_t)size - offset,
    };

    return plan;
}

static struct cmn_sample *draw(const struct cmn_sampler_plan *plan, size_t first, size_t n)
{
    struct cmn_sampler *s = cmn_sampler_open(plan);
    struct cmn_sample *sample = calloc(n + 1, sizeof *sample);

    if (!s) {
        fail_msg("%s", cmn_reason());
    }
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

/* Every image stands exactly once in sample[0 … images-1]. */
static void assert_once_each(const struct cmn_sample *sample, size_t images)
{
    unsigned char *count = calloc(images, 1);

    for (size_t i = 0; i < images; i++) {
        assert_true(sample[i].image < images);
        assert_int_equal(count[sample[i].image], 0);
        count[sample[i].image] = 1;
    }
    free(count);
}

TEST(global_once_per_epoch)
{
    enum { EPOCHS = 3 };

    for (size_t j = 0; j < COUNT(jobs); j++) {
        size_t n = jobs[j].images;
        size_t steps = (EPOCHS * n + jobs[j].batch - 1) / jobs[j].batch;
        struct cmn_sample *stream =
            stream_of(plan_of(CMN_SCATTER_GLOBAL, n, jobs[j].size, 0, jobs[j].batch), steps);
        for (size_t e = 0; e < EPOCHS; e++) {
            assert_once_each(stream + e * n, n);
        }
        free(stream);
    }
}

TEST(global_epochs_differ)
{
    struct cmn_sample *stream = stream_of(plan_of(CMN_SCATTER_GLOBAL, 100, 2, 0, 10), 20);
    size_t moved = 0, unsorted = 0;

    for (size_t i = 0; i < 100; i++) {
        moved += stream[i].image != stream[100 + i].image;
        unsorted += stream[i].image != i;
    }
    assert_true(moved > 80);
    assert_true(unsorted > 80);
    free(stream);
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

/* Equal seeds draw equal augmentations: no two samples may share one. */
static int by_ticket(const void *a, const void *b)
{
    uint64_t x = ((const struct cmn_sample *)a)->seed;
    uint64_t y = ((const struct cmn_sample *)b)->seed;

    return (x > y) - (x < y);
}

TEST(tickets_are_unique)
{
    for (int mode = CMN_SCATTER_GLOBAL; mode <= CMN_SCATTER_NONE; mode++) {
        struct cmn_sample *stream =
            stream_of(plan_of((enum cmn_scatter_mode)mode, 50, 3, 0, 30), 100);
        qsort(stream, 3000, sizeof *stream, by_ticket);
        for (int i = 1; i < 3000; i++) {
            assert_true(stream[i].seed != stream[i - 1].seed);
        }
        free(stream);
    }
}

TEST(global_n_ranks_are_one_rank)
{
    for (size_t j = 0; j < COUNT(jobs); j++) {
        size_t steps = 5;
        struct cmn_sample *many = stream_of(
            plan_of(CMN_SCATTER_GLOBAL, jobs[j].images, jobs[j].size, 0, jobs[j].batch), steps);
        struct cmn_sample *one =
            stream_of(plan_of(CMN_SCATTER_GLOBAL, jobs[j].images, 1, 0, jobs[j].batch), steps);
        assert_memory_equal(many, one, steps * jobs[j].batch * sizeof *one);
        free(many);
        free(one);
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
    struct cmn_sampler_plan a = plan_of(CMN_SCATTER_NONE, 10, 2, 0, 8);
    struct cmn_sampler_plan b = plan_of(CMN_SCATTER_NONE, 10, 2, 1, 8);
    struct cmn_sample *first = draw(&a, 0, 10000);
    struct cmn_sample *second = draw(&b, 0, 10000);
    int count[10] = {0};
    int equal = 0;

    for (int i = 0; i < 10000; i++) {
        assert_true(first[i].image < 10);
        count[first[i].image]++;
        equal += first[i].image == second[i].image;
    }
    for (int i = 0; i < 10; i++) {
        assert_true(count[i] > 800 && count[i] < 1200);
    }
    assert_true(equal < 1500);
    free(first);
    free(second);
}

TEST(seed_decides)
{
    for (int mode = CMN_SCATTER_GLOBAL; mode <= CMN_SCATTER_NONE; mode++) {
        struct cmn_sampler_plan plan = plan_of((enum cmn_scatter_mode)mode, 1000, 3, 1, 30);
        struct cmn_sample *a = draw(&plan, 0, 500);
        struct cmn_sample *b = draw(&plan, 0, 500);
        struct cmn_sample *c;
        int same = 0;
        plan.seed = 8;
        c = draw(&plan, 0, 500);
        assert_memory_equal(a, b, 500 * sizeof *a);
        for (int i = 0; i < 500; i++) {
            same += a[i].image == c[i].image;
            assert_true(a[i].seed != c[i].seed);
        }
        assert_true(same < 50);
        free(a);
        free(b);
        free(c);
    }
}

/* Any sample, asked for alone and in any order, is what it is in the stream. */
TEST(draws_have_no_history)
{
    for (int mode = CMN_SCATTER_GLOBAL; mode <= CMN_SCATTER_NONE; mode++) {
        struct cmn_sampler_plan plan = plan_of((enum cmn_scatter_mode)mode, 20, 2, 1, 14);
        struct cmn_sample *all = draw(&plan, 0, 300);
        struct cmn_sampler *s = cmn_sampler_open(&plan);
        for (size_t i = 0; i < 300; i++) {
            struct cmn_sample one;
            size_t k = i * 77 % 300;
            cmn_sampler_next(s, k, 1, &one);
            assert_int_equal(one.image, all[k].image);
            assert_true(one.seed == all[k].seed);
        }
        cmn_sampler_close(s);
        free(all);
    }
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

/* 3 steps of 8 on 2 ranks, then 4 steps of 9 on 3 ranks: epochs stay whole. */
TEST(resume_on_other_ranks)
{
    struct cmn_sampler_plan later = plan_of(CMN_SCATTER_GLOBAL, 15, 3, 0, 9);
    struct cmn_sample whole[60];
    struct cmn_sample *part;

    part = stream_of(plan_of(CMN_SCATTER_GLOBAL, 15, 2, 0, 8), 3);
    memcpy(whole, part, 24 * sizeof *part);
    free(part);
    later.origin = 24;
    part = stream_of(later, 4);
    memcpy(whole + 24, part, 36 * sizeof *part);
    free(part);
    for (int e = 0; e < 4; e++) {
        assert_once_each(whole + e * 15, 15);
    }
}

/* ---- parts of the list, and threads ---- */

static size_t *part_of(size_t images, int size, int rank, size_t *n, size_t passes)
{
    struct cmn_sampler_plan plan = plan_of(CMN_SCATTER_SHARD, images, size, rank, (size_t)size * 4);
    size_t from = images * (size_t)rank / (size_t)size;
    struct cmn_sample *sample;
    size_t *image;

    *n = images * ((size_t)rank + 1) / (size_t)size - from;
    sample = draw(&plan, 0, *n * passes);
    image = calloc(*n * passes, sizeof *image);
    for (size_t i = 0; i < *n * passes; i++) {
        image[i] = sample[i].image;
    }
    free(sample);
    return image;
}

TEST(shard_parts)
{
    enum { PASSES = 3 };

    for (size_t j = 0; j < COUNT(jobs); j++) {
        size_t images = jobs[j].images;
        int *owner = calloc(images, sizeof *owner);
        size_t covered = 0, moved = 0;
        if (images < (size_t)jobs[j].size) {
            free(owner);
            continue;
        }
        for (int rank = 0; rank < jobs[j].size; rank++) {
            size_t n;
            size_t *image = part_of(images, jobs[j].size, rank, &n, PASSES);
            assert_true(n >= images / (size_t)jobs[j].size);
            assert_true(n <= images / (size_t)jobs[j].size + 1);
            for (size_t i = 0; i < n; i++) {
                assert_true(image[i] < images);
                assert_int_equal(owner[image[i]], 0);
                owner[image[i]] = rank + 1;
                covered++;
            }
            /* Each later pass is the same part, each image once, in another order. */
            for (size_t p = 1; p < PASSES; p++) {
                int *mark = calloc(images, sizeof *mark);
                for (size_t i = 0; i < n; i++) {
                    size_t x = image[p * n + i];
                    assert_true(x < images);
                    assert_int_equal(owner[x], rank + 1);
                    assert_int_equal(mark[x]++, 0);
                    moved += x != image[i];
                }
                free(mark);
            }
            free(image);
        }
        assert_int_equal(covered, images);
        assert_true(images < 20 || moved > images);
        free(owner);
    }
}

enum { THREADS = 4, ROUNDS = 300, PIECE = 17, LIST = 500 };

struct work {
    struct cmn_sampler *s;
    const struct cmn_sample *want;
    pthread_barrier_t *start;
    int thread, bad;
};

/* Threads ask for passes two apart: those whose orders lie in the same memory. */
static void *draw_pieces(void *argument)
{
    struct work *w = argument;
    struct cmn_sample got[PIECE];

    pthread_barrier_wait(w->start);
    for (int i = 0; i < ROUNDS; i++) {
        size_t first = (size_t)(w->thread * 2 % 8) * LIST + (size_t)(i * 31 % (LIST - PIECE));
        cmn_sampler_next(w->s, first, PIECE, got);
        w->bad |= memcmp(got, w->want + first, sizeof got) != 0;
    }
    return NULL;
}

TEST(threads_draw_the_same)
{
    for (int mode = CMN_SCATTER_GLOBAL; mode <= CMN_SCATTER_NONE; mode++) {
        struct cmn_sampler_plan plan = plan_of((enum cmn_scatter_mode)mode, LIST, 1, 0, 34);
        struct cmn_sample *want = draw(&plan, 0, 8 * LIST);
        struct cmn_sampler *s = cmn_sampler_open(&plan);
        pthread_barrier_t start;
        pthread_t thread[THREADS];
        struct work work[THREADS];
        pthread_barrier_init(&start, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
            work[i] = (struct work){s, want, &start, i, 0};
            assert_int_equal(pthread_create(&thread[i], NULL, draw_pieces, &work[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(work[i].bad, 0);
        }
        pthread_barrier_destroy(&start);
        cmn_sampler_close(s);
        free(want);
    }
}

TESTS(NULL, NULL)
