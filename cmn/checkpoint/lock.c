#include "checkpoint/lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/job_stderr.h"
#include "base/log.h"
#include "base/process.h"
#include "checkpoint/format.h"

enum { PATIENCE = 2 /* seconds */ };

static void lock_name(const char *name, char *file)
{
    snprintf(file, NAME_MAX + 1, ".%s.checkpoint-lock", name);
}

/* ---- what stands in the file ---- */

/* A process, so that another one can tell whether it still runs. */
struct holder {
    char text[128];      /* for people: "process 4711 on host" */
    int known;           /* the rest, too */
    char boot[40];       /* of the host's kernel */
    unsigned long space; /* in which process numbers count */
    long pid;
    unsigned long long began; /* clock ticks after boot */
    unsigned long long job;   /* attempts of one cmn-run have one number; 0: none */
    long attempt;             /* 1 is the first */
    long slurm, restarts;     /* Slurm's job, 0: none, and how often it was started again */
};

/* When that process began; 0: there is none, or it has ended and nobody has asked for its status. */
static unsigned long long start_of(long pid)
{
    struct cmn_process p;

    return cmn_process_read((pid_t)pid, &p) || p.state == 'Z' ? 0 : p.began;
}

static long number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtol(text, NULL, 10) : 0;
}

static struct holder this_process(void)
{
    struct holder h = {.known = 1,
                       .pid = getpid(),
                       .attempt = number_of("OMPI_CMN_ATTEMPT"),
                       .slurm = number_of("SLURM_JOB_ID"),
                       .restarts = number_of("SLURM_RESTART_COUNT")};
    const char *token = getenv("OMPI_CMN_EVENT_TOKEN");
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    char host[64] = "";
    struct stat st;

    if (!file || fscanf(file, "%39s", h.boot) != 1) {
        snprintf(h.boot, sizeof h.boot, "-");
    }
    if (file) {
        fclose(file);
    }
    h.space = stat("/proc/self/ns/pid", &st) ? 0 : (unsigned long)st.st_ino;
    h.began = start_of(h.pid);
    h.job = token ? cmn_checksum(token, strlen(token)) : 0;
    gethostname(host, sizeof host - 1);
    snprintf(h.text, sizeof h.text, "process %ld on %s", h.pid, host);
    return h;
}

static void write_holder(int fd, const struct holder *h)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%s\n%s %lu %ld %llu %llx %ld %ld %ld\n", h->text, h->boot,
                     h->space, h->pid, h->began, h->job, h->attempt, h->slurm, h->restarts);

    if (pwrite(fd, text, (size_t)n, 0) < 0) {
        return; /* on a full disk the lock holds without a name */
    }
}

static struct holder read_holder(int fd)
{
    struct holder h = {.known = 0};
    char text[512], *line;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    line = strchr(text, '\n');
    if (line) {
        *line++ = '\0';
        h.known = sscanf(line, "%39s %lu %ld %llu %llx %ld %ld %ld", h.boot, &h.space, &h.pid,
                         &h.began, &h.job, &h.attempt, &h.slurm, &h.restarts) == 8;
    }
    snprintf(h.text, sizeof h.text, "%.*s", (int)sizeof h.text - 1, text);
    for (char *c = h.text; *c; c++) {
        *c = isprint((unsigned char)*c) ? *c : '?';
    }
    if (!h.text[0]) {
        snprintf(h.text, sizeof h.text, "another process");
    }
    return h;
}

/* Whether the process that the file names has surely ended. */
static int has_ended(const struct holder *h)
{
    const struct holder here = this_process();
    const char *host = strstr(h->text, " on ");

    if (!h->known) {
        return 0;
    }
    /* cmn-run begins an attempt when it has given up the one before, which may hang on another host; and Slurm
     * starts a job again. What is left of the older one must not take the lock back. Two trainings
     * may share a job of Slurm's, so its number alone says nothing. */
    if ((h->job && h->job == here.job && h->attempt < here.attempt) ||
        (h->slurm && h->slurm == here.slurm && h->restarts < here.restarts)) {
        return 1;
    }
    if (strcmp(h->boot, here.boot)) { /* another host, or this one before it was started anew */
        return host && !strcmp(host, strstr(here.text, " on "));
    }
    return h->space == here.space && start_of(h->pid) != h->began;
}

