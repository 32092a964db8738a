/* What launchers say in the environment. */
#include "base/launcher.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

/* All but how cmocka is to report. */
static int no_variables(void **state)
{
    char *report = getenv("CMOCKA_MESSAGE_OUTPUT");

    (void)state;
    report = report ? strdup(report) : NULL;
    clearenv();
    if (report) {
        setenv("CMOCKA_MESSAGE_OUTPUT", report, 1);
    }
    free(report);
    return 0;
}

static void without_one_there_is_one_process(void **state)
{
    (void)state;
    assert_int_equal(cmn_launcher_size(), 1);
    assert_int_equal(cmn_launcher_rank(), -1);
    assert_null(cmn_launcher_job());
    assert_false(cmn_launcher_takes_output());
    cmn_launcher_end_job(1); /* returns: there is nobody to ask */
}

static void each_has_names_of_its_own(void **state)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
                                           {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        no_variables(NULL);
        setenv(names[i][0], "3", 1);
        assert_int_equal(cmn_launcher_size(), 1); /* one number alone is none */
        setenv(names[i][1], "2", 1);
        assert_int_equal(cmn_launcher_size(), 3);
        assert_int_equal(cmn_launcher_rank(), 2);
    }
}

static void mpiexec_counts_where_slurm_has_started_its_daemons(void **state)
{
    (void)state;
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

static void what_the_user_has_set_stays(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_one_there_is_one_process, no_variables),
        cmocka_unit_test_setup(each_has_names_of_its_own, no_variables),
        cmocka_unit_test_setup(mpiexec_counts_where_slurm_has_started_its_daemons, no_variables),
        cmocka_unit_test_setup(what_the_user_has_set_stays, no_variables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
