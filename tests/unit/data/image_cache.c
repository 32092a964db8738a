#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* For a process that is killed while it writes, and for two names with one hash. */
static ssize_t interrupted_pwrite(int fd, const void *data, size_t bytes, off_t at);
#define pwrite interrupted_pwrite
#include "data/image_cache.c"
#undef pwrite

#include "folder.h"

enum { SIDE = 10, BYTES = SIDE * SIDE };

static long dies_at = -1; /* this process, when it has written so many bytes in all; -1: never */

static ssize_t interrupted_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    ssize_t n;

    if (dies_at < 0) {
        return pwrite(fd, data, bytes, at);
    }
    n = pwrite(fd, data, bytes < (size_t)dies_at ? bytes : (size_t)dies_at, at);
    dies_at -= n;
    if (dies_at == 0) {
        raise(SIGKILL);
    }
    return n;
}

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

static unsigned char *find_image(const char *file, int channels)
{
    int w, h, c;

    return cmn_image_cache_find(file, channels, &w, &h, &c);
}

static int has(const char *file)
{
    unsigned char *copy = find_image(file, 1);

    free(copy);
    return copy != NULL;
}

/* Whether it is there; whole, if it is. */
static int is_kept(const char *file, int value)
{
    unsigned char want[BYTES], *copy = find_image(file, 1);
    int kept = copy != NULL;

    fill(want, sizeof want, value);
    if (kept) {
        assert_memory_equal(copy, want, sizeof want);
    }
    free(copy);
    return kept;
}

static const char *name_of(int i)
{
    static char name[32];

    snprintf(name, sizeof name, "%d.png", i);
    return name;
}

static void reset(void)
{
    cmn_image_cache_close();
    cmn_image_cache_open(NULL, 1 << 20, "");
}

TEST(found_as_kept)
{
    unsigned char pixels[4 * 3 * 2], *copy;
    int w = 0, h = 0, c = 0;

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
    assert_null(find_image("b.png", 2));
}

TEST(caller_owns_the_copy)
{
    unsigned char *copy;

    keep("a.png", 5);
    copy = find_image("a.png", 1);
    memset(copy, 0, BYTES);
    free(copy);
    assert_true(is_kept("a.png", 5));
}

TEST(channels_are_part_of_the_key)
{
    unsigned char grey[BYTES], colour[3 * BYTES], *copy;
    int w, h, c;

    fill(grey, sizeof grey, 1);
    fill(colour, sizeof colour, 2);
    cmn_image_cache_keep("a.png", 1, SIDE, SIDE, 1, grey);
    assert_null(find_image("a.png", 3));
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
    assert_null(find_image("1 a.png", 1));
    assert_null(find_image(" a.png", 1));
}

TEST(limit_is_respected)
{
    enum { LIMIT = 20 * BYTES, IMAGES = 100 };
    int kept = 0;

    cmn_image_cache_open(NULL, LIMIT, "");
    for (int i = 0; i < IMAGES; i++) {
        keep(name_of(i), i);
    }
    for (int i = 0; i < IMAGES; i++) {
        kept += is_kept(name_of(i), i);
    }
    assert_true(kept > 0);
    assert_true(kept * BYTES <= LIMIT);
    assert_true(kept < IMAGES);
}

TEST(keeping_twice_costs_once)
{
    cmn_image_cache_open(NULL, 10 * BYTES, "");
    for (int i = 0; i < 1000; i++) {
        keep("a.png", 1);
    }
    keep("b.png", 2);
    assert_true(has("b.png"));
}

TEST(no_limit_no_images)
{
    cmn_image_cache_open(NULL, 0, "");
    keep("a.png", 1);
    assert_null(find_image("a.png", 1));
}

TEST(close_drops_everything)
{
    cmn_image_cache_open(NULL, 4 * BYTES, "");
    keep("a.png", 1);
    cmn_image_cache_close();
    assert_null(find_image("a.png", 1));
    cmn_image_cache_open(NULL, 4 * BYTES, "");
    assert_null(find_image("a.png", 1));
    keep("b.png", 1);
    assert_true(has("b.png"));
}

TEST(default_limit_is_a_part_of_memory)
{
    assert_true(cmn_image_cache_default_limit() > 0);
    /* Free memory moves between the two calls. */
    assert_true(cmn_image_cache_default_limit() < cmn_memory_free() / 2);
}

/* Two names with one hash: the first word of a line is the other one's. */
TEST(names_with_one_hash_are_two)
{
    unsigned char *pixels = NULL;
    struct key a, b;
    struct record r;

    keep("a.png", 1);
    make_key(&a, "a.png", 1);
    make_key(&b, "b.png", 1);
    b.hash = a.hash;
    assert_int_equal(find(&a, &r, NULL), 1);
    assert_int_equal(find(&b, &r, &pixels), 0);
    assert_null(pixels);
}

