#include "checkpoint/lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

/* ---- the content of the file ---- */

/* Identifies a process so that another process can tell whether it still runs. */
struct holder {
    char text[128];      /* for messages: "process 4711 on host" */
    int known;           /* the fields below are valid */
    char boot[40];       /* boot id of the host's kernel */
    unsigned long space; /* inode of the PID namespace of pid; 0: unknown */
    long pid;
    unsigned long long began; /* start of the process, in clock ticks after boot */
    unsigned long long job;   /* the same number for all attempts of a cmn-run; 0: no cmn-run */
    long attempt;             /* of cmn-run, counted from 1 */
    long slurm, restarts; /* number of the Slurm job (0: none), and how often it was restarted */
};

/* Returns the start of the process in clock ticks after boot; 0: there is none, or it is a
 * zombie. */
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
        return; /* on a full disk the file stays empty, and the lock still counts */
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

/* Returns whether the process that the file names has certainly ended, or has been given up. */
static int has_ended(const struct holder *h)
{
    const struct holder here = this_process();
    const char *host = strstr(h->text, " on ");

    if (!h->known) {
        return 0;
    }
    /* cmn-run begins a new attempt after it has given up the previous one, which may hang on
     * another host; Slurm restarts jobs. A process of the older attempt must not take the lock
     * back. Two trainings may share a Slurm job, so the job's number is not enough. */
    if ((h->job && h->job == here.job && h->attempt < here.attempt) ||
        (h->slurm && h->slurm == here.slurm && h->restarts < here.restarts)) {
        return 1;
    }
    if (strcmp(h->boot, here.boot)) { /* another host, or this host before a reboot */
        return host && !strcmp(host, strstr(here.text, " on "));
    }
    return h->space == here.space && start_of(h->pid) != h->began;
}

/* Returns whether the process that the file names certainly runs. */
static int runs(const struct holder *h)
{
    const struct holder here = this_process();

    return h->known && !strcmp(h->boot, here.boot) && h->space == here.space &&
           start_of(h->pid) == h->began;
}

/* ---- the file ---- */

/* Returns whether the file of this name is still the open file fd. */
static int is_still(int folder, const char *file, int fd)
{
    struct stat here, there;

    return !fstat(fd, &here) && !fstatat(folder, file, &there, AT_SYMLINK_NOFOLLOW) &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

enum { FLAGS = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

/* Creates the lock's file if there is none. Returns its descriptor, or -1 with errno. The file gets
 * its name after its content (O_TMPFILE), so that a process that is killed leaves no empty file.
 * Where the file system has no O_TMPFILE, e.g. on NFS, the name comes first. */
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
        close(fd); /* there is a file of that name, or the file system cannot link this one */
    }
    fd = openat(folder, file, FLAGS | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) {
        write_holder(fd, &here);
    }
    return fd;
}

/* Creates or opens the lock's file. Returns its descriptor, or -1 with a reason. Sets *created if
 * this process has created it. */
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
    } while (was_there && fd < 0 &&
             errno == ENOENT); /* its owner removed it between the two calls */
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

/* Removes a file that an ended process left, so that a new one can be created. Another process may
 * do the same at the same time, so the file is renamed first: if it is not the open file fd, but a
 * new lock, it gets its name back. 0, or -1 with a reason. */
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

int cmn_lock_take(int folder, const char *name)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    double until = cmn_clock() + PATIENCE;
    char file[NAME_MAX + 1];
    struct holder h;
    int fd, created, ended, failed;

    lock_name(name, file);
    for (;;) {
        fd = open_file(folder, file, &created);
        if (fd < 0 || created) {
            return fd;
        }
        h = read_holder(fd);
        ended = has_ended(&h);
        failed = ended && remove_left(folder, file, fd);
        close(fd);
        if (failed) {
            return -1;
        }
        if (!ended && cmn_clock() >= until) {
            break;
        }
        if (!ended) {
            nanosleep(&pause, NULL); /* a killed process may take a moment to end */
        }
    }
    cmn_job_event("locked", -1, h.text);
    return cmn_fail("%s %s %s there: wait until it has ended, or give this training another backup "
                    "folder%s%s%s",
                    h.text, runs(&h) ? "trains" : "may train", name,
                    runs(&h) ? "" : " (if it has ended, remove ", runs(&h) ? "" : file,
                    runs(&h) ? "" : ")");
}

int cmn_lock_holds(int folder, const char *name, int lock)
{
    char file[NAME_MAX + 1];

    lock_name(name, file);
    return is_still(folder, file, lock);
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
