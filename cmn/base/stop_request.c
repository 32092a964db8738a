#include "base/stop_request.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/launcher.h"

/* The kernel may give the signal to any thread, including OpenBLAS's. */
static atomic_int requested;

/* The flags that make the standard output and error non-blocking, or -1: see cmn_stop_catch(). */
static int no_wait[2] = {-1, -1};

static void note(int signal_number)
{
    int saved = errno;

    /* cmn-run sends SIGUSR1 again and again, which must not hide that this host is to be left. */
    if (signal_number != SIGUSR1 || !requested) {
        requested = signal_number;
    }
    for (int i = 0; i < 2; i++) {
        if (no_wait[i] >= 0) {
            fcntl(STDOUT_FILENO + i, F_SETFL, no_wait[i]);
        }
    }
    errno = saved;
}

/* mpiexec reads no more output once it has been asked to end, so a full pipe must not keep this
 * process from saving its weights. The handler makes the descriptors non-blocking: a blocked write
 * is interrupted (no SA_RESTART), and a later one fails. This is done only where a launcher made
 * the descriptors. Otherwise they are the caller's terminal or files, which keep such flags after
 * this process has ended. */
void cmn_stop_catch(void)
{
    struct sigaction action;

    for (int i = 0; i < 2 && cmn_launcher_takes_output(); i++) {
        int flags = fcntl(STDOUT_FILENO + i, F_GETFL);
        no_wait[i] = flags < 0 ? -1 : flags | O_NONBLOCK;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* mpiexec forwards SIGUSR1 to all ranks, and does not kill them soon afterwards. */
    sigaction(SIGUSR1, &action, NULL);
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
    return requested == SIGUSR1 ? SIGTERM : requested;
}

int cmn_stop_is_of_host(void)
{
    return requested == SIGTERM;
}
