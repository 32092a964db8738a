#include "transports/window.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "memory.h"

/* A rank's sign: how often it came to a meeting. Lines of their own, two because processors fetch
 * them in pairs. */
struct sign {
    _Alignas(128) _Atomic uint32_t met;
    _Atomic uint32_t sleepers; /* ranks that sleep until `met` changes */
    uint64_t token;            /* in rank 0's sign: proves that it is the same file */
};

struct cmn_window {
    const struct cmn_group *group;
    char *base;
    size_t size;   /* of all */
    size_t begin;  /* of the parts, in bytes from base */
    size_t stride; /* from part to part */
    size_t common; /* begin of the common part */
    int rank, ranks;
    uint32_t met;
    int crowded; /* more ranks than cores: who spins keeps another from working */
    int *peer;   /* pidfd of each rank, or -1 */
};

enum { PAGE = 4096 };

static size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static struct sign *sign_of(const struct cmn_window *w, int rank)
{
    return (struct sign *)(void *)w->base + rank;
}

void *cmn_window_part(const struct cmn_window *w, int rank)
{
    return w->base + w->begin + (size_t)rank * w->stride;
}

void *cmn_window_common(const struct cmn_window *w)
{
    return w->base + w->common;
}

int cmn_window_holds(const struct cmn_window *w, const void *at, size_t bytes)
{
    const char *begin = cmn_window_part(w, w->rank), *p = at;

    return p >= begin && p + bytes <= begin + w->stride;
}

/* ---- opening ---- */

/* Sizes are the group's largest, so that all ranks see one layout. */
static int lay_out(struct cmn_window *w, size_t bytes, size_t common)
{
    unsigned long long want[2] = {bytes, common};

    if (cmn_mpi_check(
            MPI_Allreduce(MPI_IN_PLACE, want, 2, MPI_UNSIGNED_LONG_LONG, MPI_MAX, w->group->comm),
            "MPI_Allreduce")) {
        return -1;
    }
    w->begin = rounded((size_t)w->ranks * sizeof(struct sign), PAGE);
    /* Parts at a multiple of a large power of two would meet in the same lines of the caches. */
    w->stride = rounded((size_t)want[0], PAGE) + PAGE + 5 * 128;
    w->common = rounded(w->begin + (size_t)w->ranks * w->stride, PAGE);
    w->size = rounded(w->common + (size_t)want[1], PAGE);
    return 0;
}

static int affordable(size_t bytes)
{
    struct rlimit most;
    size_t left = cmn_memory_free();

    if (bytes > left) {
        return cmn_fail("a shared window of %zu MiB cannot be had: %zu MiB of memory are free",
                        bytes >> 20, left >> 20);
    }
    if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY &&
        bytes > most.rlim_cur) {
        return cmn_fail("a shared window of %zu MiB cannot be had: the limit of a file's size "
                        "(ulimit -f) is %zu KiB",
                        bytes >> 20, (size_t)(most.rlim_cur >> 10));
    }
    return 0;
}

/* What rank 0 of the group tells the others: which file of which process to open, and what stands in it. */
struct place {
    long process, file; /* no file: -1 */
    uint64_t token;
};

/* On rank 0 of the group. Returns what join() is to close; where->file stays -1, with a reason, on a failure. */
static int create(const struct cmn_window *w, struct place *where)
{
    int file;

    if (getrandom(&where->token, sizeof where->token, 0) != sizeof where->token) {
        where->token = (uint64_t)getpid() * 2654435761U;
    }
    if (affordable(w->size)) {
        return -1;
    }
    file = (int)syscall(SYS_memfd_create, "cmn", 1U /* MFD_CLOEXEC */);
    if (file < 0 || ftruncate(file, (off_t)w->size) ||
        pwrite(file, &where->token, sizeof where->token, offsetof(struct sign, token)) !=
            sizeof where->token) {
        cmn_fail("a shared window of %zu MiB cannot be had: %s", w->size >> 20, strerror(errno));
        return file;
    }
    where->process = getpid();
    where->file = file;
    return file;
}

/* In another container a process id means another process, whose file must not be touched. */
static int is_the_window(int file, const struct place *where)
{
    uint64_t found = ~where->token;

    return pread(file, &found, sizeof found, offsetof(struct sign, token)) == sizeof found &&
           found == where->token;
}

