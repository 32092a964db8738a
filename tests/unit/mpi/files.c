#include "folder.h"

#include "mpi/files.h"

TEST(existing_folder)
{
    assert_int_equal(cmn_files_make_writable(folder), 0);
    assert_int_equal(files_in(folder), 0); /* the probe is gone */
}

TEST(missing_folder_is_made)
{
    /* The last one as people write it in .data files. */
    static const char *const names[] = {"a b/c", "a b", "d/"};
    mode_t before = umask(027);

    for (size_t i = 0; i < COUNT(names); i++) {
        struct stat st;
        assert_int_equal(cmn_files_make_writable(in_folder(names[i])), i != 1);
        assert_int_equal(files_in(in_folder(names[i])), i == 1);
        assert_int_equal(stat(in_folder(names[i]), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0750);
    }
    umask(before);
}

TEST(below_a_file)
{
    char name[4096];
    char *file = file_of("file", "x");
    snprintf(name, sizeof name, "%s/backup", file);
    assert_fatal(cmn_files_make_writable(name), name);
    assert_fatal(cmn_files_make_writable(name), "Not a directory");
    assert_fatal(cmn_files_make_writable(file), file);
}

/* Read-only for root as well. */
TEST(where_nobody_may_write)
{
    assert_fatal(cmn_files_make_writable("/proc/self"), "/proc/self");
    assert_fatal(cmn_files_make_writable("/proc/no/such"), "/proc/no/such");
}

TESTS(make_folder, remove_folder)
