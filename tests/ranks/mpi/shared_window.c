/* Memory shared by the ranks of a node: what is seen of it, and what is said when it cannot be
 * had. */
#include "ranks/ranks.h"
#include "folder.h"

#include <sys/syscall.h>

#include "mpi/shared_window.h"

static struct cmn_group node;

static struct cmn_window *window_of(size_t bytes, size_t common)
{
    struct cmn_window *w = NULL;

    CHECK_SAYING(cmn_window_open(&w, &node, bytes, common) == 0, "%s", cmn_reason());
    return w;
}

/* When all have read what they want. */
static void leave(struct cmn_window *w)
{
    cmn_window_barrier(w);
    cmn_window_close(w);
}

RANK_TEST(parts)
{
    const size_t bytes = 10000;
    struct cmn_window *w = window_of(bytes, 500);
    unsigned char *common = cmn_window_common(w);

    for (int k = 0; k < top.intra_size; k++) {
        unsigned char *part = cmn_window_part(w, k);
        CHECK((size_t)part % 64 == 0);
        for (size_t i = 0; i < bytes; i++) {
            CHECK_SAYING(part[i] == 0, "part %d at %zu", k, i);
        }
    }
    cmn_window_barrier(w);
    memset(cmn_window_part(w, top.intra_rank), top.intra_rank + 1, bytes);
    common[top.intra_rank] = (unsigned char)(top.intra_rank + 7);
    cmn_window_barrier(w);
    for (int k = 0; k < top.intra_size; k++) {
        const unsigned char *part = cmn_window_part(w, k);
        CHECK(part[0] == k + 1 && part[bytes / 2] == k + 1 && part[bytes - 1] == k + 1);
        CHECK(common[k] == k + 7);
    }
    CHECK(cmn_window_holds(w, cmn_window_part(w, top.intra_rank), bytes));
    CHECK(!cmn_window_holds(w, cmn_window_part(w, top.intra_rank), (size_t)1 << 40));
    CHECK(!cmn_window_holds(w, &bytes, 1));
    if (top.intra_size > 1) {
        CHECK(!cmn_window_holds(w, cmn_window_part(w, (top.intra_rank + 1) % top.intra_size), 4));
    }
    leave(w);
}

/* Sizes differ from rank to rank: the largest counts. */
RANK_TEST(largest_request)
{
    size_t most = (size_t)100000 * (size_t)top.intra_size;
    struct cmn_window *w = window_of((size_t)100000 * (size_t)(top.intra_rank + 1), 10);

    ((char *)cmn_window_part(w, top.intra_rank))[most - 1] = 5;
    cmn_window_barrier(w);
    for (int k = 0; k < top.intra_size; k++) {
        CHECK(((char *)cmn_window_part(w, k))[most - 1] == 5);
    }
    leave(w);
}

/* Counts up in turns: a barrier that lets one through early shows as a wrong count. */
RANK_TEST(barriers)
{
    struct cmn_window *w = window_of(sizeof(long), sizeof(long));
    volatile long *count = cmn_window_common(w);

    for (int turn = 0; turn < 300; turn++) {
        if (turn % top.intra_size == top.intra_rank) {
            *count = turn + 1;
        }
        cmn_window_barrier(w);
        CHECK_SAYING(*count == turn + 1, "turn %d: %ld", turn, *count);
        cmn_window_barrier(w);
    }
    cmn_window_close(w);
}

/* Waiting goes from spinning over yielding to sleep; all of them end. */
RANK_TEST(late_ranks)
{
    struct cmn_window *w = window_of(64, 0);

    for (int late = 0; late < top.intra_size; late++) {
        if (late == top.intra_rank) {
            usleep(150000);
        }
        cmn_window_barrier(w);
    }
    cmn_window_close(w);
}

RANK_TEST(missing_rank)
{
    struct cmn_options hurried = options;
    struct cmn_group group = {top.intra, "intra", &top, &hurried};
    struct cmn_window *w = NULL;

    hurried.timeout = 1;
    CHECK(cmn_window_open(&w, &group, 64, 0) == 0);
    if (top.intra_rank != 0) {
        CHECK_FATAL(cmn_window_barrier(w), "rank 0@", 1);
        CHECK(strstr(check_message, "cmn_timeout"));
    }
    MPI_Barrier(top.world);
    cmn_window_close(w);
}

