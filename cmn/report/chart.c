#include "report/chart.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/files.h"

/* Time limits of gnuplot in seconds. A picture takes a fraction of one, more where the ranks keep
 * all cores busy, and the first on a machine may build the cache of fonts. */
enum { AT_MOST = 30, FIRST_AT_MOST = 60 };

/* Pause between two pictures, in times of what one takes: drawing gets a tenth of a core at
 * most. */
enum { PATIENCE = 9 };

struct cmn_chart {
    char *file;
    char next[4200]; /* its name while the picture is drawn, or "" */
    int out;         /* the file of that name, or -1 */
    struct cmn_chart_plan plan;
    struct cmn_chart_rows rows;
    int due;     /* rows have come that are not drawn */
    pid_t pid;   /* gnuplot, or 0 */
    int drawing; /* 0: the picture is only a trial of gnuplot */
    int errors;  /* memfd with gnuplot's standard error, or -1 */
    double began, ended;
    int disk_failed; /* and not gnuplot: another row may go better */
};

static void drop_picture(struct cmn_chart *c)
{
    if (c->next[0]) {
        unlink(c->next);
        c->next[0] = '\0';
    }
    if (c->out >= 0) {
        close(c->out);
        c->out = -1;
    }
}

static int fails(const struct cmn_chart *c, const char *why)
{
    return cmn_fail("chart %s: %s", c->file, why);
}

/* ---- gnuplot's process ---- */

/* A memfd with the script, or -1. */
static int write_script(const struct cmn_chart *c)
{
    int fd = memfd_create("chart", MFD_CLOEXEC), copy = fd < 0 ? -1 : dup(fd);
    FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    int failed = !out;

    if (out) {
        cmn_chart_script(&c->plan, &c->rows, out);
        failed = ferror(out);
        failed = fclose(out) || failed || lseek(fd, 0, SEEK_SET);
    } else if (copy >= 0) {
        close(copy);
    }
    if (failed && fd >= 0) {
        close(fd);
    }
    return failed ? -1 : fd;
}

/* Finds gnuplot in the absolute folders of PATH: a relative one may belong to anybody. 0, or a
 * value of errno. */
static int find(char *program, size_t bytes)
{
    const char *at = getenv("PATH");

    for (at = at ? at : "/usr/bin:/bin"; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        int length = (int)strcspn(at, ":");
        if (at[0] == '/' && snprintf(program, bytes, "%.*s/gnuplot", length, at) < (int)bytes &&
            !access(program, X_OK)) {
            return 0;
        }
    }
    return ENOENT;
}

/* The environment without GNU*, which tell gnuplot what to run and read. The caller frees the
 * array. */
static char **clean_environment(void)
{
    size_t n = 0, kept = 0;
    char **clean;

    while (environ[n]) {
        n++;
    }
    clean = cmn_calloc(n + 1, sizeof *clean);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "GNU", 3)) {
            clean[kept++] = environ[i];
        }
    }
    return clean;
}

/* No shell is involved, and the child inherits no descriptor of MPI or CUDA. posix_spawn() copies
 * no memory and runs none of MPI's fork handlers. */
static int start(struct cmn_chart *c, int in, int out)
{
    static char name[] = "gnuplot", no_own_settings[] = "-d";
    char *argv[] = {name, no_own_settings, NULL}, **environment, program[4096];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t blocked, usual;
    int reason;

    /* Ctrl-C stops the training, which then draws its last rows. */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, c->errors, STDERR_FILENO);
#if __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
    reason = find(program, sizeof program);
    environment = clean_environment();
    if (!reason) {
        reason = posix_spawn(&c->pid, program, &actions, &attributes, argv, environment);
    }
    free(environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (reason) {
        c->pid = 0;
    }
    return reason;
}

/* Unbinds gnuplot from the rank's core, and lowers its priority below the ranks'. */
static void lower_priority(pid_t pid)
{
    cpu_set_t all;

    memset(&all, 0xff, sizeof all);
    sched_setaffinity(pid, sizeof all, &all);
    setpriority(PRIO_PROCESS, (id_t)pid, 10);
}

static int spawn(struct cmn_chart *c)
{
    int in = write_script(c), reason;

    c->errors = memfd_create("chart", MFD_CLOEXEC);
    if (in < 0 || c->errors < 0) {
        reason = errno;
        if (in >= 0) {
            close(in);
        }
        return fails(c, strerror(reason));
    }
    c->out = cmn_atomic_open(c->file, c->next, sizeof c->next);
    if (c->out < 0) {
        reason = errno;
        c->next[0] = '\0';
        c->disk_failed = 1;
        close(in);
        close(c->errors);
        c->errors = -1;
        return fails(c, strerror(reason));
    }
    reason = start(c, in, c->out);
    close(in);
    if (reason) {
        drop_picture(c);
    }
    if (reason == ENOENT || reason == EACCES) {
        return fails(c,
                     "gnuplot, which draws it, is not installed: install it (Debian: gnuplot-nox), "
                     "or remove cmn_chart");
    }
    if (reason) {
        return cmn_fail("chart %s: gnuplot: %s", c->file, strerror(reason));
    }
    lower_priority(c->pid);
    c->began = cmn_clock();
    c->drawing = c->rows.rows > 0;
    c->due = 0;
    return 0;
}

/* ---- its end ---- */

/* Fails with the first line of gnuplot's standard error that is not its "^" pointer. */
static int complain(const struct cmn_chart *c)
{
    char text[512];
    ssize_t n = pread(c->errors, text, sizeof text - 1, 0);
    char *line = text;

    text[n > 0 ? n : 0] = '\0';
    while (*line) {
        size_t length = strcspn(line, "\n");
        size_t blank = strspn(line, " ^\t\r");
        if (blank < length) {
            line[length] = '\0';
            return cmn_fail("chart %s: gnuplot says: %s", c->file, line + blank);
        }
        line += length + (line[length] != '\0');
    }
    return fails(c, "gnuplot failed without a message");
}

