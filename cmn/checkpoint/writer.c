/* The writer of checkpoints: one at a time, on a thread of its own. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/directory.h"
#include "checkpoint/format.h"
#include "base/log.h"
#include "base/status.h"

struct cmn_writer {
    char *folder, *name;
    int keep;
    int lock; /* -2: the file system knows none */

    pthread_t thread;
    int running; /* there is a thread to be joined */
    struct cmn_snapshot *snapshot;
    long iteration;
    struct cmn_snapshot *spare; /* the memory of the one before */

    pthread_mutex_t mutex; /* of what follows */
    int done;              /* the thread has nothing left to do */
    int supersede;
    long written;
    long failed;     /* its iteration */
    char text[1024]; /* which, and why */
};

static int keep_lock(struct cmn_writer *w, int folder)
{
    if (w->lock >= 0 && !cmn_directory_locked(w->lock)) {
        close(w->lock);
        w->lock = -1;
    }
    if (w->lock == -1) {
        w->lock = cmn_directory_lock(folder, w->name);
    }
    return w->lock == -1 ? -1 : 0;
}

struct cmn_writer *cmn_writer_open(const char *folder, const char *name, int keep)
{
    struct cmn_writer *w = calloc(1, sizeof *w);
    int fd = -1;

    if (!w || !(w->folder = strdup(folder)) || !(w->name = strdup(name))) {
        cmn_fail("out of memory");
        goto fail;
    }
    pthread_mutex_init(&w->mutex, NULL);
    w->keep = keep;
    w->lock = -1;
    w->written = -1;
    /* As the longest of the names: set aside, with the digits of an iteration. */
    if (strlen(name) + strlen("..superseded-.checkpoint") + 18 > NAME_MAX) {
        cmn_fail("%s is too long a name for checkpoints", name);
        goto fail;
    }
    fd = cmn_directory_open(folder);
    if (fd < 0) {
        goto fail;
    }
    if (keep_lock(w, fd)) {
        cmn_fail_in("%s", folder);
        goto fail;
    }
    cmn_directory_sweep(fd, name);
    if (cmn_directory_unhide(fd, name)) {
        cmn_fail("%s: the checkpoints of %s cannot get their names again: %s", folder, name,
                 strerror(errno));
        if (w->lock >= 0) {
            cmn_directory_unlock(fd, name, w->lock);
        }
        goto fail;
    }
    close(fd);
    return w;
fail:
    if (fd >= 0) {
        close(fd);
    }
    if (w) {
        free(w->folder);
        free(w->name);
        free(w);
    }
    return NULL;
}

static int write_all(int fd, const unsigned char *bytes, size_t n)
{
    enum { PIECE = 1 << 26 };
    ssize_t done;

    while (n) {
        done = write(fd, bytes, n < PIECE ? n : PIECE);
        if (done < 0 && errno != EINTR) {
            return -1;
        }
        if (done == 0) {
            errno = ENOSPC;
            return -1;
        }
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
            /* A slow disk is no rank that stands still; else all of its time would be one fsync's. */
            if (n && fdatasync(fd)) {
                return -1;
            }
            cmn_status_progress();
        }
    }
    return 0;
}

/* Everything of `bytes` is on the disk, under this name, or nothing is there. `alone`: no other one of the writer's is, then. 0, or -1
 * with errno. */
static int put_file(const struct cmn_writer *w, int folder, const char *name, const void *bytes,
                    size_t n, int alone)
{
    char draft[PATH_MAX];
    int reason, bad, fd = cmn_directory_draft(w->folder, w->name, draft, sizeof draft);

    if (fd < 0) {
        return -1;
    }
    bad = write_all(fd, bytes, n) || fsync(fd) || (alone && cmn_directory_hide(folder, w->name)) ||
          renameat(AT_FDCWD, draft, folder, name);
    reason = errno;
    if (bad) {
        cmn_directory_unhide(folder, w->name);
        unlink(draft);
    }
    /* After fsync nothing is left for close to fail with. */
    close(fd);
    errno = reason;
    return bad ? -1 : 0;
}

