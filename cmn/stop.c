#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t requested;

/* mpiexec reads no more output once it has been asked to end, so a full pipe must not keep this
 * process from saving its weights: a write that is waiting is broken off, a later one fails. */
static void note_stop(int signal_number)
{
    int saved = errno;

    requested = signal_number;
    fcntl(STDOUT_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK);
    fcntl(STDERR_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK);
    errno = saved;
}

/* No SA_RESTART: see note_stop. */
void cmn_stop_catch(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = note_stop;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

int cmn_stop_requested(void)
{
    return requested;
}
