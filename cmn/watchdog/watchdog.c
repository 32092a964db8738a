#include "watchdog/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/job_stderr.h"
#include "base/status.h"
#include "watchdog/launcher.h"
#include "watchdog/heartbeat.h"
#include "watchdog/node_status.h"
#include "watchdog/backtrace.h"

/* Milliseconds between looks; the same while nodes meet, and how long that is tried; between signs of life for other nodes; until a rank ends by itself when another one has told it
 * that the job ends, and it does not; until what stands still is worth telling. */
enum { LOOK = 250, SOON = 50, MEETING = 5000, BEAT = 500, END_MYSELF = 4000, TELL = 1000 };

/* A rank that computes without a note is given so many times cmn_timeout. */
enum { COMPUTES = 4 };

static struct {
    struct cmn_watchdog_plan plan;
    const struct cmn_topology *topology; /* NULL until it is open */
    struct cmn_node_status *shared;      /* NULL: this rank knows of itself alone */
    struct cmn_heartbeat *nodes;         /* NULL on one node */
    struct cmn_rank_status *seen, *tell; /* of each rank; of those of this node that are told of */
    atomic_int open, running;
    atomic_long limit; /* milliseconds */
    pthread_t thread;
    clockid_t main_clock;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int closing;
    char apart[512]; /* why the ranks of this node cannot see each other, until that is told */

    /* the thread's */
    unsigned long moved;
    unsigned long long bytes;
    double computed, still; /* seconds; milliseconds */
    long since_beat, since_verdict;
    long meeting; /* with other nodes: how long, and whether it goes on */
    int meets;
    int cut; /* the verdict: a host does not answer */
} dog = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- this rank ---- */

/* Whether the main thread has computed for a good part of the last `ms`. */
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
    unsigned long moved = atomic_load(&r->moved);
    char file[CMN_STATUS_DETAIL] = "";
    int busy = computes(ms);

    if (moved != dog.moved) {
        dog.still = 0;
    } else {
        unsigned long long bytes = cmn_status_io();
        dog.still += busy && !atomic_load(&r->waiting) ? (double)ms / COMPUTES : (double)ms;
        dog.still = bytes == dog.bytes ? dog.still : 0;
        dog.bytes = bytes;
    }
    dog.moved = moved;
    if (dog.still >= TELL) {
        cmn_status_oldest_file(file, sizeof file);
    }
    cmn_status_store(r->detail, file, sizeof file);
    atomic_store(&r->still, (long)dog.still);
    atomic_fetch_add(&r->beats, 1);
}

static void start_late(void)
{
    const struct cmn_status *r = cmn_status_mine();
    long limit = atomic_load(&dog.limit), least = 1000 * dog.plan.at_least;
    char doing[CMN_STATUS_TEXT];

    limit = limit > least ? limit : least;
    if (atomic_load(&r->waiting) && dog.still >= (double)limit) {
        cmn_status_phase(r, doing);
        dog.plan.late(doing, limit / 1000);
    }
}

/* ---- the end ---- */

static void write_stack(void)
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

/* People have been told why: all ranks that live say where they are. */
static void tell_the_others(void)
{
    if (dog.shared) {
        cmn_node_status_tell(dog.shared);
    }
    if (dog.nodes) {
        cmn_heartbeat_tell(dog.nodes, CMN_MESSAGE_VERDICT);
    }
    write_stack();
    if (dog.cut) {
        sleep((unsigned)cmn_launcher_notices());
    }
    if (dog.cut && dog.topology->inter_rank && dog.seen[0].state == CMN_RANK_UNREACHABLE) {
        cmn_launcher_end();
    }
}

/* Another watchdog has the word. Should its end not reach this process, it ends by itself. */
static void attend_the_end(long ms)
{
    if (!dog.since_verdict) {
        if (dog.shared) {
            cmn_node_status_tell(dog.shared);
        }
        write_stack();
    }
    dog.since_verdict += ms;
    if (dog.since_verdict > END_MYSELF + 1000 * cmn_launcher_notices()) {
        dog.plan.end(NULL, NULL);
    }
}

/* ---- all ranks ---- */

/* Rank i of this node; where they share no memory, this one alone. */
static void see(int i, struct cmn_rank_status *v)
{
    if (dog.shared) {
        cmn_node_status_read(dog.shared, i, v);
    } else {
        cmn_rank_status_read(cmn_status_mine(), dog.topology, v);
        v->rank = dog.topology->rank;
    }
}

static void see_my_node(void)
{
    for (int i = 0; i < dog.topology->intra_size; i++) {
        struct cmn_rank_status v;
        see(i, &v);
        dog.seen[v.rank] = v;
    }
}

/* To rank 0's watchdog: what there is to tell of this node. */
static void send_beat(long ms)
{
    struct cmn_rank_status *tell = dog.tell;
    int n = 0;

    dog.since_beat += ms;
    if (dog.since_beat < BEAT && !dog.meets) {
        return;
    }
    dog.since_beat = 0;
    for (int i = 0; i < (dog.shared ? dog.topology->intra_size : 1); i++) {
        see(i, &tell[n]);
        n += tell[n].ended || tell[n].still >= TELL || tell[n].silent >= TELL;
    }
    cmn_heartbeat_beat(dog.nodes, tell, n);
}

