#include "folder.h"

#include "mpi/files.h"
#include "base/log.h"
#include "nets.h"

TEST(existing_folder)
{
    assert_int_equal(cmn_files_make_writable(folder), 0);
    assert_int_equal(files_in(folder), 0); /* the probe is gone */
}

TEST(missing_folder_is_made)
{
    char name[4096];
    snprintf(name, sizeof name, "%s/a b/c", folder);
    assert_int_equal(cmn_files_make_writable(name), 1);
    assert_int_equal(files_in(name), 0);
    rmdir(name);
    snprintf(name, sizeof name, "%s/a b", folder);
    rmdir(name);
    /* As people write it in .data files. */
    snprintf(name, sizeof name, "%s/d/", folder);
    assert_int_equal(cmn_files_make_writable(name), 1);
    rmdir(name);
}

TEST(below_a_file)
{
    char name[4096];
    char *file = nets_file("x");
    snprintf(name, sizeof name, "%s/backup", file);
    assert_fatal(cmn_files_make_writable(name), name);
    assert_fatal(cmn_files_make_writable(name), "Not a directory");
    assert_fatal(cmn_files_make_writable(file), file);
    unlink(file);
    free(file);
}

/* Read-only for root as well. */
TEST(where_nobody_may_write)
{
    assert_fatal(cmn_files_make_writable("/proc/self"), "/proc/self");
    assert_fatal(cmn_files_make_writable("/proc/no/such"), "/proc/no/such");
}

TESTS(make_folder, remove_folder)
