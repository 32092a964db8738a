#include "watchdog/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/launcher.h"
#include "base/stop_request.h"

long cmn_launcher_notices(void)
{
    enum { MORE = 3, MOST = 120 };
    static const struct {
        const char *name, *usual;
    } set[] = {{"OMPI_MCA_oob_tcp_keepalive_time", NULL},
               {"OMPI_MCA_oob_tcp_keepalive_intvl", "20"},
               {"OMPI_MCA_oob_tcp_keepalive_probes", "9"}};
    long n[3], sum;

    for (int i = 0; i < 3; i++) {
        const char *value = getenv(set[i].name);
        value = value ? value : set[i].usual;
        n[i] = value ? strtol(value, NULL, 10) : 0;
        n[i] = n[i] < 0 || n[i] > MOST ? MOST : n[i];
    }
    sum = n[0] + n[1] * n[2] + MORE;
    return n[0] == 0 ? 0 : sum < MOST ? sum : MOST;
}

void cmn_launcher_end_daemon(void)
{
    pid_t pid;

    if (cmn_launcher_above(&pid) == CMN_DAEMON) {
        kill(pid, SIGTERM);
    }
}

int cmn_launcher_waits(void)
{
    pid_t pid;

    return !cmn_launcher_announces_end() && !cmn_launcher_notices() &&
           cmn_launcher_above(&pid) == CMN_DAEMON;
}

void cmn_launcher_say_stop(const char *line)
{
    char name[64];
    pid_t pid;
    int fd;

    if (!cmn_launcher_announces_end() || !cmn_launcher_above(&pid) || cmn_stop_sender() != pid) {
        return;
    }
    snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)pid, STDERR_FILENO);
    fd = open(name, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, line, strlen(line));
        close(fd);
    }
}