/* Rank 0's host answers, and its watchdogs do not speak: where it has several ranks one of them may be about to. */
static int others_first(long limit)
{
    enum { MORE = 1500 };
    const struct cmn_rank_status *first = &dog.seen[0];
    int ranks = 0;

    for (int i = 0; i < dog.topology->size; i++) {
        ranks += !strcmp(dog.seen[i].host, first->host);
    }
    return first->state == CMN_RANK_UNHEARD && ranks > 1 && first->silent < limit + MORE;
}

static void judge(void)
{
    long limit = atomic_load(&dog.limit);
    char why[1000];
    int verdict;

    if (dog.nodes && cmn_heartbeat_elsewhere(dog.nodes, limit)) {
        return;
    }
    for (int i = 0; i < dog.topology->size; i++) {
        dog.seen[i].state = CMN_RANK_UNKNOWN;
    }
    if (dog.nodes) {
        cmn_heartbeat_see(dog.nodes, dog.seen);
    }
    see_my_node();
    verdict = cmn_diagnose(dog.seen, dog.topology->size, limit, why, sizeof why);
    if (verdict && !(dog.nodes && others_first(limit))) {
        dog.cut = verdict == CMN_DIAGNOSED_UNREACHABLE;
        dog.plan.end(why, tell_the_others);
    }
}

static void look_at_all(long ms)
{
    int speaks = 1;

    if (dog.shared) {
        cmn_node_status_look(dog.shared, ms);
        speaks = cmn_node_status_leads(dog.shared);
    }
    if (dog.nodes) {
        cmn_heartbeat_look(dog.nodes, ms, speaks);
        dog.meeting += ms;
        if (speaks) {
            send_beat(ms);
        }
        dog.meets = speaks && dog.meeting < MEETING && !cmn_heartbeat_met(dog.nodes);
    }
    if ((dog.shared && cmn_node_status_diagnosed(dog.shared)) ||
        (dog.nodes && cmn_heartbeat_diagnosed(dog.nodes)) || dog.since_verdict) {
        attend_the_end(ms);
    } else if (speaks) {
        judge();
    }
}

/* ---- the thread ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sleeps until the next look; whether this is the end. */
static int nap(void)
{
    struct timespec until;
    int closing;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (dog.meets ? SOON : LOOK) * 1000000L;
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
    double last = now();

    (void)unused;
    while (!nap()) {
        double time = now();
        long ms = (long)((time - last) * 1000);
        last = time;
        ms = ms < 2 * LOOK ? ms : 2 * LOOK; /* it slept because it was stopped */
        look_at_myself(ms);
        if (atomic_load(&dog.open)) {
            look_at_all(ms);
        } else {
            start_late();
        }
    }
    if (atomic_load(&dog.open) && dog.nodes) {
        cmn_heartbeat_tell(dog.nodes, CMN_MESSAGE_BYE);
    }
    return NULL;
}

int cmn_watchdog_start(const struct cmn_watchdog_plan *plan)
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
        return cmn_fail("a thread cannot be started: %s (see ulimit -u and ulimit -v)",
                        strerror(error));
    }
    atomic_store(&dog.running, 1);
    return 0;
}

int cmn_watchdog_open(const struct cmn_topology *t, const struct cmn_options *o)
{
    dog.topology = t;
    dog.seen = calloc((size_t)t->size, sizeof *dog.seen);
    dog.tell = calloc((size_t)t->intra_size, sizeof *dog.tell);
    if (!dog.seen || !dog.tell) {
        return cmn_fail("out of memory");
    }
    atomic_store(&cmn_status_mine()->rank, t->rank);
    if (cmn_node_status_open(&dog.shared, t, o)) {
        snprintf(dog.apart, sizeof dog.apart, "%s", cmn_reason());
        dog.shared = NULL;
    }
    if (cmn_heartbeat_open(&dog.nodes, t)) {
        return -1;
    }
    cmn_status_watched(dog.shared != NULL);
    atomic_store(&dog.open, 1);
    return 0;
}

void cmn_watchdog_limit(long seconds)
{
    atomic_store(&dog.limit, 1000 * seconds);
    if (dog.apart[0]) {
        cmn_warn("the watchdogs of a node cannot see each other: %s", dog.apart);
        dog.apart[0] = '\0';
    }
}

static void await_the_others(void)
{
    const struct timespec a_moment = {.tv_nsec = 1000000};

    while (!cmn_node_status_ended(dog.shared)) {
        nanosleep(&a_moment, NULL); /* who does not come is the thread's to name */
    }
}

void cmn_watchdog_close(int together)
{
    if (!atomic_exchange(&dog.running, 0) || pthread_equal(pthread_self(), dog.thread)) {
        return;
    }
    cmn_status_ending();
    if (together && dog.shared && atomic_load(&dog.open)) {
        await_the_others();
    }
    pthread_mutex_lock(&dog.lock);
    dog.closing = 1;
    pthread_cond_signal(&dog.wake);
    pthread_mutex_unlock(&dog.lock);
    pthread_join(dog.thread, NULL);
}
