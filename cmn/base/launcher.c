#include "base/launcher.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/nics.h"
#include "base/process.h"

/* ---- what launchers say ---- */

enum ending { BY_MPI, BY_ABORT, BY_KILL }; /* see cmn_launcher_end_job() */

/* Variables of each process that a launcher starts. The first row counts whose numbers are there:
 * where mpiexec runs under Slurm, Slurm's own describe mpiexec's daemons. `mark` tells apart those
 * whose numbers have the same names. */
static const struct launcher {
    const char *mark, *size, *rank;
    enum ending ending;
} launchers[] = {
    /* Open MPI 5 (PRRTE) */
    {"PRTE_LAUNCHED", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", BY_KILL},
    /* Open MPI 4 (ORTE) */
    {"OMPI_MCA_orte_launch", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", BY_ABORT},
    /* Others that start programs of Open MPI */
    {NULL, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", BY_MPI},
    /* MPICH's Hydra, and Slurm's PMI-2 */
    {NULL, "PMI_SIZE", "PMI_RANK", BY_MPI},
    /* Intel MPI's Hydra */
    {NULL, "MPI_LOCALNRANKS", "MPI_LOCALRANKID", BY_MPI},
    {NULL, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", BY_MPI},
};

/* The same way, the job's name: PMIx's is that of Open MPI's launchers and of srun --mpi=pmix. */
static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID",
                                    "PMI_JOBID"};

static const struct launcher *find(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const struct launcher *l = &launchers[i];
        if (getenv(l->size) && getenv(l->rank) && (!l->mark || getenv(l->mark))) {
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

int cmn_launcher_announces_end(void)
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
 * that has IPv6: its TCP compares the address with itself, and finds it elsewhere. Nothing is lost
 * by that, as ranks of a host do not use TCP. Where a host has IPv4 as well, TCP is given that
 * alone.
 *
 * And a rank that loses its connection to one that has died aborts at once: the launcher would hear
 * of that at times before it hears of the death, and name nobody. So it waits for a second. */
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

/* ---- the end, by PMIx ---- */

/* PMIx is what MPI itself speaks with launchers. Its library is there where MPI speaks it, and its
 * interface is that of the PMIx standard, versions 2 to 5; declared here, as its headers are often
 * not installed with MPI's. */
struct proc {
    char job[256];
    uint32_t rank;
};

struct info {
    char key[512];
    uint32_t flags;
    struct {
        uint16_t type;
        _Alignas(8) union {
            _Bool flag;
            char room[64];
        } data;
    } value;
};

enum { PMIX_SUCCESS = 0, PMIX_BOOL = 1 };

/* Before MPI has started, PMIx takes 14 MiB and a thread. What ends the job may be a limit of the
 * address space: so the thread is to need little, and PMIx, which crashes when it gets no memory,
 * is left alone where there is none. */
static int there_is_room(void)
{
    enum { STACK = 512 << 10, SPACE = 32 << 20 };
    void *space = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t small;

    if (space == MAP_FAILED) {
        return 0;
    }
    munmap(space, SPACE);
    mallopt(M_ARENA_MAX, 1);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    pthread_setattr_default_np(&small);
    return 1;
}

/* The library, which has said who this process is; NULL where this cannot be. */
static void *begin_pmix(struct proc *self)
{
    static const char *const library = "libpmix.so.2";
    void *pmix = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    int (*begun)(void), (*begin)(struct proc *, struct info *, size_t);

    *(void **)&begun = pmix ? dlsym(pmix, "PMIx_Initialized") : NULL;
    if (!begun || !begun()) {
        pmix = there_is_room() ? dlopen(library, RTLD_LAZY) : NULL;
    }
    *(void **)&begin = pmix ? dlsym(pmix, "PMIx_Init") : NULL;
    return begin && begin(self, NULL, 0) == PMIX_SUCCESS ? pmix : NULL;
}

static int kill_others(void *pmix, const struct proc *self)
{
    struct info kill = {.key = "pmix.jctrl.kill", .value = {PMIX_BOOL, {1}}}, *results = NULL;
    int (*control)(const struct proc *, size_t, const struct info *, size_t, struct info **,
                   size_t *);
    uint32_t size = (uint32_t)cmn_launcher_size();
    struct proc *others;
    size_t n = 0, found = 0;
    int failed;

    *(void **)&control = dlsym(pmix, "PMIx_Job_control");
    if (!control) {
        return -1;
    }
    others = calloc(size, sizeof *others); /* the job may be ending for want of memory */
    if (!others) {
        return -1;
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        if (rank != self->rank) {
            others[n] = *self;
            others[n++].rank = rank;
        }
    }
    failed = n && control(others, n, &kill, 1, &results, &found) != PMIX_SUCCESS;
    free(others);
    return failed ? -1 : 0;
}

/* Open MPI 4's mpiexec crashes, 3 times in 100, or hangs, when it meets the end of a connection to
 * PMIx while it ends itself: it hears of the end of this one some time before that of the process,
 * which no signal of mpiexec's may bring forward. */
static _Noreturn void leave_late(int status)
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

/* Open MPI 5 prints five lines about a process that ends with a status or aborts, unless it is the
 * last one: so it is told to kill the others, which takes it 0.5 s. On several nodes it is not: one
 * rank of each node ends the job, and two that kill each other would leave mpiexec with status 0.
 * Open MPI 4 prints ten lines about a status, and none about PMIx's abort; the eight about
 * MPI_Abort() are MPI's own. */
void cmn_launcher_end_job(int status)
{
    enum { OTHERS_MAY_TAKE = 1 };
    const struct launcher *l = find();
    struct proc self;
    void *pmix = l && l->ending != BY_MPI ? begin_pmix(&self) : NULL;
    int (*abort_job)(int, const char *, struct proc *, size_t);

    if (!pmix) {
        return;
    }
    if (l->ending == BY_KILL && is_on_one_node() && !kill_others(pmix, &self)) {
        sleep(OTHERS_MAY_TAKE);
        _exit(status);
    }
    *(void **)&abort_job = dlsym(pmix, "PMIx_Abort");
    if (abort_job && abort_job(status, "", NULL, 0) == PMIX_SUCCESS) {
        leave_late(status);
    }
}

/* ---- the end, by signals ---- */

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

    /* Up to the first process, which is mpiexec itself in a container that runs nothing else. */
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

    if (cmn_launcher_announces_end() || cmn_launcher_above(&mpiexec) != CMN_MPIEXEC) {
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

    return !cmn_launcher_announces_end() && !cmn_launcher_notices() &&
           cmn_launcher_above(&pid) == CMN_DAEMON;
}

void cmn_launcher_say_stop(pid_t sender, const char *line)
{
    char name[64];
    pid_t pid;
    int fd;

    if (!cmn_launcher_announces_end() || !cmn_launcher_above(&pid) || sender != pid) {
        return;
    }
    snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)pid, STDERR_FILENO);
    fd = open(name, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, line, strlen(line));
        close(fd);
    }
}
