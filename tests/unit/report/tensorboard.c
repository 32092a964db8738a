#include "report/tensorboard.h"

#include <errno.h>
#include <fcntl.h>

#include "folder.h"

/* What event files hold is read by tests/tools/event_files.py (tests/cli/report.bats). */

static const struct cmn_row row = {.epoch = 0.5, .iteration = 7, .loss = 0.25};

static int cannot_list; /* a folder */

DIR *opendir(const char *name)
{
    int fd = open(name, O_RDONLY | O_DIRECTORY);

    if (cannot_list) {
        close(fd);
        errno = EMFILE;
        return NULL;
    }
    return fd < 0 ? NULL : fdopendir(fd);
}

/* The only file of the folder. */
static const char *only_file(void)
{
    static glob_t found;

    assert_int_equal(glob(in_folder("*"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    return found.gl_pathv[0];
}

/* As on a disk that becomes full within a record. */
TEST(cuts_off_what_a_full_disk_took)
{
    struct cmn_tensorboard *t = cmn_tensorboard_open(folder, 0);
    const char *name = only_file();
    off_t head = size_of(name), record;

    assert_non_null(t);
    cmn_tensorboard_row(t, &row);
    record = size_of(name) - head;
    limit_files(head + record + record / 2);
    cmn_tensorboard_row(t, &row);
    limit_files(0);
    check_contains(cmn_reason(), name);
    check_contains(cmn_reason(), "No space left on device");
    assert_int_equal(size_of(name), head + record); /* the other one waits */
    cmn_tensorboard_row(t, &row);
    assert_int_equal(size_of(name), head + 3 * record);
    assert_int_equal(cmn_tensorboard_close(t), 0);
}

/* Whatever lies there, the time is the name's. */
TEST(writes_where_it_cannot_list)
{
    struct cmn_tensorboard *t;

    cannot_list = 1;
    t = cmn_tensorboard_open(folder, 0);
    cannot_list = 0;
    assert_non_null(t);
    cmn_tensorboard_row(t, &row);
    assert_int_equal(cmn_tensorboard_close(t), 0);
    assert_true(size_of(only_file()) > 0);
}

TESTS(make_folder, remove_folder)
