#include "mpi/shm_barrier.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "base/timeline.h"
#include "mpi/call.h"

/* A slot takes two cache lines, because processors fetch lines in pairs. */
struct cmn_barrier_slot {
    _Alignas(128) _Atomic uint32_t arrivals;
    _Atomic uint32_t sleepers; /* number of ranks that sleep until `arrivals` changes */
};

size_t cmn_shm_barrier_bytes(int ranks)
{
    return (size_t)ranks * sizeof(struct cmn_barrier_slot);
}

/* The processes of this node that barriers watch. Each has one descriptor, which all barriers
 * share. */
static struct watched {
    long process;
    int pidfd, barriers;
} * watched;
static int watched_most;

/* With hundreds of ranks on a node, the soft limit of descriptors may be too low. A process may
 * raise it up to the hard limit by itself. */
static int pidfd_of(long process)
{
    int fd = (int)syscall(SYS_pidfd_open, process, 0);
    long limit = 0;
    static int told;

    if (fd < 0 && errno == EMFILE) {
        cmn_process_more_files(&limit);
        fd = (int)syscall(SYS_pidfd_open, process, 0);
    }
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && !told++) {
        cmn_warn("too few open files are allowed (ulimit -n %ld) to watch all ranks of this host: "
                 "should one die, it is noticed later",
                 limit);
    }
    return fd;
}

/* Returns -1 on Linux before 5.3, which has no pidfd; there only mpiexec notices a rank's death. */
static int watch(long process)
{
    struct watched *free_one = NULL;

    for (int i = 0; i < watched_most; i++) {
        struct watched *w = &watched[i];
        if (w->barriers && w->process == process) {
            w->barriers++;
            return w->pidfd;
        }
        free_one = w->barriers ? free_one : w;
    }
    if (!free_one) {
        watched = cmn_realloc(watched, (size_t)watched_most + 1, sizeof *watched);
        free_one = &watched[watched_most++];
    }
    *free_one = (struct watched){process, pidfd_of(process), 0};
    free_one->barriers = free_one->pidfd >= 0;
    return free_one->pidfd;
}

static void unwatch(int pidfd)
{
    for (int i = 0; i < watched_most && pidfd >= 0; i++) {
        if (watched[i].barriers && watched[i].pidfd == pidfd && !--watched[i].barriers) {
            close(pidfd);
            return;
        }
    }
}

static void open_pidfds(struct cmn_shm_barrier *b)
{
    long pid = getpid(), *all = cmn_calloc((size_t)b->ranks, sizeof *all);

    b->pidfd = cmn_calloc((size_t)b->ranks, sizeof *b->pidfd);
    MPI_CALL(MPI_Allgather(&pid, 1, MPI_LONG, all, 1, MPI_LONG, b->group->comm));
    for (int i = 0; i < b->ranks; i++) {
        b->pidfd[i] = i == b->rank ? -1 : watch(all[i]);
    }
    free(all);
}

/* Finds out whether there are fewer cores than ranks: then a rank that spins keeps another one from
 * working. */
static void count_cores(struct cmn_shm_barrier *b)
{
    cpu_set_t cores;

    if (sched_getaffinity(0, sizeof cores, &cores)) {
        /* The host has more cores than the set has room for. */
        memset(&cores, 0xff, sizeof cores);
    }
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, b->group->comm));
    b->oversubscribed = CPU_COUNT(&cores) < b->ranks;
}

void cmn_shm_barrier_open(struct cmn_shm_barrier *b, const struct cmn_group *group, void *slots)
{
    memset(b, 0, sizeof *b);
    b->group = group;
    b->slot = slots;
    MPI_Comm_rank(group->comm, &b->rank);
    MPI_Comm_size(group->comm, &b->ranks);
    count_cores(b);
    open_pidfds(b);
}

void cmn_shm_barrier_close(struct cmn_shm_barrier *b)
{
    for (int i = 0; b->pidfd && i < b->ranks; i++) {
        unwatch(b->pidfd[i]);
    }
    free(b->pidfd);
    memset(b, 0, sizeof *b);
}

/* A waiting rank first spins, but only for a short time, as the other rank may need its core. Then
 * it yields the core. At last it sleeps, and checks from time to time whether the other process
 * still lives. A rank that calls idle() does not sleep and checks more often: Open MPI on another
 * node ends the job soon after it has lost the dead rank, and does not name it. */
enum { SPINS = 2000, YIELD_US = 400, SLEEP_MS = 100, CHECK_MS = 2 };

/* Ranks are only a few barriers apart, so the comparison holds when the numbers wrap around. */
static int arrived(const struct cmn_barrier_slot *s, uint32_t barrier)
{
    return (int32_t)(atomic_load(&s->arrivals) - barrier) >= 0;
}

