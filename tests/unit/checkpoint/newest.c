/* Which checkpoint of a folder is taken, who may write there, and what a writer that was killed
 * leaves. */
#include "checkpoints.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>

enum { BYTES = 1000 }; /* of weights */

/* The process is killed before the call of this number, of those by which files, names and their
 * order on the disk change, or half-way through it when it writes; 0: never. */
static int die_at;

static void count_down(void)
{
    if (die_at && !--die_at) {
        raise(SIGKILL);
    }
}

int renameat(int from, const char *old, int to, const char *new)
{
    count_down();
    return (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int rename(const char *old, const char *new)
{
    return renameat(AT_FDCWD, old, AT_FDCWD, new);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    count_down();
    return (int)syscall(SYS_linkat, from, old, to, new, flags);
}

int unlinkat(int at, const char *file, int flags)
{
    count_down();
    return (int)syscall(SYS_unlinkat, at, file, flags);
}

int fsync(int fd)
{
    count_down();
    return (int)syscall(SYS_fsync, fd);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (die_at == 1) {
        syscall(SYS_write, fd, bytes, n / 2);
    }
    count_down();
    return syscall(SYS_write, fd, bytes, n);
}

static char reasons[8192]; /* of damaged ones, a line each */
static int damages;

static void damaged(const char *reason)
{
    size_t n = strlen(reasons);

    damages++;
    snprintf(reasons + n, sizeof reasons - n, "%s\n", reason);
}

/* The value of the newest one, 0 when there is none, -1 with a reason. */
static int newest(void)
{
    struct cmn_checkpoint_file *f;
    int reason_given = 7, value;

    reasons[0] = '\0', damages = 0;
    f = cmn_checkpoint_newest(folder, "x", damaged, &reason_given);
    if (!f) {
        assert_in_range(reason_given, 0, 1);
        return reason_given ? -1 : 0;
    }
    assert_int_equal(reason_given, 0);
    value = checkpoints_value(f);
    assert_int_equal(f->iteration, value);
    cmn_checkpoint_free(f);
    return value;
}

static void write_some(long from, long to)
{
    struct cmn_writer *w = cmn_writer_open(folder, "x", 100);

    assert_non_null(w);
    for (long i = from; i <= to; i++) {
        checkpoints_write(w, (int)i, BYTES, i);
    }
    cmn_writer_close(w);
}

static void change(const char *file, long at)
{
    int fd = open(in_folder(file), O_RDWR);
    char c;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 16;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

TEST(the_newest_that_is_intact)
{
    off_t size;
    char text[64];

    assert_int_equal(newest(), 0);
    assert_int_equal(cmn_checkpoint_latest(folder, "x"), -1);
    assert_int_equal(symlink("nowhere", in_folder("x-0099.checkpoint")), 0);
    assert_int_equal(symlink("nowhere", in_folder("x_99.checkpoint")), 0);
    write_some(8, 11); /* 11 is newer than 9, whatever letters say */
    assert_int_equal(newest(), 11);
    assert_int_equal(damages, 0);
    size = size_of(in_folder("x-11.checkpoint"));
    assert_int_equal(truncate(in_folder("x-11.checkpoint"), size - 1), 0);
    assert_int_equal(newest(), 10);
    assert_int_equal(damages, 1);
    snprintf(text, sizeof text, "truncated: %ld of %ld bytes", size - 1, size);
    check_contains(reasons, in_folder("x-11.checkpoint: "));
    check_contains(reasons, text);
    change("x-10.checkpoint", 500);
    assert_int_equal(truncate(in_folder("x-11.checkpoint"), 0), 0);
    assert_int_equal(newest(), 9);
    assert_int_equal(damages, 2);
    check_contains(reasons, "x-11.checkpoint: it is empty");
    check_contains(reasons, "x-10.checkpoint: weights: wrong checksum");
    assert_int_equal(mkdir(in_folder("x-12.checkpoint"), 0700), 0);
    assert_int_equal(mkfifo(in_folder("x-13.checkpoint"), 0600), 0);
    assert_int_equal(symlink("nowhere", in_folder("x-14.checkpoint")), 0);
    assert_int_equal(newest(), 9);
    assert_int_equal(damages, 5);
    check_contains(reasons, "x-12.checkpoint: is no regular file");
    check_contains(reasons, "x-13.checkpoint: is no regular file");
    check_contains(reasons, "x-14.checkpoint: No such file");
    assert_int_equal(cmn_checkpoint_latest(folder, "x"), 14);
    rmdir(in_folder("x-12.checkpoint"));
    change("x-9.checkpoint", 400);
    change("x-8.checkpoint", 400);
    /* To begin anew because of that is for people to decide. */
    assert_fails(newest() == -1, "none of the 6 checkpoints of x is intact");
}

TEST(renamed)
{
    char other[4096];

    write_some(3, 4);
    snprintf(other, sizeof other, "%s", in_folder("x-9.checkpoint"));
    assert_int_equal(rename(in_folder("x-4.checkpoint"), other), 0);
    assert_int_equal(newest(), 3);
    check_contains(reasons, "x-9.checkpoint: it is of iteration 4");
}

/* Not damaged: going back would lose what people can save. */
TEST(of_another_version)
{
    unsigned char bytes[CMN_MARK];
    struct cmn_mark mark;
    int fd;

    write_some(3, 4);
    fd = open(in_folder("x-4.checkpoint"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, sizeof bytes, BYTES), sizeof bytes);
    assert_int_equal(cmn_mark_read(&mark, bytes), 0);
    mark.version = 4;
    cmn_mark_write(&mark, bytes);
    assert_int_equal(pwrite(fd, bytes, sizeof bytes, BYTES), sizeof bytes);
    close(fd);
    assert_fails(newest() == -1 && !damages, in_folder("x-4.checkpoint"));
    check_contains(cmn_reason(), "its format is version 4, and this program reads version 3");
}

/* Root may read everything, and others perhaps not what the folder lies in. */
static void read_as_nobody(void)
{
    if (chdir(folder)) {
        _exit(3);
    }
    strcpy(folder, ".");
    if (!geteuid() && (chown(folder, 65534, 65534) ||
                       chown(in_folder("x-3.checkpoint"), 65534, 65534) || seteuid(65534))) {
        _exit(3);
    }
    _exit(newest() != -1 || damages || !strstr(cmn_reason(), "x-4.checkpoint: Permission denied"));
}

TEST(what_may_not_be_read)
{
    write_some(3, 4);
    assert_int_equal(chmod(in_folder("x-4.checkpoint"), 0), 0);
    assert_int_equal(status_of(read_as_nobody()), 0);
    assert_int_equal(cmn_checkpoint_latest("/proc/no/such", "x"), -1);
}

/* Whoever has made it decides what the training becomes. */
TEST(of_another_user)
{
    if (geteuid()) {
        skip(); /* nobody else can give a file away */
    }
    write_some(1, 2);
    assert_int_equal(chown(in_folder("x-2.checkpoint"), 65534, 65534), 0);
    assert_fails(newest() == -1 && !damages,
                 "x-2.checkpoint: it belongs to another user (id 65534): put a copy of ");
    assert_int_equal(chown(in_folder("x-2.checkpoint"), 0, 0), 0);
    assert_int_equal(newest(), 2);
}

static void may_write(void)
{
    struct cmn_writer *w = cmn_writer_open(folder, "x", 1);

    assert_done(w);
    cmn_writer_close(w);
}

static void hold_draft(void)
{
    int fd = open(in_folder("x-7.checkpoint.livin9.part"), O_CREAT | O_WRONLY, 0600);

    if (fd < 0 || flock(fd, LOCK_EX)) {
        _exit(1);
    }
}

TEST(drafts_of_the_living)
{
    pid_t pid = holder(hold_draft);

    may_write();
    assert_int_equal(files_in(folder), 1);
    end(pid);
    may_write();
    assert_int_equal(files_in(folder), 0);
}

/* ---- a writer that is killed ---- */

/* Writes the checkpoint of iteration `i`, and keeps one of those before, or supersedes them all;
 * the process is killed at call `at`. */
static void write_until(long i, int supersedes, int at)
{
    struct cmn_writer *w;

    die_at = at;
    w = cmn_writer_open(folder, "x", 2);
    if (supersedes) {
        cmn_writer_supersede(w);
    }
    cmn_writer_start(w, checkpoints_snapshot((int)i, 2 * BYTES), i);
    cmn_writer_close(w);
}

/* The next process continues from iteration `next`. It finds the latest of the old checkpoints beside
 * the others, or the new one, which has no others beside it if it supersedes them; all are intact.
 * Returns whether it is the new one. */
static int new_is_there(long i, int supersedes, long next)
{
    struct cmn_writer *w = cmn_writer_open(folder, "x", 2);
    struct stat st;
    const char *file = in_folder(i == 15 ? "x-15.checkpoint" : "x-60.checkpoint");
    int is_new = !stat(file, &st) && st.st_size > 2 * BYTES;

    assert_non_null(w);
    assert_int_equal(newest(), is_new ? i : 45);
    assert_int_equal(damages, 0);
    assert_true(is_new || files_in(folder) == 4); /* with the lock */
    if (is_new && supersedes) {                   /* and it stays so, with all that comes */
        unlink(in_folder(i == 15 ? "x-15.checkpoint" : "x-60.checkpoint"));
    }
    checkpoints_write(w, (int)next, BYTES, next);
    assert_int_equal(newest(), next);
    assert_int_equal(damages, 0);
    assert_int_equal(files_in(folder), is_new && supersedes ? 2 : 3); /* nothing else is left */
    cmn_writer_close(w);
    return is_new;
}

/* At each call of the writer: what is there under a checkpoint's name is intact, and the next one
 * removes the rest. Once the new one is there, none goes back to the old ones, whether it came after
 * them or is that of a training that starts over. */
TEST(killed_when_writing)
{
    static const struct {
        long i;
        int supersedes;
        long next;
    } rows[] = {{60, 0, 75}, {15, 1, 50}, {60, 1, 75}};

    for (size_t k = 0; k < COUNT(rows); k++) {
        int at = 0, was_new = 0, dies = 1;
        while (dies) {
            remove_folder();
            make_folder();
            for (int old = 15; old <= 45; old += 15) {
                write_some(old, old);
            }
            at++;
            dies = WIFSIGNALED(status_of(write_until(rows[k].i, rows[k].supersedes, at)));
            if (new_is_there(rows[k].i, rows[k].supersedes, rows[k].next)) {
                was_new = 1;
            } else if (was_new) {
                fail_msg("killed at call %d: back to the old ones", at);
            }
        }
        assert_true(was_new);
        assert_true(at > 8);
    }
}

TESTS(make_folder, remove_folder)
