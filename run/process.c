#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "messages.h"

/* Processes that were killed must be gone within so many seconds. */
enum { KILL_SECONDS = 5 };

static int signals = -1;
static int stop;
static sigset_t before; /* signals blocked at cmn-run's start: its processes get that mask again */

double cmn_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- children that are older than cmn-run ---- */

/* A script that ended with `exec cmn-run` leaves children. If such a process id is given again, a
 * process of a job may outlive the job. */
static pid_t *foreign;
static size_t n_foreign;

static FILE *children(void)
{
    char name[64];

    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    return fopen(name, "r");
}

static void remember_foreign(void)
{
    FILE *list = children();
    pid_t pid;

    while (list && fscanf(list, "%d", &pid) == 1) {
        foreign = cmn_run_realloc(foreign, n_foreign + 1, sizeof *foreign);
        foreign[n_foreign++] = pid;
    }
    if (list) {
        fclose(list);
    }
}

/* Returns whether the process is foreign. Orphans of foreign children become children of cmn-run,
 * too. They are in cmn-run's process group; no process of a job is. */
static int is_foreign(pid_t pid)
{
    for (size_t i = 0; i < n_foreign; i++) {
        if (foreign[i] == pid) {
            return 1;
        }
    }
    return getpgid(pid) == getpgrp();
}

/* ---- signals ---- */

void cmn_signals_open(void)
{
    static const int wanted[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                                 SIGQUIT, SIGUSR1, SIGTSTP, SIGCONT};
    struct sigaction as_given;
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        sigaddset(&set, wanted[i]);
    }
    /* under nohup: a signal that is ignored and blocked would still be read */
    if (!sigaction(SIGHUP, NULL, &as_given) && as_given.sa_handler == SIG_IGN) {
        sigdelset(&set, SIGHUP);
    }
    signal(SIGPIPE, SIG_IGN);
    /* The parent may have left SIGCHLD ignored; then the kernel reports no child's end. */
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &set, &before);
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) {
        cmn_run_fatal("signals cannot be awaited: %s", strerror(errno));
    }
    remember_foreign();
}

static int read_signals(void)
{
    struct signalfd_siginfo info;
    int found = 0;

    while (read(signals, &info, sizeof info) == sizeof info) {
        switch ((int)info.ssi_signo) {
        case SIGCHLD:
            found |= CMN_CHILD;
            break;
        case SIGTSTP:
            found |= CMN_PAUSE;
            break;
        case SIGCONT:
            found |= CMN_CONTINUE;
            break;
        default:
            stop = stop ? stop : (int)info.ssi_signo;
            found |= CMN_STOP;
        }
    }
    return found;
}

int cmn_signals_wait(int fd, int milliseconds)
{
    struct pollfd fds[3] = {{.fd = signals, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int found = 0;

    fds[2].fd = cmn_run_stderr_written(NULL) ? -1 : STDERR_FILENO;
    fds[2].events = POLLOUT;
    if (poll(fds, 3, milliseconds) > 0) {
        found |= fds[0].revents ? read_signals() : 0;
        found |= fds[1].revents ? CMN_READABLE : 0;
    }
    return found;
}

int cmn_stop_signal(void)
{
    return stop;
}

int cmn_stop_requested(void *unused)
{
    (void)unused;
    return stop != 0;
}

int cmn_wait_until(int (*done)(void *of), void *of, double seconds)
{
    double until = cmn_clock() + seconds, left;
    int is;

    while (!(is = done(of)) && (left = until - cmn_clock()) > 0) {
        if (cmn_signals_wait(-1, left < .05 ? 1 + (int)(1000 * left) : 50) & CMN_PAUSE) {
            raise(SIGSTOP);
        }
    }
    return is;
}

/* ---- processes ---- */

/* These processes were started by cmn_process_start(), and nobody has asked yet whether they have
 * ended. */
static struct started {
    pid_t pid;
    int ended, status;
} * started;
static size_t n_started;

static struct started *find_started(pid_t pid)
{
    struct started *s = started;

    while (s < started + n_started && s->pid != pid) {
        s++;
    }
    return s < started + n_started ? s : NULL;
}

/* Reaps all processes that have ended: nobody else does that for orphans. */
static void reap(void)
{
    struct started *s;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        s = find_started(pid);
        if (s) {
            s->ended = 1;
            s->status = status;
        }
    }
}

/* Runs in the new process. `tell` is closed when the program begins. */
static void become(char *const *argv, int output, int error, int tell, pid_t parent)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int why;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(1);
    }
    signal(SIGPIPE, SIG_DFL);
    /* Outside the terminal's process group a line to it would stop the job where `stty tostop` is
     * set. */
    signal(SIGTTOU, SIG_IGN);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
        (output < 0 || dup2(output, STDOUT_FILENO) >= 0) &&
        (error < 0 || dup2(error, STDERR_FILENO) >= 0)) {
        execvp(argv[0], argv);
    }
    why = errno;
    if (write(tell, &why, sizeof why) < 0) {
        _exit(126);
    }
    _exit(127);
}

