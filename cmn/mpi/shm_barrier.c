#include "mpi/shm_barrier.h"

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

#include "base/log.h"
#include "base/timeline.h"
#include "base/status.h"

/* How often a rank came to a barrier. Lines of their own, two because processors fetch them in pairs. */
struct cmn_barrier_slot {
    _Alignas(128) _Atomic uint32_t met;
    _Atomic uint32_t sleepers; /* ranks that sleep until `met` changes */
};

size_t cmn_shm_barrier_bytes(int ranks)
{
    return (size_t)ranks * sizeof(struct cmn_barrier_slot);
}

static int open_peers(struct cmn_shm_barrier *m)
{
    long pid = getpid(), *all = calloc((size_t)m->ranks, sizeof *all);
    int result;

    m->peer = calloc((size_t)m->ranks, sizeof *m->peer);
    if (!all || !m->peer) {
        free(all);
        return cmn_fail("out of memory");
    }
    result = cmn_mpi_check(MPI_Allgather(&pid, 1, MPI_LONG, all, 1, MPI_LONG, m->group->comm),
                           "MPI_Allgather");
    for (int i = 0; i < m->ranks; i++) {
        /* Linux before 5.3 has no pidfd: there, mpiexec alone notices a rank's death. */
        m->peer[i] = result || i == m->rank ? -1 : (int)syscall(SYS_pidfd_open, all[i], 0);
    }
    free(all);
    return result;
}

/* Whether the ranks have fewer cores than they are: who spins then keeps another from working. */
static int count_cores(struct cmn_shm_barrier *m)
{
    cpu_set_t cores;

    if (sched_getaffinity(0, sizeof cores, &cores)) {
        memset(&cores, 0xff, sizeof cores); /* more cores than the set has room for */
    }
    if (cmn_mpi_check(
            MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, m->group->comm),
            "MPI_Allreduce")) {
        return -1;
    }
    m->crowded = CPU_COUNT(&cores) < m->ranks;
    return 0;
}

int cmn_shm_barrier_open(struct cmn_shm_barrier *m, const struct cmn_group *group, void *signs)
{
    memset(m, 0, sizeof *m);
    m->group = group;
    m->sign = signs;
    MPI_Comm_rank(group->comm, &m->rank);
    MPI_Comm_size(group->comm, &m->ranks);
    return count_cores(m) || open_peers(m) ? -1 : 0;
}

void cmn_shm_barrier_close(struct cmn_shm_barrier *m)
{
    for (int i = 0; m->peer && i < m->ranks; i++) {
        if (m->peer[i] >= 0) {
            close(m->peer[i]);
        }
    }
    free(m->peer);
    memset(m, 0, sizeof *m);
}

/* Spins are short, as the other rank may need this core; then the core is offered, and at last the rank
 * sleeps and looks now and then whether the other one still lives. Who does not sleep looks more often: on another node Open MPI ends
 * the job soon after it has lost the dead rank, and does not name it. */
enum { SPINS = 2000, YIELD_US = 400, NAP_MS = 100, LOOK_MS = 2 };

/* Nobody is far ahead of anybody, so numbers that wrap round compare all the same. */
static int reached(const struct cmn_barrier_slot *s, uint32_t barrier)
{
    return (int32_t)(atomic_load(&s->met) - barrier) >= 0;
}

