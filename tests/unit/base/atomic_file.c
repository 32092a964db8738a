/* A file that replaces another one: what is there when its writer is killed, where the file system
 * has files without a name, and where it has none. */
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "base/atomic_file.h"

static char file[300];
static int knows_unnamed; /* the file system of the folder: files without a name */

/* ---- calls that names depend on ---- */

static int die_at;            /* the process is killed before this one of them; 0: never */
static int only_named, taken; /* the file system: knows names alone; so many names are taken */

int open(const char *path, int flags, ...)
{
    va_list more;
    mode_t mode;

    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
    if (only_named && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void count_down(void)
{
    if (die_at && !--die_at) {
        raise(SIGKILL);
    }
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    count_down();
    if (taken && taken--) {
        errno = EEXIST;
        return -1;
    }
    return (int)syscall(SYS_linkat, from, old, to, new, flags);
}

int rename(const char *old, const char *new)
{
    count_down();
    return (int)syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
}

/* ---- the folder ---- */

static const char *parent;

static void make(void)
{
    int fd;

    make_folder_in(parent);
    snprintf(file, sizeof file, "%s/x.weights", folder);
    die_at = only_named = taken = 0;
    fd = open(folder, O_TMPFILE | O_RDWR, 0600);
    knows_unnamed = fd >= 0; /* overlayfs since Linux 6.1 */
    close(fd);
}

/* What `file` holds: the first byte, of as many as there ought to be. */
static char content(void)
{
    assert_int_equal(size_of(file), 100000);
    return text_of(file)[0];
}

static void begin(char with, int *fd, char name[512])
{
    static char text[100000];

    memset(text, with, sizeof text);
    *fd = cmn_atomic_open(file, name, 512);
    assert_true(*fd >= 0);
    assert_int_equal(write(*fd, text, sizeof text), sizeof text);
}

static void replace(char with)
{
    char name[512];
    int fd;

    begin(with, &fd, name);
    assert_int_equal(cmn_atomic_commit(fd, name, file), 0);
    close(fd);
}

/* A process replaces the file and is killed before call `at`; 1 is that before the commit. */
static void replace_until(int at)
{
    char name[512];
    int fd;

    begin('n', &fd, name);
    die_at = at;
    count_down();
    cmn_atomic_commit(fd, name, file);
}

static int is_it(const char *name, const void *unused)
{
    (void)unused;
    return !strcmp(name, "x.weights");
}

/* ---- the tests ---- */

TEST(a_killed_writer_leaves_nothing)
{
    for (only_named = !knows_unnamed; only_named <= 1; only_named++) {
        replace('o');
        for (int at = 1; at <= 3 - only_named; at++) {
            assert_true(WIFSIGNALED(status_of(replace_until(at))));
            assert_int_equal(content(), 'o');
            /* Without a name until the end, and then between its two names. */
            assert_int_equal(files_in(folder), at < 3 && !only_named ? 1 : 2);
            cmn_atomic_sweep_of(folder, is_it, NULL);
            assert_int_equal(files_in(folder), 1);
        }
        replace('n');
        assert_int_equal(content(), 'n');
        assert_int_equal(files_in(folder), 1);
    }
}

TEST(replaces)
{
    mode_t before = umask(027);
    struct stat st;

    replace('o');
    taken = 3; /* names are drawn again */
    replace('n');
    umask(before);
    assert_int_equal(content(), 'n');
    assert_int_equal(files_in(folder), 1);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

TEST(gives_up)
{
    char name[512], moved[300];
    int fd;

    for (only_named = 0; only_named <= 1; only_named++) {
        begin('x', &fd, name);
        assert_int_equal(name[0] != '\0', only_named || !knows_unnamed);
        unlink(name);
        close(fd);
        assert_int_equal(files_in(folder), 0);
    }
    only_named = 0;
    begin('x', &fd, name);
    snprintf(moved, sizeof moved, "%s-moved", folder);
    assert_int_equal(rename(folder, moved), 0);
    assert_int_equal(cmn_atomic_commit(fd, name, file), -1);
    assert_int_equal(errno, ENOENT);
    close(fd);
    cmn_atomic_sweep_of(folder, is_it, NULL); /* there is none to be listed */
    assert_int_equal(rename(moved, folder), 0);
    assert_int_equal(files_in(folder), 0);
}

int main(void)
{
    int failed = 0;

    for (int i = 0; i < 2; i++) {
        parent = i ? "/dev/shm" : "/tmp";
        failed += check_run(make, remove_folder);
    }
    return failed;
}
