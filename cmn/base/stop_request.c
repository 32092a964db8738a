#include "base/stop_request.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/launcher.h"

/* The kernel may give the signal to any thread, one of OpenBLAS's, too. */
static atomic_int requested, hurried, sender;

/* Flags that make the standard output and error non-blocking, or -1: see cmn_stop_catch(). */
static int no_wait[2] = {-1, -1};

static void note(int signal_number, siginfo_t *info, void *unused)
{
    int saved = errno;

    (void)unused;
    requested = signal_number == SIGUSR1 ? SIGTERM : signal_number;
    sender = info->si_code == SI_USER ? info->si_pid : 0;
    hurried |= signal_number != SIGUSR1;
    for (int i = 0; i < 2; i++) {
        if (no_wait[i] >= 0) {
            fcntl(STDOUT_FILENO + i, F_SETFL, no_wait[i]);
        }
    }
    errno = saved;
}

/* Open MPI 5's launcher sends SIGCONT, and SIGTERM 0.25 s after it. It also hands on the SIGCONT of
 * people who continue a job that they have paused, but then SIGTSTP came first. */
static void note_announcement(int signal_number, siginfo_t *info, void *unused)
{
    static volatile sig_atomic_t paused;

    (void)unused;
    if (signal_number == SIGTSTP) {
        paused = 1;
        raise(SIGSTOP);
    } else if (paused) {
        paused = 0;
    } else if (info->si_code == SI_USER && info->si_pid == getppid()) {
        sender = info->si_pid;
        hurried = 1;
    }
}

/* mpiexec reads no more output once it has been asked to end, so a full pipe must not keep this
 * process from saving its weights: a blocked write is interrupted (no SA_RESTART), a later one
 * fails. Only where a launcher made the descriptors: otherwise they are the caller's terminal or
 * files, which keep such flags after this process has ended. */
void cmn_stop_catch(void)
{
    struct sigaction action;

    for (int i = 0; i < 2 && cmn_launcher_takes_output(); i++) {
        int flags = fcntl(STDOUT_FILENO + i, F_GETFL);
        no_wait[i] = flags < 0 ? -1 : flags | O_NONBLOCK;
    }
    memset(&action, 0, sizeof action);
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* mpiexec hands this one on to all ranks, and does not kill them soon after. */
    sigaction(SIGUSR1, &action, NULL);
    if (cmn_launcher_announces_end()) {
        action.sa_sigaction = note_announcement;
        action.sa_flags = SA_SIGINFO | SA_RESTART;
        sigaction(SIGTSTP, &action, NULL);
        sigaction(SIGCONT, &action, NULL);
    }
    action.sa_flags = 0;
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

void cmn_stop_leave_to_main(void)
{
    sigset_t ours;

    if (gettid() == getpid()) {
        return;
    }
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &ours, NULL);
}

int cmn_stop_requested(void)
{
    return requested;
}

int cmn_stop_hurried(void)
{
    return hurried;
}

int cmn_stop_sender(void)
{
    return sender;
}
