#include "base/stop_request.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Any thread may be the one that is given the signal, one of OpenBLAS's, too. */
static atomic_int requested;

/* Flags of the standard output and error that never wait, or -1: see catch. */
static int no_wait[2] = {-1, -1};

static void note(int signal_number)
{
    int saved = errno;

    requested = signal_number == SIGUSR1 ? SIGTERM : signal_number;
    for (int i = 0; i < 2; i++) {
        if (no_wait[i] >= 0) {
            fcntl(STDOUT_FILENO + i, F_SETFL, no_wait[i]);
        }
    }
    errno = saved;
}

/* mpiexec reads no more output once it has been asked to end, so a full pipe must not keep this
 * process from saving its weights: a write that is waiting is broken off (no SA_RESTART), a later
 * one fails. Only where a launcher made the descriptors: otherwise they are the caller's terminal
 * or files, which keep such flags after we are gone. */
void cmn_stop_catch(void)
{
    struct sigaction action;

    for (int i = 0; i < 2 && getenv("OMPI_COMM_WORLD_SIZE"); i++) {
        int flags = fcntl(STDOUT_FILENO + i, F_GETFL);
        no_wait[i] = flags < 0 ? -1 : flags | O_NONBLOCK;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* The one that mpiexec hands on to all ranks without killing them soon after. */
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

int cmn_stop_requested(void)
{
    return requested;
}
