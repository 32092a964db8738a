/* The sampler, continued: parts of the list, and threads. */
#include "plans.h"

#include <pthread.h>

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
