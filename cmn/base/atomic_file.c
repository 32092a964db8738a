#include "base/atomic_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

/* `pattern` is the suffix of temporary names, and `probe` the prefix of probe files. */
static const char pattern[] = ".XXXXXX.part", probe[] = ".cmn-probe-";
enum { RANDOM = 6, ENDS = 5 }; /* the number of random letters, and the length of ".part" */

/* Returns the permissions that the umask leaves to a new file. Reads the umask from /proc, because
 * umask(2) can only read it by changing it for all threads. */
static unsigned rights(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    unsigned mask = 077;

    while (status && fgets(line, sizeof line, status)) {
        if (sscanf(line, "Umask: %o", &mask) == 1) {
            break;
        }
    }
    if (status) {
        fclose(status);
    }
    return 0666 & ~mask;
}

/* Writes the path under /proc that leads to the open file, whether it has a name or not. */
static void link_of(int fd, char link[32])
{
    snprintf(link, 32, "/proc/self/fd/%d", fd);
}

/* Gives an unnamed file a temporary name. linkat() never replaces another file. Returns 0, or -1
 * with errno. */
static int name_it(int fd, const char *file, char *name, size_t bytes)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[RANDOM];
    char link[32];
    int n = snprintf(name, bytes, "%s%s", file, pattern), failed;

    if (n >= (int)bytes) {
        errno = ENAMETOOLONG;
        return -1;
    }
    link_of(fd, link);
    do {
        if (getrandom(random, sizeof random, 0) != sizeof random) {
            return -1;
        }
        for (int i = 0; i < RANDOM; i++) {
            name[n - ENDS - RANDOM + i] = letters[random[i] % (sizeof letters - 1)];
        }
        failed = linkat(AT_FDCWD, link, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
    } while (failed && errno == EEXIST);
    return failed;
}

int cmn_atomic_commit_as(int fd, const char *name, const char *file, unsigned mode)
{
    char given[PATH_MAX];
    int reason;

    fchmod(fd, mode); /* Some file systems have no permissions, so errors are ignored. */
    if (!name[0]) {
        if (name_it(fd, file, given, sizeof given)) {
            return -1;
        }
        name = given;
    }
    if (!rename(name, file)) {
        return 0;
    }
    reason = errno;
    unlink(name);
    errno = reason;
    return -1;
}

int cmn_atomic_commit(int fd, const char *name, const char *file)
{
    return cmn_atomic_commit_as(fd, name, file, rights());
}

/* Returns whether `name` is a temporary name. Sets *stem to the length of the name that the file is
 * to take. */
static int is_temporary(const char *name, size_t *stem)
{
    size_t length = strlen(name), tail = sizeof pattern - 1;

    if (length <= tail || name[length - tail] != '.' || strcmp(name + length - ENDS, ".part")) {
        return 0;
    }
    for (size_t i = length - tail + 1; i < length - ENDS; i++) {
        if (!isalnum((unsigned char)name[i])) {
            return 0;
        }
    }
    *stem = length - tail;
    return 1;
}

/* Returns whether trainings write files of this kind: their temporary files are surely ours. */
static int is_result(const char *file, const void *unused)
{
    static const char *const kind[] = {".weights", ".backup", ".txt", ".png", ".dot", ".json"};
    size_t length = strlen(file);

    (void)unused;
    for (size_t i = 0; i < sizeof kind / sizeof kind[0]; i++) {
        size_t n = strlen(kind[i]);
        if (length > n && !strcmp(file + length - n, kind[i])) {
            return 1;
        }
    }
    return 0;
}

static int is_same(const char *file, const void *name)
{
    return !strcmp(file, name);
}

/* Removes the folder's temporary files that are older than `seconds` (0: of any age), have no
 * writer, and were to become a file for which is() returns true. */
