#include "checkpoint/writer.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/directory.h"
#include "checkpoint/lock.h"

struct cmn_writer {
    char *folder, *name;
    int keep;
    int lock; /* descriptor (lock.h); -1: not held */
    void (*before_rename)(void *of);
    void *of;

    pthread_t thread;
    int running;                   /* the thread is to be joined */
    struct cmn_snapshot *snapshot; /* the thread owns and frees it */
    long iteration;
    char text[PATH_MAX + 512]; /* the thread's: file and reason of its failure */
    int has_failed;            /* the thread's, too */
    atomic_int has_ended;      /* the thread's last act: joining it does not block */

    int supersede;        /* the next checkpoint replaces all others */
    long written, failed; /* iterations of the latest ones; -1 and 0: none */
};

/* Takes the lock, or takes it again if its file has left the folder. 0, or -1 with a reason. */
static int keep_lock(struct cmn_writer *w, int folder)
{
    if (w->lock >= 0 && !cmn_lock_holds(folder, w->name, w->lock)) {
        close(w->lock);
        w->lock = -1;
    }
    if (w->lock == -1) {
        w->lock = cmn_lock_take(folder, w->name);
    }
    return w->lock == -1 ? -1 : 0;
}

static int is_of(const char *file, const void *name)
{
    return cmn_directory_iteration(file, name) >= 0;
}

struct cmn_writer *cmn_writer_open(const char *folder, const char *name, int keep)
{
    struct cmn_writer *w;
    int fd, bad;

    if (keep && !cmn_directory_takes(name)) {
        cmn_fail("%s is too long a name for checkpoints", name);
        return NULL;
    }
    fd = cmn_directory_open(folder);
    if (fd < 0) {
        return NULL;
    }
    w = cmn_calloc(1, sizeof *w);
    *w = (struct cmn_writer){.folder = cmn_strdup(folder),
                             .name = cmn_strdup(name),
                             .keep = keep,
                             .lock = -1,
                             .written = -1};
    bad = keep_lock(w, fd);
    if (bad) {
        cmn_fail_in("%s", folder);
    } else if (keep) {
        cmn_atomic_sweep_of(folder, is_of, name);
        bad = cmn_directory_unhide(fd, name);
        if (bad) {
            cmn_fail("%s: the checkpoints of %s cannot get their names again: %s", folder, name,
                     strerror(errno));
        }
    }
    close(fd);
    if (bad) {
        cmn_writer_close(w);
        return NULL;
    }
    return w;
}

static int write_all(int fd, const struct iovec *part)
{
    enum { CHUNK = 1 << 26 };
    const unsigned char *bytes = part->iov_base;
    size_t n = part->iov_len;
    ssize_t done;

    while (n) {
        done = write(fd, bytes, n < CHUNK ? n : CHUNK);
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
            /* Syncing each chunk shows the watchdog progress on a slow disk; otherwise all the time
             * would go into one fsync(). */
            if (n && fdatasync(fd)) {
                return -1;
            }
            cmn_status_progress();
        }
    }
    return 0;
}

/* Writes all parts to the file `path` and syncs it, or leaves no file. If it replaces all other
 * checkpoints, it hides them just before the rename. 0, or -1 with errno. */
static int put_file(const struct cmn_writer *w, int folder, const char *path,
                    const struct iovec *part)
{
    char draft[PATH_MAX];
    int reason, bad = 0, fd = cmn_atomic_open(path, draft, sizeof draft);

    if (fd < 0) {
        return -1;
    }
    for (int i = 0; i < CMN_SNAPSHOT_PARTS && !bad; i++) {
        bad = write_all(fd, &part[i]);
    }
    if (!bad && w->before_rename) {
        w->before_rename(w->of);
    }
    if (bad || fsync(fd) || (w->supersede && cmn_directory_hide(folder, w->name))) {
        reason = errno;
        unlink(draft);
        bad = 1;
    } else if (cmn_atomic_commit_as(fd, draft, path, 0600)) {
        reason = errno;
        bad = 1;
    }
    if (bad && w->supersede) {
        cmn_directory_unhide(folder, w->name);
    }
    /* After fsync() close() has no error left to report. */
    close(fd);
    errno = bad ? reason : 0;
    return bad ? -1 : 0;
}