pid_t cmn_process_start(char *const *argv, int output, int error)
{
    int tell[2], why = 0;
    pid_t parent = getpid(), pid;
    ssize_t n;

    started = cmn_run_realloc(started, n_started + 1, sizeof *started);
    if (pipe2(tell, O_CLOEXEC)) {
        return cmn_run_fail("a pipe cannot be opened: %s", strerror(errno));
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        become(argv, output, error, tell[1], parent);
    }
    close(tell[1]);
    if (pid < 0) {
        close(tell[0]);
        return cmn_run_fail("a process cannot be started: %s", strerror(errno));
    }
    setpgid(pid, pid); /* the child does the same, but a signal may come before it runs */
    n = read(tell[0], &why, sizeof why);
    close(tell[0]);
    if (n == sizeof why) {
        waitpid(pid, NULL, 0);
        return cmn_run_fail("%s cannot be started: %s", argv[0], strerror(why));
    }
    started[n_started++] = (struct started){.pid = pid};
    return pid;
}

int cmn_process_ended(pid_t pid, int *status)
{
    struct started *s;

    reap();
    s = find_started(pid);
    if (!s || !s->ended) {
        return 0;
    }
    *status = s->status;
    *s = started[--n_started];
    return 1;
}

int cmn_process_stopped(pid_t pid)
{
    siginfo_t info = {0};

    return !waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG) && info.si_pid == pid
               ? info.si_status
               : 0;
}

void cmn_process_kill(pid_t pid)
{
    struct started *s = find_started(pid);

    kill(-pid, SIGKILL);
    if (s && !s->ended) {
        waitpid(pid, NULL, 0);
    }
    if (s) {
        *s = started[--n_started];
    }
}

/* Signals each child that a job has left; returns how many there are. */
static int each_child(int signal_number)
{
    FILE *list;
    int pid, n = 0;

    reap();
    list = children();
    while (list && fscanf(list, "%d", &pid) == 1) {
        if (is_foreign(pid)) {
            continue;
        }
        n++;
        if (signal_number) {
            kill(pid, signal_number);
        }
    }
    if (list) {
        fclose(list);
    }
    return n;
}

static int none_left(void *unused)
{
    (void)unused;
    return !each_child(0);
}

/* Children of those that are killed become children of cmn-run in turn. */
static int killed_all(void *most)
{
    int n = each_child(SIGKILL), *killed = most;

    *killed = *killed > n ? *killed : n;
    return n == 0;
}

int cmn_process_end_rest(double seconds)
{
    int killed = 0;

    cmn_wait_until(none_left, NULL, seconds);
    cmn_wait_until(killed_all, &killed, KILL_SECONDS);
    return killed;
}