/* ---- several processes ---- */

enum { PROCESSES = 4, EACH = 50 };

/* Runs work(i) in processes that share the cache, and waits for them: their numbers, added. */
static int in_processes(int processes, int (*work)(int i))
{
    pid_t child[PROCESSES];
    int sum = 0, status;

    for (int i = 0; i < processes; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            _exit(work(i));
        }
        assert_true(child[i] > 0);
    }
    for (int i = 0; i < processes; i++) {
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        sum += WIFSIGNALED(status) ? 1000 * WTERMSIG(status) : WEXITSTATUS(status);
    }
    return sum;
}

static int keep_some(int i)
{
    for (int k = i * EACH; k < (i + 1) * EACH; k++) {
        keep(name_of(k), k);
    }
    return 0;
}

static int keep_all(int i)
{
    (void)i;
    for (int k = 0; k < PROCESSES * EACH; k++) {
        keep(name_of(k), k);
    }
    return 0;
}

static int count_kept(int i)
{
    int kept = 0;

    (void)i;
    for (int k = 0; k < PROCESSES * EACH; k++) {
        kept += is_kept(name_of(k), k);
    }
    return kept;
}

TEST(what_one_keeps_the_others_find)
{
    assert_int_equal(in_processes(PROCESSES, keep_some), 0);
    assert_int_equal(count_kept(0), PROCESSES * EACH);
    assert_int_equal(in_processes(1, count_kept), PROCESSES * EACH);
}

static uint64_t used(int place)
{
    return atomic_load(&cache.index->used[place]);
}

/* All keep all at once: what somebody has found already is given back, or at worst taken twice. */
TEST(the_limit_is_that_of_all)
{
    enum { LIMIT = 60 * 2 * UNIT };
    uint64_t begin;
    int kept;

    cmn_image_cache_open(NULL, LIMIT, "");
    begin = used(IN_MEMORY);
    assert_int_equal(in_processes(PROCESSES, keep_all), 0);
    kept = count_kept(0);
    assert_true(kept > 0 && kept <= 60);
    assert_true(used(IN_MEMORY) - begin <= LIMIT);
}

static int die_while_keeping(int i)
{
    dies_at = 1 + 20 * i;
    keep("half.png", 7);
    return 0;
}

/* In the head of its record, in its key, in its pixels: nobody finds it, and the next one who decodes
 * it keeps it. */
TEST(an_image_half_written_is_not_found)
{
    assert_int_equal(in_processes(PROCESSES, die_while_keeping), PROCESSES * 1000 * SIGKILL);
    assert_int_equal(is_kept("half.png", 7), 0);
    keep("half.png", 7);
    assert_int_equal(is_kept("half.png", 7), 1);
}

static int keep_within_a_small_file(int i)
{
    struct rlimit most = {.rlim_cur = 40 << 10, .rlim_max = 40 << 10};

    setrlimit(RLIMIT_FSIZE, &most);
    cmn_image_cache_open(NULL, 1 << 20, "");
    keep_all(i);
    return count_kept(i);
}

TEST(a_limit_of_files_is_one_of_the_cache)
{
    int kept;

    cmn_image_cache_close();
    kept = in_processes(1, keep_within_a_small_file);
    assert_true(kept > 0 && kept < PROCESSES * EACH);
}

/* ---- a folder ---- */

TEST(a_folder_takes_what_memory_has_no_room_for)
{
    enum { LIMIT = 20 * 2 * UNIT };
    uint64_t begin;

    make_folder();
    for (size_t memory = 0; memory <= LIMIT; memory += LIMIT) {
        cmn_image_cache_open(NULL, memory, folder);
        begin = used(IN_MEMORY);
        assert_int_equal(in_processes(PROCESSES, keep_some), 0);
        assert_int_equal(count_kept(0), PROCESSES * EACH);
        assert_true(used(IN_MEMORY) - begin <= memory);
        assert_true(memory == 0 || used(IN_MEMORY) - begin > memory / 2);
        assert_true(used(ON_DISK) > UNIT);
        assert_int_equal(files_in(folder), 0);
    }
    cmn_image_cache_close();
    assert_int_equal(rmdir(folder), 0);
    assert_fatal(cmn_image_cache_open(NULL, 1 << 20, folder), "cmn_cache_dir: ");
    check_contains(check_message, folder);
}

/* ---- threads ---- */

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
        copy = find_image(name, 1);
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

TEST(threads_see_whole_images)
{
    pthread_t thread[THREADS];
    int bad[THREADS] = {0};

    cmn_image_cache_open(NULL, 1 << 24, "");
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
        assert_true(has(name_of(i)));
    }
}

TESTS(reset, NULL)