/* Writes the snapshot and removes the oldest checkpoints. 0, or -1 with a reason. */
static int write_one(struct cmn_writer *w, const char *path)
{
    struct iovec part[CMN_SNAPSHOT_PARTS];
    size_t bytes = 0;
    int result = -1, folder;

    if (cmn_snapshot_seal(w->snapshot, w->iteration, part)) {
        return -1;
    }
    for (int i = 0; i < CMN_SNAPSHOT_PARTS; i++) {
        bytes += part[i].iov_len;
    }
    folder = cmn_directory_open(w->folder);
    if (folder < 0) {
        return cmn_fail("%s", strerror(errno));
    }
    if (keep_lock(w, folder)) {
        result = -1;
    } else if (put_file(w, folder, path, part)) {
        cmn_fail("%s (it has %.1f MB)", strerror(errno), (double)bytes / 1e6);
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
    char path[PATH_MAX];

    w->has_failed = cmn_directory_path(w->folder, w->name, w->iteration, path)
                        ? cmn_fail("%s", strerror(ENAMETOOLONG))
                        : write_one(w, path);
    if (w->has_failed) {
        snprintf(w->text, sizeof w->text, "%s: %s", path, cmn_reason());
    }
    cmn_snapshot_free(w->snapshot);
    atomic_store(&w->has_ended, 1);
    return NULL;
}

void cmn_writer_wait(struct cmn_writer *w)
{
    if (!w->running) {
        return;
    }
    pthread_join(w->thread, NULL);
    w->running = 0;
    if (w->has_failed) {
        w->failed = w->iteration;
    } else {
        w->written = w->iteration;
        w->supersede = 0;
    }
}

int cmn_writer_start(struct cmn_writer *w, struct cmn_snapshot *s, long iteration)
{
    sigset_t all, before;
    int code;

    cmn_writer_wait(w);
    w->snapshot = s;
    w->has_ended = 0;
    w->iteration = iteration;
    /* The main thread handles all signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) {
        cmn_snapshot_free(s);
        return cmn_fail("no thread can be had to write a checkpoint: %s", strerror(code));
    }
    w->running = 1;
    return 0;
}

long cmn_writer_result(struct cmn_writer *w, char *text, size_t bytes, long *written)
{
    long failed = 0;

    if (w->running && atomic_load(&w->has_ended)) {
        cmn_writer_wait(w);
    }
    if (!w->running) {
        failed = w->failed;
        w->failed = 0;
    }
    if (failed) {
        snprintf(text, bytes, "%s", w->text);
    }
    if (written) {
        *written = w->written;
    }
    return failed;
}

void cmn_writer_before_rename(struct cmn_writer *w, void (*call)(void *of), void *of)
{
    w->before_rename = call;
    w->of = of;
}

void cmn_writer_supersede(struct cmn_writer *w)
{
    cmn_writer_wait(w); /* a checkpoint that is being written now belongs to the old training */
    w->supersede = 1;
}

void cmn_writer_prune(struct cmn_writer *w, long iteration)
{
    int folder = cmn_directory_open(w->folder);

    if (folder >= 0) {
        cmn_directory_prune(folder, w->name, iteration, w->keep);
        close(folder);
    }
}

void cmn_writer_close(struct cmn_writer *w)
{
    int folder;

    if (!w) {
        return;
    }
    cmn_writer_wait(w);
    if (w->lock >= 0) {
        folder = cmn_directory_open(w->folder);
        cmn_lock_release(folder, w->name, w->lock);
        if (folder >= 0) {
            close(folder);
        }
    }
    free(w->folder);
    free(w->name);
    free(w);
}
