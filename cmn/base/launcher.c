#include "base/launcher.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/nics.h"
#include "base/process.h"

/* ---- what launchers say ---- */

/* The variables that each launcher gives to the processes that it starts. The first row whose
 * variables exist counts: where mpiexec runs under Slurm, Slurm's own variables describe mpiexec's
 * daemons. */
static const struct launcher {
    const char *size, *rank;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, /* Open MPI */
    {"PMI_SIZE", "PMI_RANK"},                         /* MPICH's Hydra, and Slurm's PMI-2 */
    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"},           /* Intel MPI's Hydra */
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
};

/* The variables that name the job; the first one that exists counts. Open MPI's launchers and srun
 * --mpi=pmix set PMIx's. */
static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID",
                                    "PMI_JOBID"};

static const struct launcher *find(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const struct launcher *l = &launchers[i];
        if (getenv(l->size) && getenv(l->rank)) {
            return l;
        }
    }
    return NULL;
}

int cmn_launcher_size(void)
{
    const struct launcher *l = find();
    int size = l ? atoi(getenv(l->size)) : 1;

    return size > 1 ? size : 1;
}

int cmn_launcher_rank(void)
{
    return cmn_launcher_size() > 1 ? atoi(getenv(find()->rank)) : -1;
}

const char *cmn_launcher_job(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0]) {
            return value;
        }
    }
    return NULL;
}

int cmn_launcher_is_srun(void)
{
    return getenv("SLURM_STEP_NUM_TASKS") && !getenv("OMPI_COMM_WORLD_SIZE");
}

int cmn_launcher_has_pmi(void)
{
    for (char **variable = environ; *variable; variable++) {
        if (!strncmp(*variable, "PMI", 3)) {
            return 1;
        }
    }
    return 0;
}

int cmn_launcher_takes_output(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL;
}

static int is_open_mpi_5(void)
{
    return getenv("PRTE_LAUNCHED") != NULL;
}

const char *cmn_launcher_networks(void)
{
    return getenv("OMPI_MCA_btl_tcp_if_include");
}

const char *cmn_launcher_networks_excluded(void)
{
    return getenv("OMPI_MCA_btl_tcp_if_exclude");
}

static int is_on_one_node(void)
{
    const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");

    return here && atoi(here) == cmn_launcher_size();
}

static int has_address(int family)
{
    struct cmn_nic nic[CMN_NICS];
    int n = cmn_nics(family, nic, CMN_NICS);

    while (n > 0 && cmn_nic_is_loopback(&nic[n - 1])) {
        n--;
    }
    return n > 0;
}

/* Open MPI 5.0 prints two lines of "Unable to find reachable pairing" for any two ranks of a host
 * that has IPv6, because its TCP compares the address with itself and finds it elsewhere. Nothing
 * is lost by that, as the ranks of a host do not use TCP. If a host has IPv4 as well, TCP is given
 * only that.
 *
 * A rank that loses its connection to a dead rank aborts immediately. The launcher sometimes hears
 * of the abort before it hears of the death, and then names nobody. So the rank waits for a
 * second. */
void cmn_launcher_prepare(const char *library)
{
    const char *include = cmn_launcher_networks();

    if (strncmp(library, "Open MPI v5.", 12)) {
        return;
    }
    if (!(include && strchr(include, ':')) && has_address(AF_INET) && has_address(AF_INET6)) {
        setenv("OMPI_MCA_btl_tcp_disable_family", "6", 0);
    }
    if (!is_on_one_node()) {
        setenv("OMPI_MCA_opal_abort_delay", "1", 0);
    }
}

/* ---- the end ---- */

/* Ends the connections of this process before the process, which no signal may bring forward. */
static _Noreturn void end_connections_first(int status)
{
    enum { DESCRIPTORS = 1024 };
    struct timespec left = {.tv_nsec = 200000000};
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (int fd = STDERR_FILENO + 1; fd < DESCRIPTORS; fd++) {
        shutdown(fd, SHUT_RDWR); /* what is no socket stays open */
    }
    nanosleep(&left, NULL);
    _exit(status);
}

void cmn_launcher_abort(int status)
{
    /* MPI has loaded PMIx where it uses it. The first variable is Open MPI 4's. */
    void *pmix =
        getenv("OMPI_MCA_orte_launch") ? dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    int (*abort_job)(int, const char *, void *, size_t);

    *(void **)&abort_job = pmix ? dlsym(pmix, "PMIx_Abort") : NULL;
    if (abort_job && abort_job(status, "", NULL, 0) == 0) {
        end_connections_first(status);
    }
}

enum cmn_launcher_kind cmn_launcher_above(pid_t *pid)
{
    static const struct {
        const char *name;
        enum cmn_launcher_kind kind;
    } known[] = {
        {"orted", CMN_DAEMON},
        {"prted", CMN_DAEMON},
        {"prterun", CMN_MPIEXEC},
        {"orterun", CMN_MPIEXEC},
        {"mpiexec", CMN_MPIEXEC},
        {"mpirun", CMN_MPIEXEC},
        {"mpiexec.openmpi", CMN_MPIEXEC},
        {"mpirun.openmpi", CMN_MPIEXEC},
    };
    struct cmn_process p;

    /* The loop goes up to process 1, which is mpiexec itself in a container that runs nothing
     * else. */
    for (*pid = cmn_launcher_takes_output() ? getppid() : 0; *pid > 0; *pid = p.parent) {
        if (cmn_process_read(*pid, &p)) {
            break;
        }
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (!strcmp(p.name, known[i].name)) {
                return known[i].kind;
            }
        }
    }
    *pid = 0;
    return CMN_NO_LAUNCHER;
}

/* Takes up to some seconds, in a process of its own that mpiexec does not know, wait for or kill.
 * At the first SIGTERM, Open MPI's mpiexec waits for the daemons of other hosts. At a second one
 * soon afterwards it ends what runs on this host, removes its files and ends. */
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

    if (is_open_mpi_5() || cmn_launcher_above(&mpiexec) != CMN_MPIEXEC) {
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

    return !is_open_mpi_5() && !cmn_launcher_notices() && cmn_launcher_above(&pid) == CMN_DAEMON;
}
