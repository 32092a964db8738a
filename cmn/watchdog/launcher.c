#include "watchdog/launcher.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void cmn_launcher_end(void)
{
    char name[64], command[32] = "";
    pid_t parent = getppid();
    FILE *file;

    snprintf(name, sizeof name, "/proc/%d/comm", (int)parent);
    file = fopen(name, "re");
    if (file && fgets(command, sizeof command, file) && !strcmp(command, "orted\n")) {
        kill(parent, SIGTERM);
    }
    if (file) {
        fclose(file);
    }
}