static int gone(const struct cmn_shm_barrier *m, int rank)
{
    struct pollfd p = {.fd = m->peer[rank], .events = POLLIN};

    return p.fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Nobody oversleeps: a sleeper counts itself before it looks at `met` for the last time, a waker changes `met` before it
 * looks for sleepers, and all four are atomic in one order, so at least one of them sees the other. The
 * kernel compares `met` with `seen` once more before it lets the sleeper sleep. */
static void nap_until(struct cmn_barrier_slot *s, uint32_t seen, uint32_t barrier)
{
    struct timespec nap = {0, NAP_MS * 1000000L};

    atomic_fetch_add(&s->sleepers, 1);
    if (!reached(s, barrier)) {
        syscall(SYS_futex, &s->met, FUTEX_WAIT, seen, &nap, NULL, 0);
    }
    atomic_fetch_sub(&s->sleepers, 1);
}

static int sleep_until(struct cmn_shm_barrier *m, int rank, uint32_t barrier, double since)
{
    struct cmn_barrier_slot *s = &m->sign[rank];
    double look = since;

    while (!reached(s, barrier)) {
        uint32_t seen = atomic_load(&s->met);
        if (m->idle) {
            if (m->idle(m->idler)) {
                return -1;
            }
            sched_yield();
            if (reached(s, barrier) || cmn_clock() < look) {
                continue;
            }
            look = cmn_clock() + 1e-3 * LOOK_MS;
        } else {
            nap_until(s, seen, barrier);
        }
        if (reached(s, barrier)) {
            return 0;
        }
        /* Looked at in this order: who came to the barrier, and ended then, is not missed. */
        if (gone(m, rank) && !reached(s, barrier)) {
            return cmn_fail_lost("shm: rank %d@%s died during an exchange",
                                 cmn_world_rank(m->group->comm, rank), m->group->topology->host);
        }
        if (cmn_status_timed_out(cmn_clock() - since, m->group->options->timeout)) {
            return cmn_fail_lost("shm: rank %d@%s did not come to the exchange within %ld s "
                                 "(cmn_timeout)",
                                 cmn_world_rank(m->group->comm, rank), m->group->topology->host,
                                 m->group->options->timeout);
        }
    }
    return 0;
}

static int wait_long(struct cmn_shm_barrier *m, int rank, uint32_t barrier, double since)
{
    const struct cmn_barrier_slot *s = &m->sign[rank];

    while (!m->idle && (cmn_clock() - since) * 1e6 < YIELD_US) {
        if (reached(s, barrier)) {
            return 0;
        }
        sched_yield();
    }
    return sleep_until(m, rank, barrier, since);
}

static int wait_for(struct cmn_shm_barrier *m, int rank, uint32_t barrier)
{
    const struct cmn_barrier_slot *s = &m->sign[rank];
    double since;
    int result;

    for (int i = 0; i < (m->crowded ? 1 : SPINS); i++) {
        if (reached(s, barrier)) {
            return 0;
        }
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
    since = cmn_clock();
    cmn_status_wait_begin();
    result = wait_long(m, rank, barrier, since);
    cmn_status_wait_end();
    cmn_timeline_span(CMN_SPAN_WAIT, -1, since, cmn_clock());
    return result;
}

/* Stores made before come before that of `met`: it is one that releases, and those past the caches are fenced by the
 * functions of sums.c that make them. Who reads the new `met` acquires them. */
uint32_t cmn_shm_barrier_arrive(struct cmn_shm_barrier *m)
{
    struct cmn_barrier_slot *mine = &m->sign[m->rank];

    m->met++;
    atomic_store(&mine->met, m->met);
    if (atomic_load(&mine->sleepers)) {
        syscall(SYS_futex, &mine->met, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    return m->met;
}

int cmn_shm_barrier_complete(const struct cmn_shm_barrier *m, uint32_t barrier)
{
    for (int i = 0; i < m->ranks; i++) {
        if (!reached(&m->sign[i], barrier)) {
            return 0;
        }
    }
    return 1;
}

int cmn_shm_barrier_await(struct cmn_shm_barrier *m, uint32_t barrier)
{
    for (int i = 1; i < m->ranks; i++) {
        if (wait_for(m, (m->rank + i) % m->ranks, barrier)) {
            return -1;
        }
    }
    return 0;
}

int cmn_shm_barrier_wait(struct cmn_shm_barrier *m)
{
    return cmn_shm_barrier_await(m, cmn_shm_barrier_arrive(m));
}
