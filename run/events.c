#include "events.h"

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

#include "say.h"

static int signals = -1;
static int stop;
static sigset_t before; /* what was blocked when we were started: our processes get that again */

/* Children that are older than us: those of a script that ended with `exec cmn-run`. A number may be given again, so they have two. */
static struct foreign {
    int pid;
    unsigned long long began;
} * foreign;
static size_t n_foreign;

static FILE *children(void)
{
    char name[64];

    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    return fopen(name, "r");
}

/* When the process began, as /proc/PID/stat has it behind its name, and in which group it is; 0 when it is gone. */
static unsigned long long process_began(int pid, int *group)
{
    char name[64], text[1024], *end;
    unsigned long long began = 0;
    FILE *file;

    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    file = fopen(name, "r");
    if (!file) {
        return 0;
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    end = strrchr(text, ')');
    /* The 3rd field follows the name; the group is the 5th, the beginning the 22nd. */
    if (!end || sscanf(end,
                       ") %*s %*s %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                       "%*s %*s %llu",
                       group, &began) != 2) {
        return 0;
    }
    return began;
}

static int remember_foreign(void)
{
    FILE *list = children();
    int pid, group, result = 0;

    while (list && !result && fscanf(list, "%d", &pid) == 1) {
        struct foreign *more = realloc(foreign, (n_foreign + 1) * sizeof *more);
        result = more ? 0 : cmn_run_fail("out of memory");
        if (more) {
            foreign = more;
            foreign[n_foreign++] = (struct foreign){pid, process_began(pid, &group)};
        }
    }
    if (list) {
        fclose(list);
    }
    return result;
}

/* What foreign children leave behind becomes ours, too. It is in our own process group, in which nothing of a job ever is. */
static int is_foreign(int pid)
{
    int group = 0;
    unsigned long long began = process_began(pid, &group);

    for (size_t i = 0; i < n_foreign; i++) {
        if (foreign[i].pid == pid && foreign[i].began == began) {
            return 1;
        }
    }
    return group == (int)getpgrp();
}

int cmn_trace_events_open(void)
{
    static const int wanted[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                                 SIGQUIT, SIGUSR1, SIGTSTP, SIGCONT};
    struct sigaction as_given;
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        sigaddset(&set, wanted[i]);
    }
    /* nohup; a signal that is blocked would be read all the same */
    if (!sigaction(SIGHUP, NULL, &as_given) && as_given.sa_handler == SIG_IGN) {
        sigdelset(&set, SIGHUP);
    }
    signal(SIGPIPE, SIG_IGN);
    /* Who started us may have SIGCHLD ignored; no end would be told then. */
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &set, &before);
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) {
        return cmn_run_fail("signals cannot be awaited: %s", strerror(errno));
    }
    return remember_foreign();
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

int cmn_trace_events_wait(int fd, int milliseconds)
{
    struct pollfd fds[2] = {{.fd = signals, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int found = 0;

    if (poll(fds, 2, milliseconds) > 0) {
        found |= fds[0].revents ? read_signals() : 0;
        found |= fds[1].revents ? CMN_READABLE : 0;
    }
    return found;
}

int cmn_trace_events_wait_alone(int fd, int milliseconds)
{
    int found = cmn_trace_events_wait(fd, milliseconds);

    if (found & CMN_PAUSE) {
        raise(SIGSTOP);
    }
    return found;
}

int cmn_trace_events_stop(void)
{
    return stop;
}

/* What cmn_process_start() has started and nobody has asked about since it ended. */
static struct started {
    pid_t pid;
    int ended, status;
} * started;
static size_t n_started, room_started;

static int make_room(void)
{
    struct started *more;

    if (n_started < room_started) {
        return 0;
    }
    more = realloc(started, (2 * room_started + 1) * sizeof *more);
    if (!more) {
        return cmn_run_fail("out of memory");
    }
    started = more;
    room_started = 2 * room_started + 1;
    return 0;
}

static struct started *find_started(pid_t pid)
{
    struct started *s = started;

    while (s < started + n_started && s->pid != pid) {
        s++;
    }
    return s < started + n_started ? s : NULL;
}

/* Takes the status of all that has ended: nobody else does that for orphans. */
static void take_ends(void)
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

/* In the new process; `tell` closes by itself when the program begins. */
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
    /* Outside the terminal's process group a line to it would stop the job where `stty tostop` is set. */
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

    if (make_room()) {
        return -1;
    }
    if (pipe2(tell, O_CLOEXEC)) {
        return cmn_run_fail("a pipe cannot be had: %s", strerror(errno));
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
    setpgid(pid, pid); /* also here: a signal for the group may come before the process runs */
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

    take_ends();
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

    take_ends();
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

int cmn_process_rest(int seconds)
{
    struct timespec tick = {0, 50000000};
    int killed = 0;

    for (int i = 0; i < seconds * 20 && each_child(0); i++) {
        nanosleep(&tick, NULL);
    }
    /* Children of those that are killed become ours in turn. */
    for (int i = 0, n; i < 100 && (n = each_child(SIGKILL)) > 0; i++) {
        killed = killed > n ? killed : n;
        nanosleep(&tick, NULL);
    }
    return killed;
}