/* Reserves this rank's share of the pages, so that they lie in the memory next to its cores. */
static int reserve(const struct cmn_window *w, int file)
{
    size_t begin = w->rank == 0 ? 0 : w->begin + (size_t)w->rank * w->stride;
    size_t end = w->rank == w->ranks - 1 ? w->size : w->begin + ((size_t)w->rank + 1) * w->stride;
    int result;

    do {
        result = fallocate(file, 0, (off_t)begin, (off_t)(end - begin));
    } while (result && errno == EINTR);
    return result ? cmn_fail("a shared window of %zu MiB cannot be had: %s", w->size >> 20,
                             strerror(errno))
                  : 0;
}

static int map(struct cmn_window *w, const struct place *where)
{
    static const char apart[] =
        " (ranks of one host in different containers cannot share memory: use cmn_intra=mpi)";
    char name[64];
    void *at;
    int file, result = 0;

    snprintf(name, sizeof name, "/proc/%ld/fd/%ld", where->process, where->file);
    file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return cmn_fail("a shared window cannot be had: %s: %s%s", name, strerror(errno), apart);
    }
    if (!is_the_window(file, where)) {
        result = cmn_fail("a shared window cannot be had: %s is not rank 0's%s", name, apart);
    } else if (reserve(w, file)) {
        result = -1;
    } else {
        at = mmap(NULL, w->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
        w->base = at == MAP_FAILED ? NULL : at;
        result = w->base ? 0
                         : cmn_fail("a shared window of %zu MiB cannot be mapped: %s",
                                    w->size >> 20, strerror(errno));
    }
    close(file);
    return result;
}

/* All or none: a rank that fails alone would leave the others waiting. All get the reason of the first that
 * failed, so that whoever speaks for the job says it. */
static int all_well(const struct cmn_window *w, int result)
{
    struct {
        int bad, rank;
    } mine = {result != 0, w->rank}, worst;
    char why[512] = "";

    if (cmn_mpi_check(MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MAXLOC, w->group->comm),
                      "MPI_Allreduce")) {
        return -1;
    }
    if (!worst.bad) {
        return 0;
    }
    snprintf(why, sizeof why, "%s", cmn_reason());
    if (cmn_mpi_check(MPI_Bcast(why, sizeof why, MPI_CHAR, worst.rank, w->group->comm),
                      "MPI_Bcast")) {
        return -1;
    }
    return cmn_fail("%s", why);
}

static int open_peers(struct cmn_window *w)
{
    long pid = getpid(), *all = calloc((size_t)w->ranks, sizeof *all);
    int result;

    w->peer = calloc((size_t)w->ranks, sizeof *w->peer);
    if (!all || !w->peer) {
        free(all);
        return cmn_fail("out of memory");
    }
    result = cmn_mpi_check(MPI_Allgather(&pid, 1, MPI_LONG, all, 1, MPI_LONG, w->group->comm),
                           "MPI_Allgather");
    for (int i = 0; i < w->ranks; i++) {
        /* Linux before 5.3 has no pidfd: there, mpiexec alone notices a rank's death. */
        w->peer[i] = result || i == w->rank ? -1 : (int)syscall(SYS_pidfd_open, all[i], 0);
    }
    free(all);
    return result;
}

static int join(struct cmn_window *w)
{
    struct place where = {-1, -1, 0};
    int file = w->rank == 0 ? create(w, &where) : -1, result;

    result =
        cmn_mpi_check(MPI_Bcast(&where, sizeof where, MPI_BYTE, 0, w->group->comm), "MPI_Bcast");
    if (!result) {
        /* Without a file only rank 0 has failed, and has the reason. */
        result = where.file < 0 ? -(w->rank == 0) : map(w, &where);
        result = all_well(w, result);
    }
    if (file >= 0) {
        close(file); /* the mappings keep it */
    }
    return result;
}

