#include "watchdog/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Whether this rank's parent has that name. */
static int is_parent(const char *const *names)
{
    char file_name[64], command[32] = "";
    FILE *file;
    int is = 0;

    snprintf(file_name, sizeof file_name, "/proc/%d/comm", (int)getppid());
    file = fopen(file_name, "re");
    if (file && fgets(command, sizeof command, file)) {
        command[strcspn(command, "\n")] = '\0';
        for (; *names; names++) {
            is |= !strcmp(command, *names);
        }
    }
    if (file) {
        fclose(file);
    }
    return is;
}

void cmn_launcher_end(void)
{
    static const char *const daemons[] = {"orted", "prted", NULL};

    if (is_parent(daemons)) {
        kill(getppid(), SIGTERM);
    }
}

void cmn_launcher_say_stop(const char *line)
{
    static const char *const deaf[] = {"prterun", "prted", NULL};
    char name[64];
    int fd;

    if (cmn_stop_sender() != getppid() || !is_parent(deaf)) {
        return;
    }
    snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)getppid(), STDERR_FILENO);
    fd = open(name, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, line, strlen(line));
        close(fd);
    }
}
