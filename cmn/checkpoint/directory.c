#include "checkpoint/directory.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/job_stderr.h"
#include "base/log.h"

/* Names that begin with a dot: .NAME.checkpoint-lock, and the checkpoints of .NAME.superseded. */
#define LOCK "checkpoint-lock"
#define SUPERSEDED ".superseded"
enum { PATIENCE = 2 /* seconds */, DIGITS = 18 /* of an iteration */, FILE_ROOM = NAME_MAX + 64 };

long cmn_directory_iteration(const char *file, const char *name)
{
    size_t n = strlen(name), digits;

    if (strncmp(file, name, n) || file[n] != '-') {
        return -1;
    }
    file += n + 1;
    digits = strspn(file, "0123456789");
    if (!digits || digits > DIGITS || (*file == '0' && digits > 1) ||
        strcmp(file + digits, ".checkpoint")) {
        return -1;
    }
    return strtol(file, NULL, 10);
}

int cmn_directory_takes(const char *name)
{
    /* The longest name is that of a hidden checkpoint, or of one that is being written. */
    return strlen(name) + strlen("." SUPERSEDED "-.checkpoint") + DIGITS <= NAME_MAX;
}

int cmn_directory_open(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), reason = errno;

    if (fd < 0) {
        cmn_fail("%s: %s", folder, strerror(reason));
        errno = reason;
    }
    return fd;
}

/* A stream of its own over the folder, from its beginning. */
static DIR *entries(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d && fd >= 0) {
        close(fd);
    }
    return d;
}

static int later_first(const void *a, const void *b)
{
    const long *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

long *cmn_directory_list(int folder, const char *name, int *n)
{
    long *list = NULL, iteration;
    int room = 0;
    struct dirent *e;
    DIR *d = entries(folder);

    *n = 0;
    if (!d) {
        *n = -1;
        cmn_fail("%s", strerror(errno));
        return NULL;
    }
    while ((errno = 0, e = readdir(d))) {
        iteration = cmn_directory_iteration(e->d_name, name);
        if (iteration < 0) {
            continue;
        }
        if (*n == room) {
            long *more = realloc(list, (size_t)(2 * room + 16) * sizeof *list);
            if (!more) {
                errno = ENOMEM;
                break;
            }
            list = more;
            room = 2 * room + 16;
        }
        list[(*n)++] = iteration;
    }
    if (errno) {
        cmn_fail("%s", strerror(errno));
        free(list);
        list = NULL;
        *n = -1;
    }
    closedir(d);
    if (list) {
        qsort(list, (size_t)*n, sizeof *list, later_first);
    }
    return list;
}

static void lock_name(const char *name, char *file)
{
    snprintf(file, NAME_MAX + 1, ".%s." LOCK, name);
}

/* The process that the lock's file names. */
static void holder(int fd, char *text, size_t bytes)
{
    ssize_t n = pread(fd, text, bytes - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *c = text; *c; c++) {
        if (!isprint((unsigned char)*c)) {
            *c = '?';
        }
    }
    if (!*text) {
        snprintf(text, bytes, "another process");
    }
}

static void sign(int fd)
{
    char host[64] = "", text[128];
    int n;

    gethostname(host, sizeof host - 1);
    n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    /* It only serves a message: on a full disk the lock holds without it. */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) < 0) {
        return;
    }
}

/* Whether the file of this name is still the one that is open. */
static int is_still(int folder, const char *file, int fd)
{
    struct stat here, there;

    return !fstat(fd, &here) && !fstatat(folder, file, &there, AT_SYMLINK_NOFOLLOW) &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* A process that was killed may take a moment to end: its lock is waited for. Returns what flock
 * does. */
static int wait_for_lock(int fd)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    double until = cmn_clock() + PATIENCE;
    int result;

    while ((result = flock(fd, LOCK_EX | LOCK_NB)) && errno == EWOULDBLOCK && cmn_clock() < until) {
        nanosleep(&pause, NULL);
    }
    return result;
}

/* The lock's file, open. -1 with a reason. */
static int lock_file(int folder, const char *file)
{
    int reason,
        fd = openat(folder, file, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0) {
        reason = errno;
        return cmn_fail("%s: %s", file, reason == ELOOP ? "is a link" : strerror(reason));
    }
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return cmn_fail("%s: is no regular file", file);
    }
    return fd;
}

