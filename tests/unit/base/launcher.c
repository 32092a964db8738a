/* What launchers say in the environment, and how one is made to end. */
#include "base/launcher.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* All but how cmocka is to report. */
static void no_variables(void)
{
    char *report = getenv("CMOCKA_MESSAGE_OUTPUT");

    report = report ? strdup(report) : NULL;
    clearenv();
    if (report) {
        setenv("CMOCKA_MESSAGE_OUTPUT", report, 1);
    }
    free(report);
}

TEST(without_one_there_is_one_process)
{
    assert_int_equal(cmn_launcher_size(), 1);
    assert_int_equal(cmn_launcher_rank(), -1);
    assert_null(cmn_launcher_job());
    assert_false(cmn_launcher_takes_output());
}

TEST(each_has_names_of_its_own)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
                                           {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

    for (size_t i = 0; i < COUNT(names); i++) {
        no_variables();
        setenv(names[i][0], "3", 1);
        assert_int_equal(cmn_launcher_size(), 1); /* one number alone is none */
        setenv(names[i][1], "2", 1);
        assert_int_equal(cmn_launcher_size(), 3);
        assert_int_equal(cmn_launcher_rank(), 2);
    }
}

TEST(mpiexec_counts_where_slurm_has_started_its_daemons)
{
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_JOB_ID", "77", 1);
    assert_true(cmn_launcher_is_srun());
    assert_string_equal(cmn_launcher_job(), "77");
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    setenv("PMIX_NAMESPACE", "prterun-a-1@1", 1);
    assert_int_equal(cmn_launcher_size(), 8);
    assert_int_equal(cmn_launcher_rank(), 5);
    assert_false(cmn_launcher_is_srun());
    assert_string_equal(cmn_launcher_job(), "prterun-a-1@1");
}

TEST(what_the_user_has_set_stays)
{
    cmn_launcher_prepare("Open MPI v4.1.4");
    cmn_launcher_prepare("MPICH Version: 4.0.2");
    assert_null(getenv("OMPI_MCA_btl_tcp_disable_family"));
    setenv("OMPI_MCA_btl_tcp_if_include", "fd00::/64", 1);
    cmn_launcher_prepare("Open MPI v5.0.7, package: Debian OpenMPI");
    assert_null(getenv("OMPI_MCA_btl_tcp_disable_family"));
    unsetenv("OMPI_MCA_btl_tcp_if_include");
    setenv("OMPI_MCA_btl_tcp_disable_family", "4", 1);
    cmn_launcher_prepare("Open MPI v5.0.7, package: Debian OpenMPI");
    assert_string_equal(getenv("OMPI_MCA_btl_tcp_disable_family"), "4");
}

/* Ranks on several nodes only: a delay costs a second at each end. */
TEST(the_launcher_hears_of_a_death_first)
{
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
    cmn_launcher_prepare("Open MPI v5.0.7, package: Debian OpenMPI");
    assert_null(getenv("OMPI_MCA_opal_abort_delay"));
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    cmn_launcher_prepare("Open MPI v4.1.4");
    assert_null(getenv("OMPI_MCA_opal_abort_delay"));
    cmn_launcher_prepare("Open MPI v5.0.7, package: Debian OpenMPI");
    assert_string_equal(getenv("OMPI_MCA_opal_abort_delay"), "1");
}

/* A process of that name starts a rank by way of another process, and takes so many SIGTERM before
 * it ends. */
static void start_rank(const char *name, int terms, int to)
{
    sigset_t term;
    int asked;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    prctl(PR_SET_NAME, name);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (fork() == 0) {
        prctl(PR_SET_NAME, "script) S 1");
        if (fork() == 0) {
            asked = cmn_launcher_end_mpiexec();
            _exit(write(to, &asked, sizeof asked) != sizeof asked);
        }
        wait(NULL);
        _exit(0);
    }
    alarm(300);
    wait(NULL);
    for (int i = 0, which; i < terms; i++) {
        sigwait(&term, &which);
    }
    _exit(strcmp(name, "orted") != 0);
}

/* How it ended; `asked` is what the rank got. */
static int end_of(const char *name, int terms, int *asked)
{
    int status, answer[2];

    assert_int_equal(pipe(answer), 0);
    status = status_of(start_rank(name, terms, answer[1]));
    assert_int_equal(read(answer[0], asked, sizeof *asked), sizeof *asked);
    close(answer[0]);
    close(answer[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(mpiexec_is_made_to_end)
{
    int asked;

    assert_int_equal(cmn_launcher_end_mpiexec(), -1); /* no job */
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    assert_int_equal(end_of("mpiexec", 2, &asked), 1);
    assert_int_equal(asked, 0);
    assert_int_equal(end_of("orterun", 3, &asked), 128 + SIGKILL);
    assert_int_equal(asked, 0);
    assert_int_equal(end_of("orted", 0, &asked), 0); /* mpiexec is elsewhere */
    assert_int_equal(asked, -1);
    setenv("PRTE_LAUNCHED", "1", 1);
    assert_int_equal(end_of("prterun", 0, &asked), 1); /* Open MPI 5's ends by itself */
    assert_int_equal(asked, -1);
}

enum { CANNOT = 77 };

/* In a container of its own, whose first process is mpiexec: 0 when its child finds it. */
static int find_in_container(void)
{
    enum { OWN = CLONE_NEWPID | CLONE_NEWNS };
    int status;
    pid_t pid;

    if ((unshare(OWN) && unshare(OWN | CLONE_NEWUSER)) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
        return CANNOT;
    }
    if (fork() == 0) {
        if (mount("proc", "/proc", "proc", 0, NULL)) {
            _exit(CANNOT);
        }
        prctl(PR_SET_NAME, "prterun");
        if (fork() == 0) {
            _exit(cmn_launcher_above(&pid) != CMN_MPIEXEC || pid != 1);
        }
        wait(&status);
        _exit(WEXITSTATUS(status));
    }
    wait(&status);
    return WEXITSTATUS(status);
}

TEST(mpiexec_may_be_the_first_process)
{
    int status;

    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    status = status_of(alarm(300); _exit(find_in_container()));
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

TESTS(no_variables, NULL)