/* 0, or -1 with a reason: `file` is the name of the new one. */
static int write_one(struct cmn_writer *w, const char *file, int all)
{
    size_t n = 0;
    const void *bytes = cmn_snapshot_seal(w->snapshot, w->iteration, &n);
    int result = -1, folder;

    if (!bytes) {
        return -1;
    }
    folder = cmn_directory_open(w->folder);
    if (folder < 0) {
        return cmn_fail("%s", strerror(errno));
    }
    if (keep_lock(w, folder)) {
        result = -1;
    } else if (put_file(w, folder, file, bytes, n, all)) {
        cmn_fail("%s (it has %.1f MB)", strerror(errno), (double)n / 1e6);
    } else if (cmn_directory_sync(folder)) {
        cmn_fail("%s", strerror(errno));
    } else {
        cmn_directory_prune(folder, w->name, w->iteration, w->keep);
        result = 0;
    }
    close(folder);
    return result;
}

static void *run(void *argument)
{
    struct cmn_writer *w = argument;
    char file[NAME_MAX + 1];
    int all, failed;

    pthread_mutex_lock(&w->mutex);
    all = w->supersede;
    pthread_mutex_unlock(&w->mutex);
    snprintf(file, sizeof file, "%s-%ld.checkpoint", w->name, w->iteration);
    failed = write_one(w, file, all);
    pthread_mutex_lock(&w->mutex);
    w->done = 1;
    if (failed) {
        w->failed = w->iteration;
        snprintf(w->text, sizeof w->text, "%s/%s: %s", w->folder, file, cmn_reason());
    } else {
        w->written = w->iteration;
        w->supersede = 0;
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Blocks until nothing is being written. */
static void finish(struct cmn_writer *w)
{
    if (!w->running) {
        return;
    }
    pthread_join(w->thread, NULL);
    w->running = 0;
    cmn_snapshot_clear(w->snapshot);
    if (w->spare) {
        cmn_snapshot_free(w->snapshot);
    } else {
        w->spare = w->snapshot;
    }
    w->snapshot = NULL;
}

struct cmn_snapshot *cmn_writer_snapshot(struct cmn_writer *w)
{
    struct cmn_snapshot *s;
    int done;

    pthread_mutex_lock(&w->mutex);
    done = w->done;
    pthread_mutex_unlock(&w->mutex);
    if (done) {
        finish(w);
    }
    s = w->spare;
    w->spare = NULL;
    return s ? s : cmn_snapshot_new();
}

int cmn_writer_start(struct cmn_writer *w, struct cmn_snapshot *s, long iteration)
{
    sigset_t all, before;
    int code;

    finish(w);
    w->snapshot = s;
    w->iteration = iteration;
    w->done = 0;
    /* Signals are the main thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) {
        w->snapshot = NULL;
        cmn_snapshot_free(s);
        return cmn_fail("no thread can be had to write a checkpoint: %s", strerror(code));
    }
    w->running = 1;
    return 0;
}

long cmn_writer_result(struct cmn_writer *w, char *text, size_t bytes, long *written)
{
    long failed;

    pthread_mutex_lock(&w->mutex);
    failed = w->failed;
    w->failed = 0;
    if (failed) {
        snprintf(text, bytes, "%s", w->text);
    }
    if (written) {
        *written = w->written;
    }
    pthread_mutex_unlock(&w->mutex);
    return failed;
}

void cmn_writer_supersede(struct cmn_writer *w)
{
    finish(w); /* what is being written now belongs to what is given up */
    w->supersede = 1;
}

void cmn_writer_wait(struct cmn_writer *w)
{
    finish(w);
}

void cmn_writer_close(struct cmn_writer *w)
{
    int folder;

    if (!w) {
        return;
    }
    finish(w);
    if (w->lock >= 0) {
        folder = cmn_directory_open(w->folder);
        cmn_directory_unlock(folder, w->name, w->lock);
        if (folder >= 0) {
            close(folder);
        }
    }
    cmn_snapshot_free(w->spare);
    pthread_mutex_destroy(&w->mutex);
    free(w->folder);
    free(w->name);
    free(w);
}
