#include "report/tensorboard.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "check.h"

/* What event files hold is read by tests/tools/event_files.py (tests/cli/report.bats). */

static const struct cmn_row row = {.epoch = 0.5, .iteration = 7, .loss = 0.25};

/* The only file of the folder. */
static void only_file(const char *folder, char *name, size_t bytes)
{
    DIR *files = opendir(folder);
    const struct dirent *file;

    assert_non_null(files);
    name[0] = '\0';
    while ((file = readdir(files))) {
        if (file->d_name[0] != '.') {
            assert_int_equal(name[0], '\0');
            snprintf(name, bytes, "%s/%s", folder, file->d_name);
        }
    }
    closedir(files);
}

static off_t size_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(name, &st), 0);
    return st.st_size;
}

/* As on a disk that becomes full within a record. */
TEST(cuts_off_what_a_full_disk_took)
{
    char folder[] = "/tmp/cmn-test-XXXXXX", name[4200];
    struct cmn_tensorboard *t;
    struct rlimit before, little;
    off_t head, record;

    assert_non_null(mkdtemp(folder));
    t = cmn_tensorboard_open(folder, 0);
    assert_non_null(t);
    only_file(folder, name, sizeof name);
    head = size_of(name);
    cmn_tensorboard_row(t, &row);
    record = size_of(name) - head;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = (rlim_t)(head + record + record / 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    cmn_tensorboard_row(t, &row);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_contains(cmn_reason(), name);
    check_contains(cmn_reason(), "No space left on device");
    assert_int_equal(size_of(name), head + record); /* the other one waits */
    cmn_tensorboard_row(t, &row);
    assert_int_equal(size_of(name), head + 3 * record);
    assert_int_equal(cmn_tensorboard_close(t), 0);
    unlink(name);
    rmdir(folder);
}

TESTS(NULL, NULL)
