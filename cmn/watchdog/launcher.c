#include "watchdog/launcher.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
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

/* Name and parent of a process; 0, or -1: there is none. */
static int read_process(pid_t pid, char name[32], pid_t *parent)
{
    char file_name[64], text[512], *end;
    FILE *file;
    size_t n;

    snprintf(file_name, sizeof file_name, "/proc/%d/stat", (int)pid);
    file = fopen(file_name, "re");
    if (!file) {
        return -1;
    }
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    end = strrchr(text, ')'); /* "PID (NAME) STATE PARENT": the name may have anything in it */
    if (!end || sscanf(end, ") %*c %d", parent) != 1) {
        return -1;
    }
    *end = '\0';
    snprintf(name, 32, "%s", text + strcspn(text, "(") + 1);
    return 0;
}

enum kind { NONE, DAEMON, DAEMON_OF_4, MPIEXEC };

/* The nearest process of Open MPI's above this one: scripts may stand between. `pid` is 0 where
 * there is none. */
static enum kind find_above(pid_t *pid)
{
    static const struct {
        const char *name;
        enum kind kind;
    } known[] = {
        {"orted", DAEMON_OF_4},       {"prted", DAEMON},           {"prterun", MPIEXEC},
        {"orterun", MPIEXEC},         {"mpiexec", MPIEXEC},        {"mpirun", MPIEXEC},
        {"mpiexec.openmpi", MPIEXEC}, {"mpirun.openmpi", MPIEXEC},
    };
    char name[32];
    pid_t above;

    for (*pid = cmn_launcher_takes_output() ? getppid() : 0; *pid > 1; *pid = above) {
        if (read_process(*pid, name, &above)) {
            break;
        }
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (!strcmp(name, known[i].name)) {
                return known[i].kind;
            }
        }
    }
    *pid = 0;
    return NONE;
}

void cmn_launcher_end_daemon(void)
{
    pid_t pid;
    enum kind kind = find_above(&pid);

    if (kind == DAEMON || kind == DAEMON_OF_4) {
        kill(pid, SIGTERM);
    }
}

/* Seconds, in a process of its own that mpiexec knows nothing of, waits for nothing of, and does
 * not kill. Open MPI's mpiexec waits for the far daemons at the first SIGTERM, and at a second one
 * soon after it ends what runs on this host, takes its files away and ends. */
static void end_by_force(pid_t mpiexec)
{
    enum { BETWEEN_MS = 300, LAST_MS = 2000 };
    const struct timespec between = {.tv_nsec = BETWEEN_MS * 1000000L}, a_moment = {.tv_nsec = 1e8};

    setsid();
    if (syscall(SYS_close_range, 0, ~0U, 0)) {
        for (int fd = 0; fd < (int)sysconf(_SC_OPEN_MAX); fd++) {
            close(fd);
        }
    }
    kill(mpiexec, SIGTERM);
    nanosleep(&between, NULL);
    kill(mpiexec, SIGTERM);
    for (int ms = 0; ms < LAST_MS && !kill(mpiexec, 0); ms += 100) {
        nanosleep(&a_moment, NULL);
    }
    kill(mpiexec, SIGKILL);
    _exit(0);
}

int cmn_launcher_end_mpiexec(void)
{
    sigset_t all, before;
    pid_t mpiexec, pid;

    if (find_above(&mpiexec) != MPIEXEC) {
        return -1;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0) {
        end_by_force(mpiexec);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid < 0 ? -1 : 0;
}

int cmn_launcher_waits(void)
{
    pid_t pid;

    return find_above(&pid) == DAEMON_OF_4 && !cmn_launcher_notices();
}

void cmn_launcher_say_stop(const char *line)
{
    char name[64];
    pid_t pid;
    int fd;

    if (!cmn_launcher_announces_end() || !find_above(&pid) || cmn_stop_sender() != pid) {
        return;
    }
    snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)pid, STDERR_FILENO);
    fd = open(name, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, line, strlen(line));
        close(fd);
    }
}
