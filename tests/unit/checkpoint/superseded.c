/* A training that starts over, killed at each moment of its first checkpoint: from what the next
 * one resumes. */
#include "checkpoints.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BYTES = 1000 }; /* of weights */

/* The process is killed before the call of this number, of those by which names and their order
 * on the disk change; 0: never. */
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

static void none_is_damaged(const char *reason)
{
    fail_msg("%s", reason);
}

/* The value of the newest one. */
static int newest(void)
{
    int reason_given, value;
    struct cmn_checkpoint_file *f =
        cmn_checkpoint_newest(folder, "x", none_is_damaged, &reason_given);

    assert_non_null(f);
    value = checkpoints_value(f);
    cmn_checkpoint_free(f);
    return value;
}

static void write_old(long i)
{
    struct cmn_writer *w = cmn_writer_open(folder, "x", 100);

    assert_non_null(w);
    checkpoints_write(w, (int)i, BYTES, i);
    cmn_writer_close(w);
}

/* One that supersedes 15, 30 and 45, and that itself is of iteration `i`. Returns whether the
 * process was killed before call `at`. */
static int killed_superseding(long i, int at)
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        struct cmn_writer *w;
        die_at = at;
        w = cmn_writer_open(folder, "x", 2);
        cmn_writer_supersede(w);
        cmn_writer_start(w, checkpoints_snapshot((int)i, 2 * BYTES), i);
        cmn_writer_close(w);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status);
}

/* What the next process finds: the latest of the old ones, with the others, or the new one
 * alone. Returns whether it is that. */
static int new_alone(long i)
{
    struct cmn_writer *w = cmn_writer_open(folder, "x", 100);
    struct stat st;
    int value, is_new;

    assert_non_null(w);
    value = newest();
    is_new = !stat(in_folder(i == 15 ? "x-15.checkpoint" : "x-60.checkpoint"), &st) &&
             st.st_size > 2 * BYTES;
    assert_int_equal(value, is_new ? i : 45);
    assert_true(is_new || files_in(folder) == 4); /* with the lock */
    if (is_new) {                                 /* and it stays so, with all that comes */
        unlink(in_folder(i == 15 ? "x-15.checkpoint" : "x-60.checkpoint"));
        checkpoints_write(w, 5, BYTES, 5);
        assert_int_equal(newest(), 5);
        assert_int_equal(files_in(folder), 2);
    }
    cmn_writer_close(w);
    return is_new;
}

/* A training that starts over. When its first checkpoint is there, none goes back to what it has
 * given up; and before, all of that is there. */
TEST(killed_when_superseding)
{
    for (long i = 15; i <= 60; i += 45) {
        int at = 0, was_new = 0, dies = 1;
        while (dies) {
            remove_folder();
            make_folder();
            for (int old = 15; old <= 45; old += 15) {
                write_old(old);
            }
            dies = killed_superseding(i, ++at);
            if (new_alone(i)) {
                was_new = 1;
            } else if (was_new) {
                fail_msg("killed before call %d: back to the old ones", at);
            }
        }
        assert_true(was_new);
        assert_true(at > 8);
    }
}

TESTS(make_folder, remove_folder)