static void sweep(const char *folder, int (*is)(const char *file, const void *of), const void *of,
                  int seconds)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    struct stat st;

    while (dir && (entry = readdir(dir))) {
        const char *name = entry->d_name;
        char file[NAME_MAX + 1];
        size_t stem;
        int fd;
        if (is_temporary(name, &stem)) {
            snprintf(file, sizeof file, "%.*s", (int)stem, name);
            if (!is(file, of)) {
                continue;
            }
        } else if (is != is_result || strncmp(name, probe, sizeof probe - 1) ||
                   strlen(name) != sizeof probe - 1 + RANDOM) {
            continue;
        }
        fd = openat(dirfd(dir), name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            (!seconds || time(NULL) - st.st_mtime > seconds) &&
            (!flock(fd, LOCK_EX | LOCK_NB) || (!seconds && errno != EWOULDBLOCK))) {
            unlinkat(dirfd(dir), name, 0);
        }
        close(fd);
    }
    if (dir) {
        closedir(dir);
    }
}

/* Seconds. A slow writer may still be between creating its file and locking it. */
enum { PATIENCE = 60 };

void cmn_atomic_sweep(const char *folder)
{
    sweep(folder, is_result, NULL, PATIENCE);
}

void cmn_atomic_sweep_of(const char *folder, int (*is)(const char *file, const void *of),
                         const void *of)
{
    sweep(folder, is, of, 0);
}

/* Returns the descriptor of an unnamed file, or -1. Some file systems have no unnamed files, and
 * giving one a name takes /proc. */
static int open_unnamed(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char link[32];

    link_of(fd, link);
    if (fd >= 0 && access(link, F_OK)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int cmn_atomic_open(const char *file, char *name, size_t bytes)
{
    const char *slash = strrchr(file, '/');
    char folder[PATH_MAX];
    int fd;

    if (snprintf(name, bytes, "%s%s", file, pattern) >= (int)bytes ||
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file) + 1 : 1,
                 slash ? file : ".") >= (int)sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    sweep(folder, is_same, slash ? slash + 1 : file, PATIENCE);
    fd = open_unnamed(folder);
    if (fd >= 0) {
        name[0] = '\0';
    } else {
        fd = mkostemps(name, ENDS, O_CLOEXEC);
    }
    if (fd >= 0) {
        /* The lock keeps other processes from sweeping the file. */
        flock(fd, LOCK_EX | LOCK_NB);
    }
    return fd;
}

int cmn_draft_open(struct cmn_draft *d, const char *file)
{
    int fd = cmn_atomic_open(file, d->name, sizeof d->name);

    d->out = fd < 0 ? NULL : fdopen(fd, "w");
    return d->out ? 0 : -1;
}

void cmn_draft_drop(struct cmn_draft *d)
{
    int reason = errno;

    if (d->out) {
        unlink(d->name);
        fclose(d->out);
        d->out = NULL;
    }
    errno = reason;
}

int cmn_draft_commit(struct cmn_draft *d, const char *file)
{
    FILE *out = d->out;

    errno = 0;
    if (fflush(out) || ferror(out) || cmn_atomic_commit(fileno(out), d->name, file)) {
        errno = errno ? errno : EIO;
        cmn_draft_drop(d);
        return -1;
    }
    d->out = NULL;
    return fclose(out) ? -1 : 0;
}

int cmn_open_in_place(const char *what, const char *file, int flags)
{
    int fd = open(file, flags | O_NOFOLLOW | O_CLOEXEC, 0666);
    struct stat st;

    if (fd < 0 && errno == ELOOP && !lstat(file, &st) && S_ISLNK(st.st_mode)) {
        if (st.st_uid != geteuid() && st.st_uid != 0) {
            return cmn_fail(
                "%s %s: a symbolic link that another user (id %u) has put there: remove "
                "it, or give another name",
                what, file, (unsigned)st.st_uid);
        }
        fd = open(file, flags | O_CLOEXEC, 0666);
    }
    return fd < 0 ? cmn_fail("%s %s: %s", what, file, strerror(errno)) : fd;
}

int cmn_append(const char *what, const char *file, int fd, const void *record, size_t bytes)
{
    off_t end = lseek(fd, 0, SEEK_END);
    ssize_t written = end < 0 ? -1 : write(fd, record, bytes);
    int reason = written < 0 ? errno : ENOSPC;

    if (written == (ssize_t)bytes) {
        return 0;
    }
    if (written > 0 && ftruncate(fd, end)) {
        reason = errno;
    }
    return cmn_fail("%s %s: %s", what, file, strerror(reason));
}

int cmn_sync_in_place(int fd)
{
    return fdatasync(fd) && errno != EINVAL && errno != EROFS ? -1 : 0;
}
