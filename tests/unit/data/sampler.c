#include "plans.h"

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

TESTS(NULL, NULL)