int cmn_directory_lock(int folder, const char *name)
{
    char file[NAME_MAX + 1], who[128];
    int fd, none;

    lock_name(name, file);
    while ((fd = lock_file(folder, file)) >= 0) {
        if (wait_for_lock(fd)) {
            none = errno != EWOULDBLOCK;
            holder(fd, who, sizeof who);
            close(fd);
            if (none) {
                unlinkat(folder, file, 0);
            }
            if (!none) {
                cmn_job_event("locked", -1, who);
            }
            return none ? -2
                        : cmn_fail("%s writes checkpoints of %s there: wait until it has ended, or "
                                   "give this training another backup folder",
                                   who, name);
        }
        if (is_still(folder, file, fd)) {
            sign(fd);
            return fd;
        }
        close(fd); /* its owner has removed it in between */
    }
    return -1;
}

int cmn_directory_locked(int lock)
{
    struct stat st;

    return !fstat(lock, &st) && st.st_nlink > 0;
}

void cmn_directory_unlock(int folder, const char *name, int lock)
{
    char file[NAME_MAX + 1];

    lock_name(name, file);
    if (folder >= 0 && is_still(folder, file, lock)) {
        unlinkat(folder, file, 0);
    }
    close(lock);
}

int cmn_directory_sync(int folder)
{
    return fsync(folder) && errno != EINVAL ? -1
                                            : 0; /* EINVAL: this file system needs no such call */
}

static void file_name(const char *name, long iteration, char *file)
{
    snprintf(file, FILE_ROOM, "%s-%ld.checkpoint", name, iteration);
}

/* Hidden ones are checkpoints of another name, which begins with a dot. */
static void hidden_name(const char *name, char *hidden)
{
    snprintf(hidden, NAME_MAX + 1, ".%s" SUPERSEDED, name);
}

/* Removes the checkpoints of a list, from its place `from` on. */
static void remove_from(int folder, const char *name, const long *list, int n, int from)
{
    char file[FILE_ROOM];

    for (int i = from; i < n; i++) {
        file_name(name, list[i], file);
        unlinkat(folder, file, 0);
    }
}

/* Renames one checkpoint and syncs the folder: the next one moves only when this one's new name is
 * on the disk, so no older one is ever there without the latest. */
static int move(int folder, const char *from, const char *to, long iteration)
{
    char before[FILE_ROOM], after[FILE_ROOM];

    file_name(from, iteration, before);
    file_name(to, iteration, after);
    return renameat(folder, before, folder, after) || cmn_directory_sync(folder) ? -1 : 0;
}

/* The latest first. */
static int move_back(int folder, const char *name)
{
    char hidden[NAME_MAX + 1];
    int n, result;
    long *list;

    hidden_name(name, hidden);
    list = cmn_directory_list(folder, hidden, &n);
    result = n < 0 ? -1 : 0;
    for (int i = 0; i < n && !result; i++) {
        result = move(folder, hidden, name, list[i]);
    }
    free(list);
    return result;
}

/* 0, or -1 with errno. */
static int remove_hidden(int folder, const char *name)
{
    char hidden[NAME_MAX + 1];
    int n;
    long *list;

    hidden_name(name, hidden);
    list = cmn_directory_list(folder, hidden, &n);
    remove_from(folder, hidden, list, n, 0);
    free(list);
    return n ? cmn_directory_sync(folder) : 0;
}

int cmn_directory_hide(int folder, const char *name)
{
    char hidden[NAME_MAX + 1];
    int n = 0, reason, result = remove_hidden(folder, name);
    long *list = result ? NULL : cmn_directory_list(folder, name, &n);

    hidden_name(name, hidden);
    result = result || n < 0 ? -1 : 0;
    while (!result && n--) {
        result = move(folder, name, hidden, list[n]);
    }
    free(list);
    if (result) {
        reason = errno;
        move_back(folder, name);
        errno = reason;
    }
    return result;
}

int cmn_directory_unhide(int folder, const char *name)
{
    int n;

    free(cmn_directory_list(folder, name, &n));
    return n < 0 ? -1 : n ? 0 : move_back(folder, name);
}

void cmn_directory_prune(int folder, const char *name, long iteration, int keep)
{
    int n, latest = 0;
    long *list = cmn_directory_list(folder, name, &n);

    while (latest < n && list[latest] >= iteration) {
        latest++;
    }
    remove_from(folder, name, list, n, latest + keep - 1);
    free(list);
    remove_hidden(folder, name);
}
