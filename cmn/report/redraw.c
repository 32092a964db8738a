#include "report/redraw.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

/* Warns about the first chart that was not drawn, and only counts the others. */
static void say(struct cmn_redraw *d, const char *reason)
{
    if (!d->failed++) {
        cmn_warn("%s; the training continues, and the chart is drawn again at a later row", reason);
    }
}

/* Starts the process. Returns 0, or a value of errno. posix_spawn() copies no memory and runs none
 * of MPI's fork handlers, and the process inherits no descriptor of MPI or CUDA. SIGINT and SIGTERM
 * are blocked in it: Ctrl-C is for the training, which then draws its last rows. */
static int start(struct cmn_redraw *d)
{
    const char *words[] = {"darknet", "cmn", "chart", d->log, d->file, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t blocked, usual;
    int reason;

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
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, d->errors, STDERR_FILENO);
#if __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
    reason = posix_spawn(&d->pid, "/proc/self/exe", &actions, &attributes,
                         (char **)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return reason;
}

static void begin(struct cmn_redraw *d)
{
    char text[512];
    int reason;

    d->due = 0;
    d->errors = memfd_create("chart", MFD_CLOEXEC);
    reason = d->errors < 0 ? errno : start(d);
    if (!reason) {
        return;
    }
    d->pid = 0;
    if (d->errors >= 0) {
        close(d->errors);
    }
    snprintf(text, sizeof text, "chart %s: %s", d->file, strerror(reason));
    say(d, text);
}

/* Waits at most `seconds` for the process to end. Returns whether no process runs now. */
static int ended(struct cmn_redraw *d, double seconds)
{
    const struct timespec while_waiting = {0, 5000000};
    double began = cmn_clock();
    char text[512];
    int status = 0;
    ssize_t n;
    pid_t pid;

    while (d->pid && !(pid = waitpid(d->pid, &status, WNOHANG))) {
        if (cmn_clock() - began >= seconds) {
            return 0;
        }
        nanosleep(&while_waiting, NULL);
    }
    if (!d->pid) {
        return 1;
    }
    d->pid = 0;
    n = pread(d->errors, text, sizeof text - 1, 0);
    close(d->errors);
    if (status) {
        text[n > 0 ? n : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        say(d, text[0] ? text : "the chart was not drawn");
    }
    return 1;
}

void cmn_redraw_row(struct cmn_redraw *d)
{
    if (!d->file) {
        return;
    }
    d->due = 1;
    if (ended(d, 0)) {
        begin(d);
    }
}

void cmn_redraw_finish(struct cmn_redraw *d)
{
    enum { SECONDS = 40 }; /* longer than chart.c lets gnuplot run */

    if (d->file && ended(d, SECONDS) && d->due) {
        begin(d);
        ended(d, SECONDS);
    }
}
