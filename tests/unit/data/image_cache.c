#include "check.h"

#include <pthread.h>

#include "data/image_cache.h"

enum { SIDE = 10, BYTES = SIDE * SIDE };

static void fill(unsigned char *pixels, size_t n, int value)
{
    for (size_t i = 0; i < n; i++) {
        pixels[i] = (unsigned char)(value + (int)i * 7);
    }
}

static void keep(const char *file, int value)
{
    unsigned char pixels[BYTES];

    fill(pixels, sizeof pixels, value);
    cmn_image_cache_keep(file, 1, SIDE, SIDE, 1, pixels);
}

static unsigned char *find(const char *file, int channels)
{
    int w, h, c;

    return cmn_image_cache_find(file, channels, &w, &h, &c);
}

static int reset(void **state)
{
    (void)state;
    cmn_image_cache_close();
    cmn_image_cache_limit(1 << 20);
    return 0;
}

static void found_as_kept(void **state)
{
    unsigned char pixels[4 * 3 * 2], *copy;
    int w = 0, h = 0, c = 0;

    (void)state;
    fill(pixels, sizeof pixels, 1);
    assert_null(cmn_image_cache_find("a.png", 2, &w, &h, &c));
    cmn_image_cache_keep("a.png", 2, 4, 3, 2, pixels);
    copy = cmn_image_cache_find("a.png", 2, &w, &h, &c);
    assert_non_null(copy);
    assert_int_equal(w, 4);
    assert_int_equal(h, 3);
    assert_int_equal(c, 2);
    assert_memory_equal(copy, pixels, sizeof pixels);
    free(copy);
    assert_null(find("b.png", 2));
}

static void caller_owns_the_copy(void **state)
{
    unsigned char want[BYTES], *copy;

    (void)state;
    fill(want, sizeof want, 5);
    keep("a.png", 5);
    copy = find("a.png", 1);
    memset(copy, 0, BYTES);
    free(copy);
    copy = find("a.png", 1);
    assert_memory_equal(copy, want, sizeof want);
    free(copy);
}

static void channels_are_part_of_the_key(void **state)
{
    unsigned char grey[BYTES], colour[3 * BYTES], *copy;
    int w, h, c;

    (void)state;
    fill(grey, sizeof grey, 1);
    fill(colour, sizeof colour, 2);
    cmn_image_cache_keep("a.png", 1, SIDE, SIDE, 1, grey);
    assert_null(find("a.png", 3));
    cmn_image_cache_keep("a.png", 3, SIDE, SIDE, 3, colour);
    copy = cmn_image_cache_find("a.png", 3, &w, &h, &c);
    assert_int_equal(c, 3);
    assert_memory_equal(copy, colour, sizeof colour);
    free(copy);
    copy = cmn_image_cache_find("a.png", 1, &w, &h, &c);
    assert_int_equal(c, 1);
    assert_memory_equal(copy, grey, sizeof grey);
    free(copy);
    /* No key may be made from another one's digits. */
    assert_null(find("1 a.png", 1));
    assert_null(find(" a.png", 1));
}

static void limit_is_respected(void **state)
{
    enum { LIMIT = 20 * BYTES, IMAGES = 100 };
    char name[32];
    int kept = 0;

    (void)state;
    cmn_image_cache_limit(LIMIT);
    for (int i = 0; i < IMAGES; i++) {
        snprintf(name, sizeof name, "%d.png", i);
        keep(name, i);
    }
    for (int i = 0; i < IMAGES; i++) {
        unsigned char *copy;
        snprintf(name, sizeof name, "%d.png", i);
        copy = find(name, 1);
        kept += copy != NULL;
        free(copy);
    }
    assert_true(kept > 0);
    assert_true(kept * BYTES <= LIMIT);
    assert_true(kept < IMAGES);
}

static void keeping_twice_costs_once(void **state)
{
    unsigned char *copy;

    (void)state;
    cmn_image_cache_limit(10 * BYTES);
    for (int i = 0; i < 1000; i++) {
        keep("a.png", 1);
    }
    keep("b.png", 2);
    copy = find("b.png", 1);
    assert_non_null(copy);
    free(copy);
}

static void no_limit_no_images(void **state)
{
    (void)state;
    cmn_image_cache_limit(0);
    keep("a.png", 1);
    assert_null(find("a.png", 1));
}

static void close_drops_everything(void **state)
{
    unsigned char *copy;

    (void)state;
    cmn_image_cache_limit(4 * BYTES);
    keep("a.png", 1);
    cmn_image_cache_close();
    assert_null(find("a.png", 1));
    /* The room is free again. */
    keep("b.png", 1);
    copy = find("b.png", 1);
    assert_non_null(copy);
    free(copy);
}

static void default_limit_is_shared(void **state)
{
    size_t one = cmn_image_cache_default_limit(1);
    size_t four = cmn_image_cache_default_limit(4);

    (void)state;
    assert_true(one > 0);
    /* Free memory moves between the two calls. */
    assert_true(four > one / 8 && four < one / 2);
}

enum { THREADS = 4, SHARED = 5000 };

static pthread_barrier_t start;

/* All threads meet the same names at the same time, and the table grows under them. */
static void *work(void *bad)
{
    char name[32];

    pthread_barrier_wait(&start);
    for (int i = 0; i < 2 * SHARED; i++) {
        unsigned char want[BYTES], *copy;
        int image = i % SHARED;
        snprintf(name, sizeof name, "%d.png", image);
        fill(want, sizeof want, image);
        copy = find(name, 1);
        if (copy && memcmp(copy, want, sizeof want)) {
            *(int *)bad = 1;
        }
        if (!copy) {
            keep(name, image);
        }
        free(copy);
    }
    return NULL;
}

static void threads_see_whole_images(void **state)
{
    pthread_t thread[THREADS];
    int bad[THREADS] = {0};

    (void)state;
    cmn_image_cache_limit(1 << 24);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, &bad[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    pthread_barrier_destroy(&start);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(bad[i], 0);
    }
    for (int i = 0; i < SHARED; i++) {
        char name[32];
        unsigned char *copy;
        snprintf(name, sizeof name, "%d.png", i);
        copy = find(name, 1);
        assert_non_null(copy);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(found_as_kept, reset),
        cmocka_unit_test_setup(caller_owns_the_copy, reset),
        cmocka_unit_test_setup(channels_are_part_of_the_key, reset),
        cmocka_unit_test_setup(limit_is_respected, reset),
        cmocka_unit_test_setup(keeping_twice_costs_once, reset),
        cmocka_unit_test_setup(no_limit_no_images, reset),
        cmocka_unit_test_setup(close_drops_everything, reset),
        cmocka_unit_test_setup(default_limit_is_shared, reset),
        cmocka_unit_test_setup(threads_see_whole_images, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
