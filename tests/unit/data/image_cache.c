#include "check.h"

/* For a process that is killed while it writes, and for two names with one hash. */
static ssize_t interrupted_pwrite(int fd, const void *data, size_t bytes, off_t at);
#define pwrite interrupted_pwrite
#include "data/image_cache.c"
#undef pwrite

#include "folder.h"
#include "threads.h"

enum { WIDTH = 10, HEIGHT = 9, BYTES = WIDTH * HEIGHT };

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

static void fill(unsigned char *pixels, int n, int value)
{
    for (int i = 0; i < n; i++) {
        pixels[i] = (unsigned char)(value + i * 7);
    }
}

static void keep_channels(const char *file, int channels, int value)
{
    unsigned char pixels[4 * BYTES];

    fill(pixels, BYTES * channels, value);
    cmn_image_cache_keep(file, channels, WIDTH, HEIGHT, channels, pixels);
}

static void keep(const char *file, int value)
{
    keep_channels(file, 1, value);
}

/* 1: it is there as it was kept, 0: it is not, -1: it is there, and is another image. */
static int look_for(const char *file, int channels, int value)
{
    unsigned char want[4 * BYTES], *copy;
    int w, h, c, same;

    copy = cmn_image_cache_find(file, channels, &w, &h, &c);
    if (!copy) {
        return 0;
    }
    fill(want, BYTES * channels, value);
    same = w == WIDTH && h == HEIGHT && c == channels &&
           !memcmp(copy, want, (size_t)(BYTES * channels));
    memset(copy, 0, (size_t)(w * h * c)); /* it is the caller's */
    free(copy);
    return same ? 1 : -1;
}

/* Whether it is there; whole, if it is. */
static int is_kept(const char *file, int value)
{
    int found = look_for(file, 1, value);

    assert_true(found >= 0);
    return found;
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

/* Under its name and the channels that were asked for; no key is made from another one's digits. */
TEST(found_as_kept)
{
    assert_int_equal(is_kept("a.png", 1), 0);
    keep("a.png", 1);
    assert_int_equal(look_for("a.png", 3, 2), 0);
    keep_channels("a.png", 3, 2);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(look_for("a.png", 1, 1), 1);
        assert_int_equal(look_for("a.png", 3, 2), 1);
    }
    assert_int_equal(is_kept("b.png", 1), 0);
    assert_int_equal(is_kept("1 a.png", 1), 0);
    assert_int_equal(is_kept(" a.png", 1), 0);
}

TEST(keeping_twice_costs_once)
{
    cmn_image_cache_open(NULL, 10 * BYTES, "");
    for (int i = 0; i < 1000; i++) {
        keep("a.png", 1);
    }
    keep("b.png", 2);
    assert_int_equal(is_kept("b.png", 2), 1);
}

/* Nor does one keep images that has no limit to fill. */
TEST(close_drops_everything)
{
    static const size_t limits[] = {4 * BYTES, 0};

    for (size_t i = 0; i < COUNT(limits); i++) {
        cmn_image_cache_open(NULL, limits[i], "");
        keep("a.png", 1);
        assert_int_equal(is_kept("a.png", 1), limits[i] > 0);
        cmn_image_cache_close();
        assert_int_equal(is_kept("a.png", 1), 0);
    }
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
    for (int k = 0; k < PROCESSES; k++) {
        keep_some(k);
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

static int bad[THREADS];

/* All threads meet the same names at the same time, and the table grows under them. */
static void share(int i)
{
    char name[32];

    for (int k = 0; k < 2 * SHARED; k++) {
        int image = k % SHARED, found;
        snprintf(name, sizeof name, "%d.png", image);
        found = look_for(name, 1, image);
        bad[i] |= found < 0;
        if (!found) {
            keep(name, image);
        }
    }
}

TEST(threads_see_whole_images)
{
    cmn_image_cache_open(NULL, 1 << 24, "");
    in_threads(THREADS, share);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(bad[i], 0);
    }
    for (int i = 0; i < SHARED; i++) {
        assert_int_equal(is_kept(name_of(i), i), 1);
    }
}

TESTS(reset, NULL)
