/* The writer of checkpoints: which files there are afterwards, whatever happens meanwhile. */
#include "checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

/* Why a folder cannot be synced, or listed; 0: it can. */
static int sync_fails, list_fails;

int fsync(int fd)
{
    struct stat st;

    if (sync_fails && !fstat(fd, &st) && S_ISDIR(st.st_mode)) {
        errno = sync_fails;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

DIR *fdopendir(int fd)
{
    char name[32];

    if (list_fails) {
        errno = list_fails;
        return NULL;
    }
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    return opendir(name); /* `fd` stays open */
}

static struct cmn_writer *writer(int keep)
{
    struct cmn_writer *w = cmn_writer_open(folder, "x", keep);

    assert_done(w);
    return w;
}

static int is_there(const char *file)
{
    return !access(in_folder(file), F_OK);
}

TEST(the_last_ones_stay)
{
    static const char *const others[] = {"x.weights",
                                         "y-1.checkpoint",
                                         "x-007.checkpoint",
                                         "x-1.checkpoint.bak",
                                         "x-1a.checkpoint",
                                         "x-.checkpoint",
                                         "xx-1.checkpoint",
                                         "x--1.checkpoint",
                                         "x-1-1.checkpoint",
                                         ".x-1.checkpoint",
                                         "x-1.checkpoint.abcde.part",
                                         "x-1.checkpoint.abcdefg.part",
                                         "y-1.checkpoint.abcdef.part",
                                         "x.checkpoint",
                                         "x-1.checkpoint.abc.ef.part",
                                         "x-1.checkpoint.abcdef.part.txt",
                                         "x-1234567890123456789.checkpoint"};
    struct cmn_writer *w;
    long written = 7;

    for (size_t i = 0; i < COUNT(others); i++) {
        file_of(others[i], "of someone else");
    }
    file_of("x-7.checkpoint.Ab3dEf.part", "of a process that has ended");
    w = writer(3);
    assert_false(is_there("x-7.checkpoint.Ab3dEf.part"));
    assert_int_equal(cmn_writer_result(w, NULL, 0, &written), 0);
    assert_int_equal(written, -1);
    for (long i = 8; i <= 101; i += i < 12 ? 1 : 89) {
        checkpoints_write(w, (int)i, 100, i); /* 8, 9, 10, 11, 12, 101 */
    }
    assert_int_equal(cmn_writer_result(w, NULL, 0, &written), 0);
    assert_int_equal(written, 101);
    assert_true(is_there("x-11.checkpoint") && is_there("x-12.checkpoint"));
    assert_true(is_there("x-101.checkpoint"));
    /* Those of a later iteration are not this training's to judge, and do not count. */
    checkpoints_write(w, 1, 100, 10);
    checkpoints_write(w, 1, 100, 9);
    assert_int_equal(files_in(folder), COUNT(others) + 6);
    checkpoints_write(w, 1, 100, 12);
    assert_false(is_there("x-9.checkpoint"));
    assert_true(is_there("x-10.checkpoint") && is_there("x-101.checkpoint"));
    cmn_writer_supersede(w);
    assert_int_equal(files_in(folder), COUNT(others) + 5);
    checkpoints_write(w, 1, 100, 3);
    assert_true(is_there("x-3.checkpoint"));
    assert_int_equal(files_in(folder), COUNT(others) + 2);
    checkpoints_write(w, 1, 100, 2);
    assert_true(is_there("x-3.checkpoint")); /* once, not for ever */
    cmn_writer_close(w);
    assert_int_equal(files_in(folder), COUNT(others) + 2);
    for (size_t i = 0; i < COUNT(others); i++) {
        assert_true(is_there(others[i]));
    }
}

static void look(void *calls)
{
    assert_false(is_there("x-1.checkpoint"));
    ++*(int *)calls;
}

/* What a checkpoint says of other files is on the disk before it is. */
TEST(others_come_first)
{
    struct cmn_writer *w = writer(2);
    int calls = 0;

    cmn_writer_before_rename(w, look, &calls);
    checkpoints_write(w, 1, 100, 1);
    assert_int_equal(calls, 1);
    assert_true(is_there("x-1.checkpoint"));
    cmn_writer_close(w);
}

TEST(only_the_owner_can_read)
{
    mode_t before = umask(0);
    struct cmn_writer *w = writer(2);
    struct stat st;

    checkpoints_write(w, 1, 100, 1);
    umask(before);
    assert_int_equal(stat(in_folder("x-1.checkpoint"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(stat(in_folder(".x.checkpoint-lock"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    cmn_writer_close(w);
    assert_int_equal(files_in(folder), 1);
}

/* Begun faster than the disk takes them: each is written, in its turn. */
TEST(one_after_the_other)
{
    struct cmn_writer *w = writer(100);
    struct cmn_checkpoint_file *f;
    char name[64];

    for (int i = 1; i <= 20; i++) {
        struct cmn_snapshot *s = checkpoints_snapshot(i, (size_t)(100 * (21 - i)));
        assert_int_equal(cmn_writer_start(w, s, i), 0);
    }
    cmn_writer_close(w);
    for (int i = 1; i <= 20; i++) {
        snprintf(name, sizeof name, "x-%d.checkpoint", i);
        f = cmn_checkpoint_read(in_folder(name));
        assert_non_null(f);
        assert_int_equal(checkpoints_value(f), i);
        assert_int_equal(f->mark.weights, 100 * (21 - i));
        assert_string_equal(f->path, in_folder(name));
        cmn_checkpoint_free(f);
    }
}

/* Writes one, which fails with this reason. */
static void fails(struct cmn_writer *w, long iteration, size_t bytes, const char *why)
{
    char text[1024] = "", name[64];

    assert_int_equal(cmn_writer_start(w, checkpoints_snapshot(1, bytes), iteration), 0);
    cmn_writer_wait(w);
    assert_int_equal(cmn_writer_result(w, text, sizeof text, NULL), iteration);
    snprintf(name, sizeof name, "x-%ld.checkpoint: ", iteration);
    check_contains(text, in_folder(name));
    check_contains(text, why);
}

/* The same, and all is as it was. */
static void leaves_nothing(struct cmn_writer *w, long iteration, const char *why)
{
    char text[1024] = "";
    int before = files_in(folder);
    long written, before_that;

    assert_int_equal(cmn_writer_result(w, text, sizeof text, &before_that), 0);
    fails(w, iteration, 2000000, why);
    assert_int_equal(files_in(folder), before);
    assert_int_equal(cmn_writer_result(w, text, sizeof text, &written), 0); /* said once */
    assert_int_equal(written, before_that);
}

TEST(no_room_in_a_file)
{
    struct cmn_writer *w = writer(1);

    checkpoints_write(w, 1, 2000000, 1);
    limit_files(1000000);
    signal(SIGXFSZ, SIG_DFL); /* it would end the process; the writer's thread takes no signals */
    leaves_nothing(w, 2, "File too large (it has 2.0 MB)");
    leaves_nothing(w, 3, "File too large");
    limit_files(0);
    checkpoints_write(w, 1, 100, 4);
    assert_true(is_there("x-4.checkpoint"));
    assert_false(is_there("x-1.checkpoint"));
    cmn_writer_close(w);
}

/* In a process of its own, so that what it mounts goes away with it. */
static void fill_the_disk(void)
{
    struct cmn_writer *w;
    int ballast;

    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", folder, "tmpfs", 0, "size=5m")) {
        _exit(77);
    }
    w = writer(5);
    checkpoints_write(w, 1, 2000000, 1);
    file_of("ballast", "");
    ballast = open(in_folder("ballast"), O_WRONLY);
    assert_int_equal(posix_fallocate(ballast, 0, 2000000), 0);
    leaves_nothing(w, 2, "No space left on device (it has 2.0 MB)");
    assert_int_equal(ftruncate(ballast, 0), 0);
    close(ballast);
    checkpoints_write(w, 1, 100, 3);
    assert_true(is_there("x-3.checkpoint"));
    /* Another mount of the same folder over it: one that has files open for writing cannot be
     * made read-only. */
    assert_int_equal(mount(folder, folder, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    leaves_nothing(w, 4, "Read-only file system");
    assert_fails(!cmn_writer_open(folder, "y", 1), folder);
    check_contains(cmn_reason(), "Read-only file system");
    assert_int_equal(umount(folder), 0);
    checkpoints_write(w, 1, 100, 5);
    assert_true(is_there("x-5.checkpoint"));
    cmn_writer_close(w);
    assert_int_equal(files_in(folder), 4);
}

TEST(a_full_or_a_read_only_disk)
{
    int status;

    if (geteuid()) {
        skip(); /* who may not mount cannot make such a disk */
    }
    status = status_of(fill_the_disk());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        skip();
    }
    assert_int_equal(status, 0);
}

TEST(a_folder_that_goes_and_comes)
{
    struct cmn_writer *w = writer(2);
    char away[2100];

    snprintf(away, sizeof away, "%s-away", folder);
    checkpoints_write(w, 1, 100, 1);
    assert_int_equal(rename(folder, away), 0);
    fails(w, 2, 100, "No such file or directory");
    assert_int_equal(rename(away, folder), 0);
    unlink(in_folder(".x.checkpoint-lock"));
    unlink(in_folder("x-1.checkpoint"));
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    checkpoints_write(w, 3, 100, 3);
    assert_true(is_there("x-3.checkpoint"));
    assert_null(cmn_writer_open(folder, "x", 2)); /* the lock is there anew, too */
    cmn_writer_close(w);
    assert_int_equal(files_in(folder), 1);
}

/* The file is there, and yet nobody may count on it; the older one stays. Some file systems need no such
 * call. */
TEST(a_folder_that_cannot_be_synced)
{
    struct cmn_writer *w = writer(1);

    checkpoints_write(w, 1, 100, 1);
    sync_fails = EIO;
    fails(w, 2, 100, "Input/output error");
    assert_true(is_there("x-1.checkpoint"));
    sync_fails = EINVAL;
    checkpoints_write(w, 3, 100, 3);
    assert_false(is_there("x-1.checkpoint"));
    /* Of a training that starts over: the others keep their names, as the disk may not know the new ones. */
    sync_fails = EIO;
    cmn_writer_supersede(w);
    fails(w, 4, 100, "Input/output error");
    sync_fails = 0;
    assert_true(is_there("x-3.checkpoint") && !is_there("x-4.checkpoint"));
    cmn_writer_close(w);
}

/* No checkpoint is taken for the latest, and none is removed. */
TEST(a_folder_that_cannot_be_listed)
{
    struct cmn_writer *w = writer(1);
    int given;

    checkpoints_write(w, 1, 100, 1);
    list_fails = EMFILE;
    assert_int_equal(cmn_checkpoint_latest(folder, "x"), -1);
    assert_fails(!cmn_checkpoint_newest(folder, "x", NULL, &given) && given, folder);
    check_contains(cmn_reason(), "Too many open files");
    checkpoints_write(w, 2, 100, 2);
    list_fails = 0;
    assert_true(is_there("x-1.checkpoint") && is_there("x-2.checkpoint"));
    cmn_writer_close(w);
}

TEST(bad_folders_and_names)
{
    char name[300];

    assert_fails(!cmn_writer_open("/proc/no/such", "x", 1),
                 "/proc/no/such: No such file or directory");
    assert_fails(!cmn_writer_open("/proc/self/status", "x", 1), "Not a directory");
    memset(name, 'n', sizeof name);
    name[NAME_MAX - 18 - 24 + 1] = '\0';
    assert_fails(!cmn_writer_open(folder, name, 1), "too long a name");
    name[strlen(name) - 1] = '\0';
    cmn_writer_close(cmn_writer_open(folder, name, 1));
    cmn_writer_close(NULL);
    file_of("file", "");
    assert_int_equal(symlink("file", in_folder(".x.checkpoint-lock")), 0);
    assert_fails(!cmn_writer_open(folder, "x", 1), ".x.checkpoint-lock: is a link");
    unlink(in_folder(".x.checkpoint-lock"));
    assert_int_equal(mkfifo(in_folder(".x.checkpoint-lock"), 0600), 0);
    assert_fails(!cmn_writer_open(folder, "x", 1), "is no regular file");
}

TESTS(make_folder, remove_folder)