/* All ranks give the reason of the one that could not. */
static void refused(size_t bytes, const char *why)
{
    struct cmn_window *w = NULL;

    cmn_fail("nothing");
    CHECK(cmn_window_open(&w, &node, bytes, 0) == -1);
    CHECK(w == NULL);
    CHECK_SAYING(strstr(cmn_reason(), why), "%s", cmn_reason());
    CHECK(strstr(cmn_reason(), "shared window"));
}

/* A limit on files is a signal for who passes it; here it is a reason. */
RANK_TEST(no_memory_and_no_file_so_large)
{
    refused((size_t)1 << 45, "MiB of memory are free");
    limit_files(1 << 20);
    refused(16 << 20, "ulimit -f");
    limit_files(0);
}

/* One rank alone cannot join: all learn of it. */
RANK_TEST(one_fails)
{
    struct rlimit now, none;
    struct cmn_window *w = NULL;
    int last = top.intra_rank == top.intra_size - 1;

    if (top.intra_size == 1) {
        return; /* nobody else to learn of it */
    }
    getrlimit(RLIMIT_NOFILE, &now);
    none = now;
    none.rlim_cur = 0;
    if (last) {
        setrlimit(RLIMIT_NOFILE, &none);
    }
    CHECK(cmn_window_open(&w, &node, 4096, 0) == -1);
    setrlimit(RLIMIT_NOFILE, &now);
    CHECK_SAYING(strstr(cmn_reason(), "/proc/"), "%s", cmn_reason());
    w = window_of(4096, 0);
    leave(w);
}

/* A descriptor for each other rank of the node, however many windows there are. */
RANK_TEST(descriptors_do_not_grow_with_windows)
{
    enum { MORE = 5 };
    int before = files_in("/proc/self/fd"), one;
    struct cmn_window *first = window_of(10, 10), *w[MORE];

    one = files_in("/proc/self/fd") - before;
    CHECK_SAYING(one <= top.intra_size - 1, "%d", one);
    for (int i = 0; i < MORE; i++) {
        w[i] = window_of(10, 10);
    }
    CHECK_SAYING(files_in("/proc/self/fd") - before == one, "%d",
                 files_in("/proc/self/fd") - before);
    cmn_window_close(first);
    CHECK(files_in("/proc/self/fd") - before == one);
    for (int i = 0; i < MORE; i++) {
        cmn_window_close(w[i]);
    }
    CHECK_SAYING(files_in("/proc/self/fd") == before, "%d", files_in("/proc/self/fd") - before);
}

static int lowest_free(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* So many ranks that the limit of descriptors is reached: the soft one is raised; with no room
 * below the hard one there is one line, and the window all the same. */
RANK_TEST(few_descriptors_are_allowed)
{
    enum { SPARE = 2 }; /* a window takes them for a moment */
    struct rlimit limit, low;
    struct cmn_window *w;
    char said[1000] = "", *line;
    int back = dup(STDERR_FILENO), file = (int)syscall(SYS_memfd_create, "said", 1U);

    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    low = (struct rlimit){(rlim_t)lowest_free() + SPARE, limit.rlim_max};
    CHECK(!setrlimit(RLIMIT_NOFILE, &low));
    w = window_of(10, 10);
    CHECK(!getrlimit(RLIMIT_NOFILE, &low));
    CHECK((top.intra_size > 1 + SPARE) == (low.rlim_cur == limit.rlim_max));
    cmn_window_close(w);
    low.rlim_cur = low.rlim_max = (rlim_t)lowest_free() + SPARE;
    CHECK(!setrlimit(RLIMIT_NOFILE, &low));
    dup2(file, STDERR_FILENO);
    w = window_of(10, 10);
    cmn_window_barrier(w);
    dup2(back, STDERR_FILENO);
    CHECK(pread(file, said, sizeof said - 1, 0) >= 0);
    line = strstr(said, "too few open files are allowed (ulimit -n ");
    CHECK_SAYING(!line == (top.rank != 0 || top.intra_size <= 1 + SPARE), "%.800s", said);
    CHECK(!line || !strstr(line + 1, "too few"));
    cmn_window_close(w);
    close(back);
    close(file);
}

static void know_node(void)
{
    node = (struct cmn_group){top.intra, "intra", &top, &options};
}

RANK_TESTS(know_node, NULL)
