#include "watchdog/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fatal.h"
#include "base/job_stderr.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "watchdog/backtrace.h"
#include "watchdog/heartbeat.h"
#include "watchdog/node_status.h"

enum { PULSE = 5 /* seconds between two events `alive` */ };

/* Milliseconds between looks; between heartbeats for other nodes; until a rank that has been told
 * of the job's end ends by itself; until a stall is reported; between a rank that can name the
 * file it waits for, and those that cannot. */
enum { LOOK_MS = 250, BEAT_MS = 500, END_MYSELF_MS = 4000, TELL_MS = 1000, FILE_FIRST_MS = 1000 };

/* Seconds until the other ranks' stacks have come through mpiexec; seconds in which mpiexec ends
 * after it was told to. */
enum { STACKS_TAKE = 1, MPIEXEC_TAKES = 3 };

/* A rank that computes, but makes no progress in its status, is given COMPUTES times
 * cmn_timeout. */
enum { COMPUTES = 4 };

static struct {
    struct cmn_watchdog_plan plan;
    const struct cmn_topology *topology; /* NULL until cmn_watchdog_open() */
    struct cmn_node_status *node;
    struct cmn_heartbeat *nodes;
    /* The status of each rank; those of this node's ranks that other nodes are told of. */
    struct cmn_rank_status *seen, *stalling;
    atomic_int open, running;
    atomic_long limit; /* milliseconds */
    pthread_t thread;
    clockid_t main_clock;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int closing;
    char apart[512]; /* why the ranks of this node cannot see each other; "" once told */

    /* Only the thread uses these. */
    unsigned long progress;
    unsigned long long bytes;
    double computed, stalled; /* seconds; milliseconds */
    long since_beat, since_diagnosis;
    int unreachable; /* 1: the diagnosis is that a host does not answer */
} dog = {.lock = PTHREAD_MUTEX_INITIALIZER, .since_beat = BEAT_MS};

/* ---- this rank ---- */

/* Returns whether the main thread has computed for more than a fifth of the last `ms`. */
static int computes(long ms)
{
    struct timespec t;
    double now, before = dog.computed;

    if (clock_gettime(dog.main_clock, &t)) {
        return 0;
    }
    now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    dog.computed = now;
    return (now - before) * 1000 > .2 * (double)ms;
}

static void look_at_myself(long ms)
{
    struct cmn_status *r = cmn_status_mine();
    unsigned long progress = atomic_load(&r->progress);
    char file[CMN_STATUS_DETAIL] = "";
    int busy = computes(ms);

    if (progress != dog.progress) {
        dog.stalled = 0;
    } else {
        unsigned long long bytes = cmn_status_io();
        dog.stalled += busy && !atomic_load(&r->waiting) ? (double)ms / COMPUTES : (double)ms;
        dog.stalled = bytes == dog.bytes ? dog.stalled : 0;
        dog.bytes = bytes;
    }
    dog.progress = progress;
    if (dog.stalled >= TELL_MS) {
        cmn_status_oldest_file(file, sizeof file);
    }
    cmn_status_store(r->detail, file, sizeof file);
    atomic_store(&r->stalled, (long)dog.stalled);
    atomic_fetch_add(&r->beats, 1);
}

static void look_at_start(void)
{
    const struct cmn_status *r = cmn_status_mine();
    long limit = atomic_load(&dog.limit), least = 1000 * dog.plan.at_least;
    char phase[CMN_STATUS_TEXT], file[CMN_STATUS_DETAIL] = "";
    char doing[sizeof phase + sizeof file + 4];

    limit = limit > least ? limit : least;
    cmn_status_oldest_file(file, sizeof file);
    /* A rank that reads a file can name it, so the ranks that wait for it let it speak first. */
    if ((atomic_load(&r->waiting) || file[0]) &&
        dog.stalled >= (double)limit + (file[0] ? 0 : FILE_FIRST_MS)) {
        cmn_status_phase(r, phase);
        snprintf(doing, sizeof doing, file[0] ? "%s (%s)" : "%s", phase, file);
        dog.plan.late(doing, limit / 1000);
    }
}

/* ---- the end ---- */

static void write_backtrace(void)
{
    char text[8192], prefix[128], phase[CMN_STATUS_TEXT];
    size_t used;

    cmn_log_prefix(prefix, sizeof prefix);
    cmn_status_phase(cmn_status_mine(), phase);
    used =
        (size_t)snprintf(text, sizeof text, "%sstack of the main thread, in: %s\n", prefix, phase);
    cmn_backtrace_text(prefix, text + used, sizeof text - used);
    cmn_job_stderr_write(text, strlen(text));
}