int cmn_window_open(struct cmn_window **window, const struct cmn_group *group, size_t bytes,
                    size_t common)
{
    struct cmn_window *w = calloc(1, sizeof *w);
    cpu_set_t cores;

    *window = w;
    if (!w) {
        return cmn_fail("out of memory");
    }
    w->group = group;
    MPI_Comm_rank(group->comm, &w->rank);
    MPI_Comm_size(group->comm, &w->ranks);
    w->crowded = !sched_getaffinity(0, sizeof cores, &cores) && CPU_COUNT(&cores) < w->ranks;
    if (lay_out(w, bytes, common) || join(w) || open_peers(w)) {
        cmn_window_close(w);
        *window = NULL;
        return -1;
    }
    return 0;
}

void cmn_window_close(struct cmn_window *w)
{
    if (!w) {
        return;
    }
    for (int i = 0; w->peer && i < w->ranks; i++) {
        if (w->peer[i] >= 0) {
            close(w->peer[i]);
        }
    }
    if (w->base) {
        munmap(w->base, w->size);
    }
    free(w->peer);
    free(w);
}

/* ---- meeting ---- */

/* Spins are short, as the other rank may need this core; then the core is offered, and at last the rank
 * sleeps and looks now and then whether the other one still lives. */
enum { SPINS = 2000, YIELD_US = 400, NAP_MS = 100 };

/* Nobody is more than one meeting ahead of anybody, so numbers that wrap round compare all the same. */
static int reached(const struct sign *s, uint32_t meeting)
{
    return (int32_t)(atomic_load(&s->met) - meeting) >= 0;
}

static int world_rank(const struct cmn_window *w, int rank)
{
    MPI_Group mine, world;
    int number = rank;

    MPI_Comm_group(w->group->comm, &mine);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(mine, 1, &rank, world, &number);
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
    return number;
}

static int gone(const struct cmn_window *w, int rank)
{
    struct pollfd p = {.fd = w->peer[rank], .events = POLLIN};

    return p.fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Nobody oversleeps: a sleeper counts itself before it looks at `met` for the last time, a waker changes `met` before it
 * looks for sleepers, and all four are atomic in one order, so at least one of them sees the other. The
 * kernel compares `met` with `seen` once more before it lets the sleeper sleep. */
static int sleep_until(struct cmn_window *w, int rank, double since)
{
    struct sign *s = sign_of(w, rank);
    struct timespec nap = {0, NAP_MS * 1000000L};
    double limit = (double)w->group->options->timeout;

    while (!reached(s, w->met)) {
        uint32_t seen = atomic_load(&s->met);
        atomic_fetch_add(&s->sleepers, 1);
        if (!reached(s, w->met)) {
            syscall(SYS_futex, &s->met, FUTEX_WAIT, seen, &nap, NULL, 0);
        }
        atomic_fetch_sub(&s->sleepers, 1);
        if (reached(s, w->met)) {
            return 0;
        }
        /* Looked at in this order: who came to the meeting, and ended then, is not missed. */
        if (gone(w, rank) && !reached(s, w->met)) {
            return cmn_fail("shm: rank %d on this host died during an exchange",
                            world_rank(w, rank));
        }
        if (cmn_clock() - since > limit) {
            return cmn_fail("shm: rank %d on this host did not come to the exchange within %ld s "
                            "(cmn_timeout)",
                            world_rank(w, rank), w->group->options->timeout);
        }
    }
    return 0;
}

static int wait_for(struct cmn_window *w, int rank)
{
    const struct sign *s = sign_of(w, rank);
    double since;

    for (int i = 0; i < (w->crowded ? 1 : SPINS); i++) {
        if (reached(s, w->met)) {
            return 0;
        }
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
    since = cmn_clock();
    while ((cmn_clock() - since) * 1e6 < YIELD_US) {
        if (reached(s, w->met)) {
            return 0;
        }
        sched_yield();
    }
    return sleep_until(w, rank, since);
}

/* Stores made before come before that of `met`: it is one that releases, and those past the caches are fenced by the
 * functions of sums.c that make them. Who reads the new `met` acquires them. */
int cmn_window_meet(struct cmn_window *w)
{
    struct sign *mine = sign_of(w, w->rank);

    w->met++;
    atomic_store(&mine->met, w->met);
    if (atomic_load(&mine->sleepers)) {
        syscall(SYS_futex, &mine->met, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    for (int i = 1; i < w->ranks; i++) {
        if (wait_for(w, (w->rank + i) % w->ranks)) {
            return -1;
        }
    }
    return 0;
}