/* Returns whether the process that the file names surely runs. */
static int runs(const struct holder *h)
{
    const struct holder here = this_process();

    return h->known && !strcmp(h->boot, here.boot) && h->space == here.space &&
           start_of(h->pid) == h->began;
}

/* ---- the file ---- */

/* Whether the file of this name is still the one that is open. */
static int is_still(int folder, const char *file, int fd)
{
    struct stat here, there;

    return !fstat(fd, &here) && !fstatat(folder, file, &there, AT_SYMLINK_NOFOLLOW) &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

enum { FLAGS = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

/* A file of this process's under that name, where there is none. -1 with errno. It has its name when it says
 * whose it is, so that nobody who is killed leaves an empty one; not on file systems without files that have
 * no name, NFS among them. */
static int create(int folder, const char *file)
{
    struct holder here = this_process();
    char path[32];
    int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0) {
        write_holder(fd, &here);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (!linkat(AT_FDCWD, path, folder, file, AT_SYMLINK_FOLLOW)) {
            return fd;
        }
        close(fd); /* another one was there, or this file system gives no name to such a file */
    }
    fd = openat(folder, file, FLAGS | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) {
        write_holder(fd, &here);
    }
    return fd;
}

/* The lock's file, open; *created: by this process. -1 with a reason. */
static int open_file(int folder, const char *file, int *created)
{
    int fd, reason, was_there;
    struct stat st;

    do {
        fd = create(folder, file);
        *created = fd >= 0;
        was_there = fd < 0 && errno == EEXIST;
        if (was_there) {
            fd = openat(folder, file, FLAGS);
        }
    } while (was_there && fd < 0 && errno == ENOENT); /* its owner has removed it in between */
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

/* ---- taking it ---- */

/* A file that was left goes, so that a new one can be created. Two that want to take it over may
 * come together: a file that is not the one looked at gets its name back. 0, or -1 with a
 * reason. */
static int remove_left(int folder, const char *file, int fd)
{
    char moved[NAME_MAX + 1];

    snprintf(moved, sizeof moved, "%.200s.%ld", file, (long)getpid());
    if (renameat(folder, file, folder, moved)) {
        return errno == ENOENT ? 0 : cmn_fail("%s: %s", file, strerror(errno));
    }
    if (!is_still(folder, moved, fd)) {
        linkat(folder, moved, folder, file, 0);
    }
    unlinkat(folder, moved, 0);
    return 0;
}

enum result { TAKEN, AGAIN, HELD, FAILED };

/* The file is open; *h becomes who has it. */
static enum result try(int folder, const char *file, int fd, int created, struct holder *h)
{
    if (created) {
        return TAKEN;
    }
    *h = read_holder(fd);
    if (!has_ended(h)) {
        return HELD;
    }
    return remove_left(folder, file, fd) ? FAILED : AGAIN;
}

int cmn_lock_take(int folder, const char *name)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    double until = cmn_clock() + PATIENCE;
    char file[NAME_MAX + 1];
    enum result result = AGAIN;
    struct holder h;
    int fd = -1, created;

    lock_name(name, file);
    while (result == AGAIN || (result == HELD && cmn_clock() < until)) {
        if (result == HELD) {
            nanosleep(&pause, NULL); /* a process that was killed may take a moment to end */
        }
        fd = open_file(folder, file, &created);
        if (fd < 0) {
            return -1;
        }
        result = try(folder, file, fd, created, &h);
        if (result != TAKEN) {
            close(fd);
        }
    }
    if (result == HELD) {
        cmn_job_event("locked", -1, h.text);
        return cmn_fail("%s trains %s there: wait until it has ended, or give this "
                        "training another backup folder%s%s%s",
                        h.text, name, runs(&h) ? "" : " (if it has ended, remove ",
                        runs(&h) ? "" : file, runs(&h) ? "" : ")");
    }
    return result == TAKEN ? fd : -1;
}

int cmn_lock_holds(int lock)
{
    struct stat st;

    return !fstat(lock, &st) && st.st_nlink > 0;
}

void cmn_lock_release(int folder, const char *name, int lock)
{
    char file[NAME_MAX + 1];

    lock_name(name, file);
    if (folder >= 0 && is_still(folder, file, lock)) {
        unlinkat(folder, file, 0);
    }
    close(lock);
}