static void sleep_all(unsigned seconds)
{
    while (seconds) {
        seconds = sleep(seconds); /* sleep() returns early when a signal comes. */
    }
}

static void say_that_it_waits(void)
{
    char line[512];

    cmn_log_prefix(line, sizeof line);
    snprintf(line + strlen(line), sizeof line - strlen(line),
             "mpiexec runs on a host without ranks, and may wait for that host for a quarter of an "
             "hour: press Ctrl-C (cmn-run ends it by itself, and so do the ranks where "
             "mpiexec is started on one of the job's hosts)\n");
    cmn_job_stderr_write(line, strlen(line));
}

/* mpiexec waits for a host that does not answer until TCP gives up, after a quarter of an hour. A
 * rank that mpiexec started directly ends it as soon as the stacks have come through. If there is
 * no such rank, mpiexec's own keepalive may end it. */
static void end_launcher(void)
{
    sleep_all(STACKS_TAKE);
    if (!cmn_launcher_end_mpiexec()) {
        sleep_all(MPIEXEC_TAKES);
        return;
    }
    if (cmn_launcher_waits() && dog.topology->inter_rank == 0) {
        say_that_it_waits();
    }
    sleep_all((unsigned)cmn_launcher_notices());
    if (dog.topology->inter_rank && dog.seen[0].state == CMN_RANK_UNREACHABLE) {
        cmn_launcher_end_daemon();
    }
}

/* People have been told why the job ends: now all living ranks print where they are. */
static void tell_others(void)
{
    cmn_node_status_tell(dog.node);
    cmn_heartbeat_tell(dog.nodes, CMN_BEAT_DIAGNOSED);
    write_backtrace();
    if (dog.unreachable) {
        end_launcher();
    }
}

/* Another watchdog has diagnosed. If its end of the job does not reach this process, the process
 * ends by itself. */
static void attend_end(long ms)
{
    if (!dog.since_diagnosis) {
        cmn_node_status_tell(dog.node);
        write_backtrace();
    }
    dog.since_diagnosis += ms;
    if (dog.since_diagnosis > END_MYSELF_MS + 1000 * cmn_launcher_notices()) {
        dog.plan.end(NULL, NULL);
    }
}

/* ---- all ranks ---- */

static void see_my_node(void)
{
    for (int i = 0; i < cmn_node_status_known(dog.node); i++) {
        struct cmn_rank_status v;
        cmn_node_status_read(dog.node, i, &v);
        dog.seen[v.rank] = v;
    }
}

/* Sends rank 0's watchdog the ranks of this node that have ended or make no progress. */
static void send_beat(long ms)
{
    struct cmn_rank_status *tell = dog.stalling;
    int n = 0;

    dog.since_beat += ms;
    if (dog.since_beat < BEAT_MS) {
        return;
    }
    dog.since_beat = 0;
    for (int i = 0; i < cmn_node_status_known(dog.node); i++) {
        cmn_node_status_read(dog.node, i, &tell[n]);
        n += tell[n].ended || tell[n].stalled >= TELL_MS || tell[n].silent >= TELL_MS;
    }
    cmn_heartbeat_beat(dog.nodes, tell, n);
}

/* Returns whether rank 0's host answers but sends no heartbeat, and may still get a new leader,
 * since it has several ranks. */
static int others_first(long limit)
{
    enum { MORE_MS = 1500 };
    const struct cmn_rank_status *first = &dog.seen[0];
    int ranks = 0;

    for (int i = 0; i < dog.topology->size; i++) {
        ranks += !strcmp(dog.seen[i].host, first->host);
    }
    return first->state == CMN_RANK_UNHEARD && ranks > 1 && first->silent < limit + MORE_MS;
}

static void diagnose(void)
{
    long limit = atomic_load(&dog.limit);
    char why[1000];
    int diagnosis;

    if (cmn_heartbeat_elsewhere(dog.nodes, limit)) {
        return;
    }
    for (int i = 0; i < dog.topology->size; i++) {
        dog.seen[i].state = CMN_RANK_UNKNOWN;
    }
    cmn_heartbeat_see(dog.nodes, dog.seen);
    see_my_node();
    diagnosis = cmn_diagnose(dog.seen, dog.topology->size, limit, why, sizeof why);
    if (diagnosis && !others_first(limit)) {
        dog.unreachable = diagnosis == CMN_DIAGNOSED_UNREACHABLE;
        dog.plan.end(why, tell_others);
    }
}

