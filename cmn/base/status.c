#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* This holds the status until the ranks share memory. */
static struct cmn_status alone = {.layer = -1, .bucket = -1, .iteration = -1};
static struct cmn_status *_Atomic mine = &alone;

static _Thread_local int is_main, depth;
/* The main thread's phase, and its last phase without a wait. */
static const char *now = "the start", *work = "the start";
static atomic_int watched;

static struct cmn_status *record(void)
{
    return atomic_load_explicit(&mine, memory_order_relaxed);
}

/* ---- texts that others read while they change ---- */

void cmn_status_store(_Atomic uint64_t *to, const char *text, size_t bytes)
{
    char whole[CMN_STATUS_DETAIL] = "";
    uint64_t word;

    memcpy(whole, text, strnlen(text, bytes - 1));
    for (size_t i = 0; i < bytes / 8; i++) {
        memcpy(&word, whole + 8 * i, 8);
        atomic_store_explicit(&to[i], word, memory_order_relaxed);
    }
}

void cmn_status_fetch(const _Atomic uint64_t *from, char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);
        memcpy(text + 8 * i, &word, 8);
    }
    text[bytes - 1] = '\0';
}

void cmn_status_phase(const struct cmn_status *r, char *text)
{
    /* A rank that is stopped while it writes leaves an odd version for ever. Then the text is taken
     * as it is. */
    for (int i = 0; i < 100; i++) {
        unsigned before = atomic_load(&r->version);
        cmn_status_fetch(r->phase, text, CMN_STATUS_TEXT);
        if (before % 2 == 0 && atomic_load(&r->version) == before) {
            return;
        }
    }
}

static void set_phase(const char *what, int waiting)
{
    struct cmn_status *r = record();

    atomic_store_explicit(&r->waiting, waiting, memory_order_relaxed);
    if (what != now) {
        now = what;
        atomic_fetch_add(&r->version, 1);
        cmn_status_store(r->phase, what, CMN_STATUS_TEXT);
        atomic_fetch_add(&r->version, 1);
        atomic_store_explicit(&r->layer, -1, memory_order_relaxed);
        atomic_store_explicit(&r->bucket, -1, memory_order_relaxed);
    }
    cmn_status_progress();
}

/* ---- updates ---- */

void cmn_status_main(void)
{
    is_main = 1;
}

void cmn_status_wait(const char *what)
{
    if (!is_main) {
        return;
    }
    depth = what != NULL;
    if (what) {
        atomic_fetch_add_explicit(&record()->exchanges, 1, memory_order_relaxed);
    }
    set_phase(what ? what : work, depth);
}

void cmn_status_compute(const char *what)
{
    if (is_main) {
        work = what;
        depth = 0;
        set_phase(what, 0);
    }
}

void cmn_status_wait_begin(void)
{
    if (is_main && depth++ == 0) {
        atomic_store_explicit(&record()->waiting, 1, memory_order_relaxed);
        cmn_status_progress();
    }
}

void cmn_status_wait_end(void)
{
    if (is_main && depth > 0 && --depth == 0) {
        cmn_status_progress();
        atomic_store_explicit(&record()->waiting, 0, memory_order_relaxed);
    }
}

void cmn_status_ending(void)
{
    atomic_store(&record()->ended, 1);
}

void cmn_status_progress(void)
{
    atomic_fetch_add_explicit(&record()->progress, 1, memory_order_relaxed);
}

void cmn_status_iteration(long iteration)
{
    atomic_store_explicit(&record()->iteration, iteration, memory_order_relaxed);
}

void cmn_status_layer(int layer)
{
    atomic_store_explicit(&record()->layer, layer, memory_order_relaxed);
    cmn_status_progress();
}

void cmn_status_bucket(int bucket)
{
    atomic_store_explicit(&record()->bucket, bucket, memory_order_relaxed);
    cmn_status_progress();
}

void cmn_status_bytes(size_t bytes)
{
    atomic_fetch_add_explicit(&record()->bytes, (long)bytes, memory_order_relaxed);
}

int cmn_status_timed_out(double seconds, long timeout)
{
    return seconds > (double)timeout && !atomic_load_explicit(&watched, memory_order_relaxed);
}

/* ---- files that are being read ---- */

enum { FILES = 64 };

static struct {
    double since; /* 0: free */
    char name[CMN_STATUS_DETAIL];
} file[FILES];
static pthread_mutex_t files = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int own = -1;

void cmn_status_file(const char *name)
{
    pthread_mutex_lock(&files);
    if (own < 0) {
        for (own = FILES - 1; own >= 0 && file[own].since > 0; own--) {
        }
    }
    if (own >= 0 && name) {
        size_t n = strlen(name);
        /* The end of a path tells more than its beginning. */
        name += n < CMN_STATUS_DETAIL ? 0 : n - CMN_STATUS_DETAIL + 1;
        memcpy(file[own].name, name, strlen(name) + 1);
        file[own].since = cmn_clock();
    } else if (own >= 0) {
        file[own].since = 0;
        own = -1; /* Threads come and go, so the entry becomes free. */
    }
    pthread_mutex_unlock(&files);
    cmn_status_progress();
}

void cmn_status_oldest_file(char *text, size_t bytes)
{
    int oldest = -1;

    text[0] = '\0';
    pthread_mutex_lock(&files);
    for (int i = 0; i < FILES; i++) {
        if (file[i].since > 0 && (oldest < 0 || file[i].since < file[oldest].since)) {
            oldest = i;
        }
    }
    if (oldest >= 0) {
        size_t n = strnlen(file[oldest].name, bytes - 1);
        memcpy(text, file[oldest].name, n);
        text[n] = '\0';
    }
    pthread_mutex_unlock(&files);
}

/* ---- for the watchdog ---- */

unsigned long long cmn_status_io(void)
{
    char name[64], line[128];
    unsigned long long sum = 0, n;
    FILE *io;

    snprintf(name, sizeof name, "/proc/self/task/%d/io", (int)getpid());
    io = fopen(name, "re");
    while (io && fgets(line, sizeof line, io)) {
        sum += sscanf(line, "rchar: %llu", &n) == 1 || sscanf(line, "wchar: %llu", &n) == 1 ? n : 0;
    }
    if (io) {
        fclose(io);
    }
    return sum;
}

struct cmn_status *cmn_status_mine(void)
{
    return record();
}

void cmn_status_move(struct cmn_status *to)
{
    struct cmn_status *from = record();
    char text[CMN_STATUS_TEXT];

    cmn_status_phase(from, text);
    cmn_status_store(to->phase, text, sizeof text);
    atomic_store(&to->waiting, atomic_load(&from->waiting));
    atomic_store(&to->layer, atomic_load(&from->layer));
    atomic_store(&to->bucket, atomic_load(&from->bucket));
    atomic_store(&to->iteration, atomic_load(&from->iteration));
    atomic_store(&to->exchanges, atomic_load(&from->exchanges));
    atomic_store(&to->bytes, atomic_load(&from->bytes));
    atomic_store(&to->progress, atomic_load(&from->progress));
    atomic_store(&to->pid, (int)getpid());
    atomic_store(&mine, to);
}

void cmn_status_watched(int is)
{
    atomic_store(&watched, is);
}