/* The end of a PNG: a chunk with a length of 0, its name and its checksum. */
static const unsigned char end[] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};

/* The end of ours, by which a chart is told from any other picture: a chunk of text, "Software" and
 * "darknet-cmn", before it. */
static const unsigned char own_end[] = {0,   0,   0,   20,  't', 'E', 'X',  't',  'S',  'o',  'f',
                                        't', 'w', 'a', 'r', 'e', 0,   'd',  'a',  'r',  'k',  'n',
                                        'e', 't', '-', 'c', 'm', 'n', 0x1e, 0x0b, 0x39, 0x99, 0,
                                        0,   0,   0,   'I', 'E', 'N', 'D',  0xae, 0x42, 0x60, 0x82};

/* Whether the PNG has its end: gnuplot does not always report a full disk. */
static int whole(int file)
{
    unsigned char last[sizeof end] = "";
    off_t bytes = lseek(file, 0, SEEK_END);

    return bytes > (off_t)sizeof end &&
           pread(file, last, sizeof last, bytes - (off_t)sizeof last) == sizeof last &&
           !memcmp(last, end, sizeof end);
}

/* Makes the end of the PNG ours. 0, or -1 with errno. */
static int put_own_end(int file)
{
    off_t bytes = lseek(file, 0, SEEK_END) - (off_t)sizeof end;

    errno = 0;
    if (pwrite(file, own_end, sizeof own_end, bytes) == sizeof own_end) {
        return 0;
    }
    errno = errno ? errno : ENOSPC;
    return -1;
}

/* The new picture replaces the previous one. */
static int commit(struct cmn_chart *c, int status)
{
    if (status) {
        return complain(c);
    }
    if (!whole(c->out)) {
        c->disk_failed = 1;
        return fails(c, "gnuplot wrote a part of it only: is the disk full?");
    }
    if (c->drawing && (put_own_end(c->out) || cmn_atomic_commit(c->out, c->next, c->file))) {
        c->disk_failed = 1;
        return fails(c, strerror(errno));
    }
    if (c->drawing) {
        c->next[0] = '\0';
    }
    return 0;
}

static void forget(struct cmn_chart *c)
{
    drop_picture(c);
    if (c->errors >= 0) {
        close(c->errors);
        c->errors = -1;
    }
    c->pid = 0;
    c->ended = cmn_clock();
}

static void stop(struct cmn_chart *c)
{
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    forget(c);
}

/* Waits for gnuplot's end, `seconds` at most. 1: it has drawn; 0: it still runs; -1 with a
 * reason. */
static int ended(struct cmn_chart *c, double seconds)
{
    const struct timespec while_waiting = {0, 5000000};
    double began = cmn_clock();
    int status = 0, result;
    pid_t pid;

    while (!(pid = waitpid(c->pid, &status, WNOHANG)) && cmn_clock() - began < seconds) {
        nanosleep(&while_waiting, NULL);
    }
    if (!pid) {
        return 0;
    }
    result = commit(c, pid < 0 ? 0 : status);
    forget(c);
    return result ? -1 : 1;
}

static int await(struct cmn_chart *c, int seconds)
{
    int result = ended(c, seconds);

    if (result) {
        return result < 0 ? -1 : 0;
    }
    stop(c);
    return cmn_fail("chart %s: gnuplot did not end within %d s", c->file, seconds);
}

/* ---- the chart ---- */

struct cmn_chart *cmn_chart_open(const char *file, const struct cmn_chart_plan *plan)
{
    struct cmn_chart *c = cmn_calloc(1, sizeof *c);

    c->file = cmn_strdup(file);
    c->plan = *plan;
    c->errors = c->out = -1;
    if (!cmn_files_replaceable("chart", file, "\x89PNG", own_end, sizeof own_end) && !spawn(c) &&
        !await(c, FIRST_AT_MOST)) {
        return c;
    }
    cmn_chart_close(c);
    return NULL;
}

void cmn_chart_add(struct cmn_chart *c, const struct cmn_row *row)
{
    struct cmn_row own = *row;

    own.rank = NULL;
    own.ranks = 0;
    c->due = 1;
    cmn_chart_rows_add(&c->rows, &own);
}

int cmn_chart_row(struct cmn_chart *c, const struct cmn_row *row)
{
    cmn_chart_add(c, row);
    return cmn_chart_poll(c);
}

int cmn_chart_poll(struct cmn_chart *c)
{
    if (!c || (c->pid && ended(c, 0) < 0)) {
        return c ? -1 : 0;
    }
    if (c->pid || !c->due || cmn_clock() < c->ended + PATIENCE * (c->ended - c->began)) {
        return 0;
    }
    return spawn(c);
}

int cmn_chart_may_recover(struct cmn_chart *c)
{
    int may = c->disk_failed;

    c->disk_failed = 0;
    c->due = c->due || may;
    return may;
}

int cmn_chart_finish(struct cmn_chart *c)
{
    if (!c || (c->pid && await(c, AT_MOST))) {
        return c ? -1 : 0;
    }
    return c->due && (spawn(c) || await(c, AT_MOST)) ? -1 : 0;
}

void cmn_chart_close(struct cmn_chart *c)
{
    if (!c) {
        return;
    }
    if (c->pid) {
        stop(c);
    }
    if (c->errors >= 0) {
        close(c->errors);
    }
    cmn_chart_rows_free(&c->rows);
    free(c->file);
    free(c);
}