static void look_at_all(long ms)
{
    int leads;

    cmn_node_status_look(dog.node, ms);
    leads = cmn_node_status_leads(dog.node);
    cmn_heartbeat_look(dog.nodes, ms, leads);
    if (leads) {
        send_beat(ms);
    }
    if (cmn_node_status_diagnosed(dog.node) || cmn_heartbeat_diagnosed(dog.nodes) ||
        dog.since_diagnosis) {
        attend_end(ms);
    } else if (leads) {
        diagnose();
    }
}

/* ---- the thread ---- */

/* Sleeps until the next look. Returns whether the thread is to end. */
static int nap(void)
{
    struct timespec until;
    int closing;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&dog.lock);
    while (!dog.closing && pthread_cond_timedwait(&dog.wake, &dog.lock, &until) != ETIMEDOUT) {
    }
    closing = dog.closing;
    pthread_mutex_unlock(&dog.lock);
    return closing;
}

static void *watch(void *unused)
{
    double last = cmn_clock(), pulse = last;

    (void)unused;
    while (!nap()) {
        double time = cmn_clock();
        long ms = (long)((time - last) * 1000);
        last = time;
        /* A longer gap means that the whole process was suspended. */
        ms = ms < 2 * LOOK_MS ? ms : 2 * LOOK_MS;
        look_at_myself(ms);
        if (atomic_load(&dog.open)) {
            if (dog.topology->rank == 0 && time - pulse >= PULSE) {
                cmn_job_pulse();
                pulse = time;
            }
            look_at_all(ms);
        } else {
            look_at_start();
        }
    }
    if (atomic_load(&dog.open)) {
        cmn_heartbeat_tell(dog.nodes, CMN_BEAT_BYE);
    }
    return NULL;
}

void cmn_watchdog_start(const struct cmn_watchdog_plan *plan)
{
    pthread_condattr_t how;
    int error;

    dog.plan = *plan;
    cmn_watchdog_limit(plan->limit);
    cmn_status_main();
    cmn_backtrace_open();
    if (pthread_getcpuclockid(pthread_self(), &dog.main_clock)) {
        dog.main_clock = -1;
    }
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(&dog.wake, &how);
    pthread_condattr_destroy(&how);
    error = pthread_create(&dog.thread, NULL, watch, NULL);
    if (error) {
        cmn_fatal("a thread cannot be started: %s (see ulimit -u and ulimit -v)", strerror(error));
    }
    atomic_store(&dog.running, 1);
}

void cmn_watchdog_open(const struct cmn_topology *t, const struct cmn_options *o)
{
    dog.topology = t;
    dog.seen = cmn_calloc((size_t)t->size, sizeof *dog.seen);
    dog.stalling = cmn_calloc((size_t)t->intra_size, sizeof *dog.stalling);
    dog.node = cmn_node_status_open(t, o, dog.apart, sizeof dog.apart);
    dog.nodes = cmn_heartbeat_open(t);
    cmn_status_watched(!dog.apart[0]);
    atomic_store(&dog.open, 1);
}

void cmn_watchdog_limit(long seconds)
{
    atomic_store(&dog.limit, 1000 * seconds);
    if (dog.apart[0]) {
        cmn_warn("the watchdogs of a node cannot see each other: %s", dog.apart);
        dog.apart[0] = '\0';
    }
}

static void await_node(void)
{
    const struct timespec a_moment = {.tv_nsec = 1000000};

    while (!cmn_node_status_ended(dog.node)) {
        nanosleep(&a_moment, NULL); /* The thread names a rank that does not come. */
    }
}

void cmn_watchdog_close(int together)
{
    if (!atomic_exchange(&dog.running, 0) || pthread_equal(pthread_self(), dog.thread)) {
        return;
    }
    cmn_status_ending();
    if (together && atomic_load(&dog.open)) {
        await_node();
    }
    pthread_mutex_lock(&dog.lock);
    dog.closing = 1;
    pthread_cond_signal(&dog.wake);
    pthread_mutex_unlock(&dog.lock);
    pthread_join(dog.thread, NULL);
}
