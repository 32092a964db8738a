#include "check.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mpi/files.h"
#include "base/log.h"
#include "nets.h"

static char folder[2048];

static int setup(void **state)
{
    const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";

    (void)state;
    snprintf(folder, sizeof folder, "%s/cmn-files-XXXXXX", tmp);
    return mkdtemp(folder) ? 0 : -1;
}

static int entries(const char *name)
{
    DIR *d = opendir(name);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    }
    closedir(d);
    return n;
}

static void existing_folder(void **state)
{
    (void)state;
    assert_int_equal(cmn_files_make_writable(folder), 0);
    assert_int_equal(entries(folder), 0); /* the probe is gone */
}

static void missing_folder_is_made(void **state)
{
    char name[4096];
    (void)state;
    snprintf(name, sizeof name, "%s/a b/c", folder);
    assert_int_equal(cmn_files_make_writable(name), 1);
    assert_int_equal(entries(name), 0);
    rmdir(name);
    snprintf(name, sizeof name, "%s/a b", folder);
    rmdir(name);
    /* As people write it in .data files. */
    snprintf(name, sizeof name, "%s/d/", folder);
    assert_int_equal(cmn_files_make_writable(name), 1);
    rmdir(name);
}

static void below_a_file(void **state)
{
    char name[4096];
    char *file = nets_file("x");
    (void)state;
    snprintf(name, sizeof name, "%s/backup", file);
    assert_fatal(cmn_files_make_writable(name), name);
    assert_fatal(cmn_files_make_writable(name), "Not a directory");
    assert_fatal(cmn_files_make_writable(file), file);
    unlink(file);
    free(file);
}

/* Read-only for root as well. */
static void where_nobody_may_write(void **state)
{
    (void)state;
    assert_fatal(cmn_files_make_writable("/proc/self"), "/proc/self");
    assert_fatal(cmn_files_make_writable("/proc/no/such"), "/proc/no/such");
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(existing_folder),
        cmocka_unit_test(missing_folder_is_made),
        cmocka_unit_test(below_a_file),
        cmocka_unit_test(where_nobody_may_write),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