static int dead(const struct cmn_shm_barrier *b, int rank)
{
    struct pollfd p = {.fd = b->pidfd[rank], .events = POLLIN};

    return p.fd >= 0 && poll(&p, 1, 0) > 0;
}

/* No wake-up is lost. A sleeper adds itself to `sleepers` before it reads `arrivals` for the last
 * time, and a waker changes `arrivals` before it reads `sleepers`. These four operations have one
 * order (sequential consistency), so at least one of the two sees the other. The kernel compares
 * `arrivals` with `seen` once more before it lets the sleeper sleep. */
static void sleep_once(struct cmn_barrier_slot *s, uint32_t seen, uint32_t barrier)
{
    struct timespec limit = {0, SLEEP_MS * 1000000L};

    atomic_fetch_add(&s->sleepers, 1);
    if (!arrived(s, barrier)) {
        syscall(SYS_futex, &s->arrivals, FUTEX_WAIT, seen, &limit, NULL, 0);
    }
    atomic_fetch_sub(&s->sleepers, 1);
}

/* Ends the job if `rank` is dead or late. */
static void check_peer(const struct cmn_shm_barrier *b, int rank, uint32_t barrier, double since)
{
    const char *purpose = b->purpose ? b->purpose : "", *colon = b->purpose ? ": " : "";

    /* The order of these two checks matters: a rank that arrived and then ended is not reported. */
    if (dead(b, rank) && !arrived(&b->slot[rank], barrier)) {
        cmn_fatal_lost("%s%sshm: rank %d@%s died during an exchange", purpose, colon,
                       cmn_world_rank(b->group->comm, rank), b->group->topology->host);
    }
    if (cmn_status_timed_out(cmn_clock() - since, b->group->options->timeout)) {
        cmn_fatal_lost(
            "%s%sshm: rank %d@%s did not come to the exchange within %ld s (cmn_timeout)", purpose,
            colon, cmn_world_rank(b->group->comm, rank), b->group->topology->host,
            b->group->options->timeout);
    }
}

static void wait_idling(struct cmn_shm_barrier *b, int rank, uint32_t barrier, double since)
{
    double check = since;

    while (!arrived(&b->slot[rank], barrier)) {
        b->idle(b->idle_self);
        sched_yield();
        if (cmn_clock() >= check) {
            check = cmn_clock() + 1e-3 * CHECK_MS;
            check_peer(b, rank, barrier, since);
        }
    }
}

static void wait_sleeping(struct cmn_shm_barrier *b, int rank, uint32_t barrier, double since)
{
    struct cmn_barrier_slot *s = &b->slot[rank];

    while ((cmn_clock() - since) * 1e6 < YIELD_US) {
        if (arrived(s, barrier)) {
            return;
        }
        sched_yield();
    }
    while (!arrived(s, barrier)) {
        sleep_once(s, atomic_load(&s->arrivals), barrier);
        if (!arrived(s, barrier)) {
            check_peer(b, rank, barrier, since);
        }
    }
}

static void wait_for(struct cmn_shm_barrier *b, int rank, uint32_t barrier)
{
    const struct cmn_barrier_slot *s = &b->slot[rank];
    double since;

    for (int i = 0; i < (b->oversubscribed ? 1 : SPINS); i++) {
        if (arrived(s, barrier)) {
            return;
        }
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
    since = cmn_clock();
    cmn_status_wait_begin();
    (b->idle ? wait_idling : wait_sleeping)(b, rank, barrier, since);
    cmn_status_wait_end();
    cmn_timeline_span(CMN_SPAN_WAIT, -1, since, cmn_clock());
}

/* The store to `arrivals` releases all stores made before it, and a rank that reads the new value
 * acquires them. base/reduce.c fences its non-temporal stores itself. */
uint32_t cmn_shm_barrier_arrive(struct cmn_shm_barrier *b)
{
    struct cmn_barrier_slot *mine = &b->slot[b->rank];

    b->arrivals++;
    atomic_store(&mine->arrivals, b->arrivals);
    if (atomic_load(&mine->sleepers)) {
        syscall(SYS_futex, &mine->arrivals, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    return b->arrivals;
}

int cmn_shm_barrier_complete(const struct cmn_shm_barrier *b, uint32_t barrier)
{
    for (int i = 0; i < b->ranks; i++) {
        if (!arrived(&b->slot[i], barrier)) {
            return 0;
        }
    }
    return 1;
}

void cmn_shm_barrier_await(struct cmn_shm_barrier *b, uint32_t barrier)
{
    for (int i = 1; i < b->ranks; i++) {
        wait_for(b, (b->rank + i) % b->ranks, barrier);
    }
}

void cmn_shm_barrier_wait(struct cmn_shm_barrier *b)
{
    cmn_shm_barrier_await(b, cmn_shm_barrier_arrive(b));
}
